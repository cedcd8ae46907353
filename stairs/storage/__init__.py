"""Objects as plain parts of a file, and files that only their owner can change."""

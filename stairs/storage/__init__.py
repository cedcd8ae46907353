"""Objects as plain parts for a file, and files that only their owner can change."""

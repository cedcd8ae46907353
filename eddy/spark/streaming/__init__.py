"""The join as a Structured Streaming job: rows are written to a log first, then joined, batch by batch."""

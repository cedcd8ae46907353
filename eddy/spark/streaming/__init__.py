"""A join as a Structured Streaming job: state that outlives micro-batches, workers and the driver; each result once."""

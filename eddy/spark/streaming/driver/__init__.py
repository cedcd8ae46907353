"""The driver's part of a streaming join: start, micro-batches, watermarks, rebalancing, metrics, stop."""

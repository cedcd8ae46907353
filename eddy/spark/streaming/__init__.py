"""A join as a Structured Streaming job, whose state survives the loss of workers and of the driver; each result once.

driver/   starts and stops the job, runs micro-batches, decides on watermarks and on the place of key groups
worker/   the two stages of a micro-batch: log rows, join rows
state/    the files of the checkpoint: log, manifests, identity, and their recovery, retention and compaction
sinks/    destinations for results
"""

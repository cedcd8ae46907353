"""A join as a Structured Streaming job: its state survives the loss of workers and of the driver; each result once.

driver/   starts and stops the job, runs micro-batches, decides on watermarks and on the partition of key groups
worker/   the tasks of a micro-batch: they log rows, meet, and join the rows with the engines that their workers keep
hub/      several queries over the same streams in one job
inputs/   the source that finds the files and messages of all streams
state/    the files of the checkpoint: log, manifests, identity, and their recovery, retention and compaction
sinks/    destinations for results
"""

"""A join as a Structured Streaming job, whose state survives the loss of workers and of the driver; each result once.

driver/   starts and stops the job, runs micro-batches, decides on watermarks and on the place of key groups
worker/   the tasks of a micro-batch: they log rows, meet, and join them with the engines that their workers keep
files/    the source that finds the files of all streams
state/    the files of the checkpoint: log, manifests, identity, and their recovery, retention and compaction
sinks/    destinations for results
"""

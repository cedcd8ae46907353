"""The tasks of a micro-batch: the stage that splits rows into the log, the stage that joins them."""

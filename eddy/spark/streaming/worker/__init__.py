"""The workers' part of a micro-batch: the stage that logs rows, and the stage that joins them."""

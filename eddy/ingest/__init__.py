"""Input: from pushed batches to validated arrivals, and their rows in the memory of the kernels."""

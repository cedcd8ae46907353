"""The limits of the machine: the cost of memory accesses, the least time of an arrival, the parts of a push."""

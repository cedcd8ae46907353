"""Random queries, arrivals and plan transitions against a small reference join: the command `eddy fuzz`."""

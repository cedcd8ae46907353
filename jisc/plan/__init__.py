"""Join trees, the states they imply, and the tables of routes that kernels walk."""

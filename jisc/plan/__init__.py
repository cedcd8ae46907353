"""Join trees, their states, and the tables of routes that the kernels walk."""

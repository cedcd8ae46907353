"""A join as partitions: the narrowed query, the grid, rows split by partition, arrival order, one engine each."""

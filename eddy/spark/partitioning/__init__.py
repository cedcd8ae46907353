"""A join as partitions: the narrowed query, the shares of each partition, rows dealt to partitions."""

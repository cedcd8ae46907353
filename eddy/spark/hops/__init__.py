"""What joins in hops share: their plan, the windows of a partition, and the legs that tuples take through them."""

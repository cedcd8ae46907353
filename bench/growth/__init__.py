"""Throughput and bytes as a join grows: joins, windows, keys, selectivity, pushes, results."""

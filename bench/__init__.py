"""Benchmarks: workloads, the hand-written limit, ratios in one run."""

"""Tests of `bench.simulated.cluster`."""

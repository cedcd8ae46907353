"""Tests of `eddy.cluster`."""

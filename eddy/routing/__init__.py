"""Routing: samples of recent tuples, policies that choose plans by them, and changes of plan."""

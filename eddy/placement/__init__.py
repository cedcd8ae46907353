"""Placement: which join step runs on which node, decided while the join runs."""

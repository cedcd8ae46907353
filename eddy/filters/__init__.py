"""Filters: conditions on rows, in an order that adapts to their cost and selectivity."""

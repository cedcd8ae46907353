"""Left, semi, anti and full joins: an operator over inner joins that also yields the rows without a partner."""

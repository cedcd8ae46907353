"""Text of SQL as Arrow expressions, predicates and conditions over the columns of streams."""

"""A running query as a pipeline of operators: admission, joins, partners, groups, output, and one transaction."""

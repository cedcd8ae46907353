"""Random SQL, held against DuckDB over the same rows: all rows are pushed, then the input ends."""

"""SQL: the text of a statement to a query, and back. `docs/guide/sql.md` describes the dialect."""

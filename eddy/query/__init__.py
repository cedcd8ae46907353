"""The query as a user writes it: streams, windows, predicates, lateness."""

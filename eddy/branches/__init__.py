"""Queries with branches at work: inner joins, ledgers that follow their results, and the rows that come of both."""

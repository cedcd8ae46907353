"""The join below a query of a hub, and the operator above it."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from eddy.queries.alone import is_alone
from eddy.query.query import Query
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.operators import check_changelog, ends, operator_of, without_operators
from eddy.spark.partitioning.engine import JoinOutput, signed
from eddy.streams.keyed import KeyedInput
from stairs.errors import QueryError


class HubJoin:
    """The join below a query, and what becomes of its results.

    whole    the query
    query    the join, without aggregates and `top`
    asked    the form of results for which the user asks;  output  the one that they have
    alone    whether it has a runtime alone in each key group
    keyed    whether it reads tables, whose rows count from before its start
    above    whether an operator makes groups or first rows of its results
    windows  whether these are the groups of windows of event time, each of which comes once

    Raises QueryError for a query that a streaming join cannot have.
    """

    def __init__(self, name: str, query: Query, output: JoinOutput) -> None:
        try:
            check_changelog(query, output)
            self.query = without_operators(query)
        except SparkJoinError as problem:
            raise QueryError(f"query {name!r}: {problem}") from problem
        self.output: JoinOutput = "changelog" if ends(query) or query.tables_changing else output
        self.asked = output
        self.alone = is_alone(self.query, self.output)
        self.keyed = any(isinstance(stream, KeyedInput) for stream in self.query.streams)
        self.above = self.query is not query
        self.windows = query.aggregation is not None and query.aggregation.window is not None
        self.whole = query

    @property
    def results(self) -> pa.Schema:
        """The columns of the results of the join."""
        return signed(self.query.output_schema, self.output)

    @cached_property
    def rows(self) -> pa.Schema:
        """The columns of the rows for the sink."""
        if not self.above:
            return self.results
        return self.whole.output_schema if self.windows else operator_of(self.whole).schema

"""A side output: rows that are no results, which are logged, passed to a function or stored after a push.

    rows    the whole state, a `LateRows` that is replaced by one assignment

A push prepares the next `rows` before it commits and assigns them with its commit. Everything here happens afterwards,
so it never undoes a push. Rows for a function stay in `rows` until the function has returned. If it raises, or the
process is interrupted, it gets them again after the next push. Rows that a caller collects stay there until the next
push, for a caller who was interrupted before the rows reached it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eddy.results.side_rows import Added, Chunks, LateRows
from stairs.errors import SideOutputError

LOG = logging.getLogger(__name__)


class SideOutput:
    """A side output of one runtime.

    schemas   the columns of its rows, by the name of their origin
    choices   the treatment of rows: "keep", "count" or a function, in the same order
    most      upper bound on the rows stored for each name
    host      what has the rows, in messages
    """

    noun, option, error = "rows", "", SideOutputError
    """The noun for the rows, the name of the option and of the methods, and the error for a function that raises."""

    def __init__(
        self, schemas: Mapping[str, pa.Schema], choices: Sequence[Any], most: int, host: str = "runtime"
    ) -> None:
        self.schemas, self.choices, self.most, self.host = dict(schemas), tuple(choices), most, host
        self.rows = LateRows.none(len(self.schemas))

    def take(self) -> dict[str, pa.Table]:
        """Return the stored rows by name (without names that have no rows), and remove them."""
        tables = self._tables(self.rows.stored)
        if tables:
            # This is one assignment. A caller that is interrupted after it finds the rows in `taken`.
            self.rows = self.rows.collected()
        return tables

    def taken(self) -> dict[str, pa.Table] | None:
        """Return the rows that `take` removed since the last push, None if it removed none."""
        return None if self.rows.taken is None else self._tables(self.rows.taken)

    def _tables(self, rows: tuple[Chunks, ...]) -> dict[str, pa.Table]:
        pairs = zip(self.schemas.items(), rows, strict=True)
        return {name: chunks.table(schema) for (name, schema), chunks in pairs if chunks.rows}

    def settle_with(self, added: Mapping[int, Added], left: float, first: Callable[[int], str]) -> None:
        """Handle rows after a push: log the first of a name, call the functions, drop what exceeds the bounds.

        added  the rows of the push, which are in `rows` already
        left   bytes that stored rows may take
        first  returns the message about the first row of a name

        Raises the error of the class if a function raised, after all other work is done.
        """
        for i, batch in added.items():
            if self.rows.counts[i] == batch.n_rows:
                LOG.warning(first(i))
        failures = self._hand_over() if any(self.rows.rows) else []
        self.keep_within(left)
        if failures:
            names = "".join(self._place(name) for name, _ in failures)
            error, rows, call, host = failures[0][1], self.noun, self.option, self.host
            raise self.error(
                f"{names}the function for {rows} raised {type(error).__name__}: {error}. The push has"
                f" committed: do not push its rows again; its results are in {host}.last_push(). The function gets the"
                f" {rows} again after the next push, unless {host}.{call}() returns them before"
            ) from error

    def _place(self, name: str) -> str:
        """Return the beginning of a message about rows of a name."""
        return f"stream {name}: "

    def _pass_on(self, function: Callable[..., object], name: str, table: pa.Table) -> None:
        function(name, table)

    def _hand_over(self) -> list[tuple[str, Exception]]:
        """Pass rows to the functions that take them; return the exceptions by name."""
        failures = []
        for i, (choice, (name, schema)) in enumerate(zip(self.choices, self.schemas.items(), strict=True)):
            if not callable(choice) or not self.rows.rows[i]:
                continue
            try:
                self._pass_on(choice, name, self.rows.stored[i].table(schema))
            except Exception as error:
                failures.append((name, error))
            else:
                self.rows = self.rows.without([i])
        return failures

    def keep_within(self, left: float) -> None:
        """Drop the oldest rows beyond the bounds, and log it, once until rows are collected."""
        before, most, call = self.rows, self.most, self.option
        if before.nbytes <= left and all(kept <= most for kept in before.rows):
            return
        self.rows = before.within(most, left)
        for i, name in enumerate(self.schemas):
            lost = self.rows.dropped[i] - before.dropped[i]
            if lost and before.dropped[i] == before.reported[i]:
                why = f"{call}_rows={most:,} of them" if before.rows[i] > most else "max_bytes allows"
                LOG.warning(
                    f"{self._place(name)}{lost:,} {self.noun} were dropped, the oldest ones, because more than {why}"
                    f" wait for {self.host}.{call}(). Call {call}() more often, raise the limit, set {call}='count' or"
                    f" pass a function. metrics() counts dropped rows as {call}_dropped; this message is repeated only"
                    f" after a call of {call}()"
                )

    def _goes(self, i: int) -> str:
        """Return the destination of the rows of a name."""
        choice = self.choices[i]
        if callable(choice):
            return f"is passed to {getattr(choice, '__qualname__', type(choice).__qualname__)}"
        return f"is stored for {self.host}.{self.option}()" if choice == "keep" else "is only counted"

"""One query of an engine: the control elements that it gets, and the merger of what its versions find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from eddy.queries.changes import CHANGES, How
from eddy.queries.family import Family, Found
from eddy.queries.life import Life, Stop
from eddy.queries.owner import Positions
from eddy.queries.version import Version
from eddy.query.query import Query
from stairs.errors import InputError

if TYPE_CHECKING:
    from eddy.queries.engine import Engine
    from eddy.queries.sources import Push


class RunningQuery(Life):
    """A query that an `Engine` runs; `Engine.start` returns it."""

    def __init__(self, engine: Engine, name: str, version: Version) -> None:
        super().__init__(engine, name, version)
        self._engine = engine
        self._held: list[pa.Table] = []

    def __repr__(self) -> str:
        return f"RunningQuery({self.name!r}, {self.state}, {self.query!r})"

    # Control elements

    def stop(self, how: Stop = "immediate", at: int | None = None) -> None:
        """Stop the query at a position, by default now.

        how   "immediate": no result with a component at or after the position. "drain": all results with a component
              before it, and no others; the query then stops by itself, when no such result can come any more
        at    position of the arrival before which it takes effect; None: the next arrival

        Stops all versions of a change that is under way. A version that waits for its start does not start. Raises
        InputError for a position before one of an earlier element, and for a drain that can never end, because a stream
        has an UNBOUNDED window. Then nothing has changed.
        """
        if how not in ("immediate", "drain"):
            raise InputError(f"stop: how is 'immediate' or 'drain', not {how!r}")
        with self._engine.call():
            self.stop_at(how, self._element(at))

    def change(self, query: Query, how: How = "handover", at: int | None = None) -> None:
        """Replace the query by another one, over the same streams of the engine or others of them.

        how   `eddy.queries.changes` lists the kinds; docs/guide/queries.md says what each guarantees
        at    position of the arrival before which it takes effect; None: the next arrival

        A change during a change replaces the newest version; the older ones stop or drain as the old version does.
        Raises InputError for an unknown kind, a position before one of an earlier element, a query that has stopped and
        a drain that can never end; QueryError for a query that does not fit the streams, or whose results cannot be in
        one table with those of the old one. Then nothing has changed.
        """
        if how not in CHANGES:
            raise InputError(f"change: how is one of {', '.join(map(repr, CHANGES))}, not {how!r}")
        with self._engine.call():
            if not self.live:
                raise InputError(f"query {self.name!r} has stopped; start it again")
            self.change_at(query, how, self._element(at))

    def _element(self, at: int | None) -> int:
        """Return the position of a control element, and note it. Raises InputError for one that cannot be."""
        position = self._engine.checked_position(self.name, at)
        if position < self._last_element:
            raise InputError(
                f"query {self.name!r}: an element at position {self._last_element} was given before; the next one comes"
                " at that position or later"
            )
        return position

    def _reached(self) -> int:
        # Results that are held are given out with the next push.
        return -1 if self._held else self._engine.position

    # Its results

    def push(self, push: Push, found: Mapping[Family, Found], counts: Sequence[int]) -> pa.Table:
        """Return the results of a push, from what the families found in it; `counts`: rows of each stream before it."""
        engine = self._engine

        def note(one: Version) -> None:
            one.note(push, engine.sources, counts)

        for one in self.live:
            note(one)
        self.start_waiting()
        parts: dict[Version, tuple[pa.Table, Positions]] = {}
        due = [
            one for one in self._versions if one.ended is None or (one.ended > push.first and one.ended != one.start)
        ]
        for one in reversed(due):
            owner = engine.owners[one]
            table, rows = owner.results(found[owner.family])
            parts[one] = table, found[owner.family].last[rows]
            # The first result of a new version may decide when an old one ends, so new ones come first here.
            if len(parts[one][1]):
                self.at_result(one, int(parts[one][1][0]), note)
        return self._merged(dict(reversed(parts.items())))

    def _merged(self, parts: Mapping[Version, tuple[pa.Table, Positions]]) -> pa.Table:
        """Return the results of all versions in the order in which they are given out.

        Results of different versions are ordered by the positions of their last components. Those of a version that is
        held wait until the old ones have ended, and then follow theirs.
        """
        waits = {link.new for link in self.successions if link.change.holds}
        held = {link.new for link in self.successions if link.change.holds and link.old.ended is None}
        free = [own for version, own in parts.items() if version not in waits]
        late = [table for version, (table, _) in parts.items() if version in waits]
        out = [pa.concat_tables([table for table, _ in free], promote_options="default")] if free else []
        if len(free) > 1:
            order = np.argsort(np.concatenate([places for _, places in free]), kind="stable")
            out = [out[0].take(pa.array(order))]
        if held:
            self._held += late
        else:
            out += [*self._held, *late]
            self._held = []
            self.successions = [link for link in self.successions if link.old.ended is None]
        if not self.live:
            self._held = []
        return pa.concat_tables(out or [self.query.output_schema.empty_table()], promote_options="default")

"""Random queries with as-of joins, for the oracle and for eddy, and random pushes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa

import eddy
from eddy.fuzz.as_of_oracle import AsOfOracle, OracleAsOf
from eddy.fuzz.branch_oracle import BranchOracle, OracleBranch
from eddy.fuzz.oracle import OracleQuery, OracleStream
from eddy.fuzz.table_oracle import TableBranch, TableInput, TableOracle

COLUMNS = ("a", "b", "t", "v", "p")
WINDOWS = {"rows": eddy.Rows, "range": eddy.Range, "unbounded": lambda _: eddy.Unbounded(), "derived": lambda _: None}
Arrival = tuple[str, dict[str, Any], bool]
"""Stream or table, row, and whether it says that its key has no version from then on."""


def schema_of(draw: Random) -> pa.Schema:
    """Return a schema in which the types of keys and texts vary."""
    a = draw.choice((pa.int64(), pa.int32(), pa.int64()))
    b = draw.choice((pa.string(), pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.large_string()))
    return pa.schema([("a", a), ("b", b), ("t", pa.int64()), ("v", pa.int64()), ("p", draw.choice((pa.string(), b)))])


def _pairs(equalities: Any) -> list[tuple[Any, str, Any]]:
    return [(left, "=", right) for left, right in equalities]


class DrawnAsOf:
    """A query with as-of joins.

    names    the streams, then the tables
    keyed    the input that is a table, "" = none
    deletes  the tables whose rows say what they do; `rejects`: those whose filter rejects rows with v = 0
    """

    def __init__(self, draw: Random, changelog: bool) -> None:
        self.draw, self.changelog = draw, changelog
        self.schemas: dict[str, pa.Schema] = {}
        kinds = draw.choice((("range",), ("range", "unbounded"), ("rows", "range", "unbounded"), ("rows",)))
        core = [self._stream("RST"[k], kinds) for k in range(draw.choice((1, 1, 2, 2, 3)))]
        if len(core) == 1 and draw.random() < 0.5:
            # A single stream without a window: nothing is ever taken back.
            core = [OracleStream("R", "unbounded", 0, "t")]
            windows: list[Any] = [None]
        else:
            windows = [WINDOWS[one.window](one.size) for one in core]
        # In a changelog, the last input of the core or that of a branch may be a table.
        self.table = draw.choice(((), (), ("a",), ("b",))) if changelog and windows != [None] else ()
        equal = [
            ((core[draw.randrange(k)].name, x), (core[k].name, x)) for k in range(1, len(core)) for x in self._key()
        ]
        keyed = core[-1].name if self.table and len(core) > 1 else ""
        streams: list[eddy.Stream] = [
            self._table(one.name)
            if one.name == keyed
            else eddy.Stream(one.name, self.schemas.setdefault(one.name, schema_of(draw)), window, "t")
            for one, window in zip(core, windows, strict=True)
        ]
        branches, shown = [], [one.name for one in core]
        given = []
        if draw.random() < 0.3 and windows != [None] and not keyed:
            how: Any = draw.choice(("left", "semi", "anti"))
            other = self._stream("U", kinds)
            on = (core[0].name, "a"), ("U", "a")
            branches.append(OracleBranch(OracleQuery([other], [on]), how))
            schema = self.schemas.setdefault("U", schema_of(draw))
            stream = eddy.Stream("U", schema, WINDOWS[other.window](other.size), "t")
            if self.table:
                stream, keyed = self._table("U"), "U"
            given.append(eddy.Branch([stream], [f"{core[0].name}.a = U.a"], how))
            shown += ["U"] if how == "left" else []
        # A row that looks a table up is never taken back, and is no row of a branch.
        self.lookups = draw.choice((0, 0.5, 1)) if not branches and (not changelog or windows == [None]) else 0
        self.keyed = keyed
        joins = [self._as_of(f"X{k}", shown) for k in range(draw.choice((1, 1, 2, 3)))]
        self.deletes = {one.table.name for one, _ in joins if draw.random() < 0.4} | ({keyed} - {""})
        self.rejects = {one.table.name for one, _ in joins if draw.random() < 0.2}
        self.timed = any(one.at for one, _ in joins) or any(one.window == "range" for one in core)
        self.lateness, self.watermark = draw.choice((0, 0, 2)), draw.choice(("slowest", "slowest", "fastest"))
        self.idle_after = draw.choice((None, None, 3)) if self.watermark == "slowest" else None
        if not self.timed:
            self.lateness, self.watermark, self.idle_after = 0, "slowest", None
        timing: dict[str, Any] = {
            "lateness": self.lateness, "watermark": self.watermark, "idle_after": self.idle_after,
        }  # fmt: skip
        self.query = eddy.Query(
            streams,
            [f"{a}.{x} = {b}.{y}" for (a, x), (b, y) in equal],
            branches=given,
            as_of=[self._given(one, more) for one, more in joins],
            **timing,
        )
        inner: BranchOracle | TableOracle
        if keyed:
            below = [
                TableBranch(
                    [self._input(one) for one in branch.query.streams], _pairs(branch.query.equalities), branch.how
                )
                for branch in branches
            ]
            inner = TableOracle([self._input(one) for one in core], _pairs(equal), below)
        else:
            inner = BranchOracle(OracleBranch(OracleQuery(core, equal), "core", branches), changelog)
        self.oracle = AsOfOracle(inner, [one for one, _ in joins], **timing)
        self.names = [one.name for one in self.query.streams]

    def _table(self, name: str) -> eddy.Table:
        schema = self.schemas.setdefault(name, schema_of(self.draw))
        return eddy.Table(name, schema, key=list(self.table), ops="column")

    def _input(self, one: OracleStream) -> TableInput:
        """Return an input as the oracle of tables has it."""
        if one.name == self.keyed:
            return TableInput(one.name, tuple(self.table))
        sizes = {"rows": {"rows": one.size}, "range": {"span": one.size}}
        return TableInput(one.name, time="t", **sizes.get(one.window, {}))

    def _key(self) -> tuple[str, ...]:
        return self.draw.choice((("a",), ("a",), ("b",), ("a", "b")))

    def _stream(self, name: str, kinds: tuple[Any, ...]) -> OracleStream:
        kind = self.draw.choice(kinds)
        size = self.draw.randint(1, 5) if kind == "rows" else self.draw.choice((0, 2, 5, 12))
        return OracleStream(name, kind, size, "t")

    def _as_of(self, name: str, shown: list[str]) -> tuple[OracleAsOf, dict[str, Any]]:
        draw = self.draw
        key = {x: (draw.choice(shown), x) for x in self._key()}
        direction = draw.choice(("backward", "backward", "forward", "nearest"))
        tolerance = draw.choice((0, 2, 4)) if direction != "backward" or draw.random() < 0.3 else None
        how = draw.choice(("inner", "left"))
        if draw.random() < self.lookups:
            return OracleAsOf(OracleStream(name, "unbounded"), key, None, how), {}
        at = draw.choice([one for one in shown if one != self.keyed])
        own = OracleAsOf(OracleStream(name, "unbounded", 0, "t"), key, (at, "t"), how, direction, tolerance)
        return own, {"at": None if len(shown) == 1 and draw.random() < 0.5 else f"{at}.t"}

    def _given(self, one: OracleAsOf, more: dict[str, Any]) -> eddy.AsOf:
        name = one.table.name
        filters = {"filter": pa.compute.field("v") > 0} if name in self.rejects else {}
        kind: Any = eddy.Table if one.at is None else eddy.VersionedTable
        given = {
            **filters,
            **({} if one.at is None else {"time": "t"}),
            "ops": "column" if name in self.deletes else None,
        }
        table = kind(name, self.schemas.setdefault(name, schema_of(self.draw)), key=list(one.key), **given)
        on = [f"{stream}.{column} = {name}.{key}" for key, (stream, column) in one.key.items()]
        return eddy.AsOf(table, on, how=one.how, direction=one.direction, tolerance=one.tolerance, **more)

    def pushes(self, most: int = 10) -> Iterator[list[Arrival]]:
        """Yield pushes: rows whose event times rise, now and then not."""
        draw, clock = self.draw, 10
        for _ in range(draw.randint(1, most)):
            arrivals: list[Arrival] = []
            for _ in range(draw.choice((0, 1, 3, 12, 25))):
                clock += draw.choice((0, 1, 0, 0, -1, 1))
                name = draw.choice(self.names)
                table = name in self.oracle.versions or name == self.keyed
                keys = {"a": draw.choice((1, 1, 2, 0, None)), "b": draw.choice(("x", "x", "y", None))}
                if table:
                    keys = {x: (1 if x == "a" else "y") if value is None else value for x, value in keys.items()}
                row = {**keys, "t": clock, "v": draw.randint(0, 3), "p": f"{name} at {clock} {len(arrivals)}"}
                deleted = name in self.deletes and draw.random() < 0.3
                arrivals.append((name, row, deleted))
            yield arrivals

    def batches(self, arrivals: list[Arrival]) -> dict[str, Any]:
        """Return the rows of a push by stream."""
        found: dict[str, Any] = {}
        for name in self.names:
            own = [(row, deleted) for other, row, deleted in arrivals if other == name]
            columns = self.schemas[name]
            if name in self.deletes:
                columns = columns.append(pa.field("op", pa.string()))
                own = [({**row, "op": self.draw.choice(["d", "D"]) if gone else "+U"}, gone) for row, gone in own]
                own = [({**row, "op": "-D" if row["op"] == "D" else row["op"]}, gone) for row, gone in own]
            found[name] = pa.RecordBatch.from_pylist([row for row, _ in own], schema=columns)
        return found

    def known(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Return arrivals as the oracle takes them: what a filter rejects is a delete."""
        return [(name, row, gone or (name in self.rejects and not row["v"])) for name, row, gone in arrivals]

    def wanted(self, rows: list[tuple[int | None, ...]], ids: bool) -> list[str]:
        """Return rows of the oracle as `comparable` returns those of eddy."""
        found, shown = [], [stream.name for stream in self.query.shown]
        for row in rows:
            numbers = dict(zip(self.oracle.names, row, strict=True))
            if ids:
                found.append([numbers[name] for name in shown])
            else:
                parts = [self.oracle.row(name, n) if (n := numbers[name]) is not None else {} for name in shown]
                found.append([part.get(column) for part in parts for column in COLUMNS])
        return sorted(map(str, found))

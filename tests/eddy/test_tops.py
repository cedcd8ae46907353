"""The first rows of groups (`top`) against an oracle: inputs, changes, plans, failures, snapshots in any order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import event, given
from hypothesis import strategies as st

import eddy
from eddy.fuzz.aggregate_oracle import OracleAggregate, grouped
from eddy.fuzz.oracle import OracleClock
from eddy.fuzz.table_oracle import TableInput, TableOracle
from eddy.fuzz.top_oracle import OracleOrder, OracleTop, changes
from eddy.live.engine_file import EngineFile
from jisc.strategies import STRATEGIES
from tests.eddy.live_engines import KEY

NAMES = "RST"
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("a", pa.int64()),
        ("g", pa.string()),
        ("x", pa.float64()),
        ("d", pa.decimal128(20, 2)),
        ("u", pa.uint64()),
        ("c", pa.dictionary(pa.int8(), pa.string())),
        ("t", pa.int64()),
    ]
)
VALUES: dict[str, Sequence[Any]] = {
    "k": (0, 1, 2, 3, 4),
    "a": (1, 1, 2, None),
    "g": ("a", "", "ab", "é", "a text that is longer than eight bytes", "a text that is longer than eight bytez", None),
    "x": (0.5, -0.0, 0.0, -1e300, math.inf, -math.inf, math.nan, None),
    "d": (Decimal("0.10"), Decimal("-7.25"), Decimal("123456789012345678.90"), None),
    "u": (0, 1, 2**64 - 1, None),
    "c": ("red", "green", None),
}
PLANS = ("R S T", "(R S) T", "R (S T)")


class FailingSwitch:
    """A filter of results that accepts all, and raises while it is on."""

    on = False

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Accept all rows."""
        if self.on and len(batch):
            raise ValueError("the switch is on")
        return pa.repeat(True, len(batch))


class DrawnTop:
    """A query with `top` over tables and streams, its oracles, and the answer that its pushes have given.

    grouped   whether rows of groups are ranked
    """

    def __init__(self, draw: st.DrawFn) -> None:
        n = draw(st.sampled_from((1, 1, 2, 2, 3)))
        self.names, self.draw = NAMES[:n], draw
        kinds = [draw(st.sampled_from(("table", "rows", "range", "unbounded", "none"))) for _ in range(n)]
        self.tables = [kind == "table" for kind in kinds]
        timed = "range" in kinds
        time: dict[str, Any] = {"time": "t"} if timed else {}
        inputs: list[eddy.Stream] = []
        oracles = []
        for name, kind in zip(self.names, kinds, strict=True):
            size = draw(st.integers(1, 5))
            if kind == "table":
                inputs.append(eddy.Table(name, SCHEMA, key="k", ops="column"))
                oracles.append(TableInput(name, ("k",)))
                continue
            window = {"rows": eddy.Rows(size), "range": eddy.Range(size), "unbounded": eddy.Unbounded()}.get(kind)
            inputs.append(eddy.Stream(name, SCHEMA, window=window, **time))
            rows, span = (size if kind == "rows" else None), (size if kind == "range" else None)
            oracles.append(TableInput(name, rows=rows, span=span, time="t" if timed else ""))
        on = [f"{a}.a = {b}.a" for a, b in zip(self.names, self.names[1:], strict=False)]
        predicates = [((a, "a"), "=", (b, "a")) for a, b in zip(self.names, self.names[1:], strict=False)]
        expiry = draw(st.sampled_from(("retract", "final")))
        self.oracle = TableOracle(oracles, predicates, expiry=expiry)
        self.clock = OracleClock(dict.fromkeys(self.names, 0), "fastest")
        self.timed, self.now = timed, 0
        columns = [f"{name}.{column}" for name in self.names for column in VALUES]
        self.grouped = draw(st.sampled_from((False, False, False, True)))
        self.switch = FailingSwitch()
        more: dict[str, Any] = {"expiry": expiry, **({"watermark": "fastest"} if timed else {})}
        if draw(st.booleans()):
            more["where"] = eddy.Predicate(self.switch, ["R.a"])
        self.shown = [*columns, *(f"{name}.t" for name in self.names)]
        if self.grouped:
            groupable = [column for column in columns if column[2:] in "gxdc"]
            self.keys = draw(st.lists(st.sampled_from(groupable), max_size=2, unique=True))
            more |= {"group_by": self.keys, "aggregates": {"n": eddy.agg.count(), "least": eddy.agg.min("R.u")}}
            columns = self.shown = [*self.keys, "n", "least"]
        by = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
        order = draw(st.lists(st.sampled_from(columns), max_size=3, unique=True))
        terms = [OracleOrder(column, draw(st.booleans()), draw(st.booleans())) for column in order]
        text = [
            term.column + draw(st.sampled_from((" desc", " DESC"))) * term.descending
            + (" nulls first" if term.nulls_first else draw(st.sampled_from(("", " nulls last"))))
            for term in terms
        ]  # fmt: skip
        if self.grouped:
            terms += [OracleOrder(column) for column in self.keys if column not in order]
        self.top = OracleTop(draw(st.sampled_from((1, 1, 2, 3, 50))), tuple(by), tuple(terms))
        self.rank = draw(st.sampled_from((None, None, "rank")))
        self.paired = self.top.n == 1 or self.rank is not None
        if draw(st.booleans()):
            self.shown = draw(st.lists(st.sampled_from(self.shown), min_size=1, max_size=3, unique=True))
            more["select"] = self.shown
        upsert = self.paired and set(by) <= set(self.shown) and draw(st.booleans())
        self.output: Any = "upsert" if upsert else "changelog"
        self.query = eddy.Query(inputs, on, top=eddy.Top(self.top.n, by, text, self.rank), **more)
        strategy: Any = draw(st.sampled_from(sorted(STRATEGIES)))
        plan = draw(st.sampled_from(PLANS)) if n == 3 and strategy != "xjoin" else None
        options: dict[str, Any] = {"renumber_at": 30} if draw(st.booleans()) else {}
        self.runtime = eddy.Runtime(self.query, plan, strategy=strategy, output=self.output, **options)
        self.given = Counter[tuple[str, ...]]()
        self.by_key = dict[tuple[str, ...], tuple[str, ...]]()
        self.answer: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        self.rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}

    def arrivals(self) -> list[tuple[str, dict[str, Any]]]:
        """Return rows and changes."""
        arrivals = []
        for drawn in self.draw(st.lists(st.binary(min_size=len(VALUES) + 2, max_size=len(VALUES) + 2), max_size=9)):
            name = self.names[drawn[0] % len(self.names)]
            row = {c: pool[v % len(pool)] for (c, pool), v in zip(VALUES.items(), drawn[1:], strict=False)}
            self.now += drawn[-1] % 3
            row["t"] = max(self.now - (drawn[-1] >> 6), 0)
            if self.tables[self.names.index(name)]:
                row["op"] = "d" if drawn[-1] % 5 == 0 else "u"
            arrivals.append((name, row))
        return arrivals

    def push(self, fails: bool = False) -> None:
        """Push rows, and compare the changes and the answer."""
        arrivals = self.arrivals()
        batches: dict[str, list[dict[str, Any]]] = {}
        for name, row in arrivals:
            batches.setdefault(name, []).append(row)
        order = [self.names.index(name) for name, _ in arrivals]
        atomic = any(self.tables) and self.draw(st.booleans())
        if fails:
            before, self.switch.on = self.runtime.snapshot(), True
            try:
                self.runtime.push(batches, order, atomic=atomic)
            except eddy.InputError:
                event("a push failed")
                self.runtime.check()
                assert self.runtime.snapshot() == before
            else:
                # No result had to be judged; the rows have arrived.
                self.follow(arrivals, atomic, self.runtime.last_push().results)  # type: ignore[union-attr]
                return
            finally:
                self.switch.on = False
        self.follow(arrivals, atomic, self.runtime.push(batches, order, atomic=atomic))

    def follow(self, arrivals: list[tuple[str, dict[str, Any]]], atomic: bool, table: pa.Table) -> None:
        """Take rows in the oracle, and compare the changes that the push has given."""
        for name, row in self._net(arrivals) if atomic else arrivals:
            is_table = self.tables[self.names.index(name)]
            if is_table or not self.timed or not self.clock.tick(name, row["t"]):
                self.oracle.arrive(name, row, row.get("op") == "d", self.clock.now if self.timed else None)
        self.runtime.check()
        rows = self._rows()
        answer = self.top.of(rows)
        wanted = Counter[tuple[str, ...]]()
        for old, new, place in changes(self.answer, answer, self.paired):
            before = None if old is None else self._text(self.rows[old], place)
            after = None if new is None else self._text(rows[new], place)
            if before is None and after is not None:
                wanted["+I", *after] += 1
            elif after is None and before is not None:
                wanted["-D", *before] += 1
            elif before is not None and after is not None and not self._same(before, after):
                wanted["+U", *after] += 1
                if self.output == "changelog":
                    wanted["-U", *before] += 1
        names = [*self.shown, *([] if self.rank is None else [self.rank])]
        given = [(change["op"], *(_shown(change[name]) for name in names)) for change in table.to_pylist()]
        assert Counter(given) == wanted
        ops = [change[0] for change in given]
        assert ops == sorted(ops, key=["-D", "-U", "+U", "+I"].index) or "-U" in ops
        self.answer, self.rows = answer, rows

    @staticmethod
    def _same(before: tuple[str, ...], after: tuple[str, ...]) -> bool:
        """Return whether a pair is left out; NaN is not equal to itself there."""
        return before == after and "nan" not in before

    def _rows(self) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        """Return the rows that `top` reads, by what decides between rows of equal order."""
        joined = {}
        for result in self.oracle.answer:
            rows = [self.oracle.row(name, number) for name, number in zip(self.names, result, strict=True)]
            values = zip(self.names, rows, strict=True)
            joined[result] = {f"{name}.{column}": row[column] for name, row in values for column in SCHEMA.names}
        if not self.grouped:
            return joined
        if not self.runtime.pushes:
            return {}
        functions = [OracleAggregate("count"), OracleAggregate("min", "R.u")]
        answer = {}
        for key, aggregates in grouped(joined.values(), self.keys, functions).items():
            answer[(*map(repr, key), *map(repr, aggregates))] = dict(
                zip([*self.keys, "n", "least"], (*key, *aggregates), strict=True)
            )
        for row in answer.values():
            for column in self.keys:
                if row[column] == "NaN":
                    row[column] = math.nan
        return answer

    def _net(self, arrivals: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
        """Return what arrives of an atomic push: the last change of each key, in order, then the rows."""
        last = dict[tuple[str, Any], tuple[str, dict[str, Any]]]()
        rows = []
        for name, row in arrivals:
            if not self.tables[self.names.index(name)]:
                rows.append((name, row))
                continue
            last.pop((name, row["k"]), None)
            last[name, row["k"]] = name, row
        return [*last.values(), *rows]

    def _text(self, row: Mapping[str, Any], place: int) -> tuple[str, ...]:
        shown = [_shown(row[name]) for name in self.shown]
        return (*shown, *([] if self.rank is None else [_shown(place + 1)]))

    def restore(self) -> None:
        """Go on with a runtime that was restored from a snapshot."""
        saved = self.runtime.snapshot()
        self.runtime = eddy.Runtime.restore(saved, self.query)
        self.runtime.check()
        assert self.runtime.snapshot() == saved

    def hand_over(self, path: Path) -> None:
        """Go on with a runtime from a live file."""
        with EngineFile(path, KEY) as live:
            live.save(self.runtime, b"token")
        live = EngineFile(path, KEY)
        live.__enter__()
        runtime = live.load(b"token", self.query)
        assert runtime is not None
        self.runtime, self.live = runtime, live
        self.runtime.check()


def _shown(value: Any) -> str:
    return repr(value + 0.0) if isinstance(value, float) else repr(value)


@given(st.data())
def test_changes_are_those_of_the_oracle(data: st.DataObject) -> None:
    play = data.draw(drawn())
    for _ in range(data.draw(st.integers(1, 7))):
        step = data.draw(st.sampled_from(("push", "push", "push", "fail", "restore", "transition", "file")))
        match step:
            case "push" | "fail":
                play.push(fails=step == "fail" and play.query.where is not None)
            case "restore":
                play.restore()
            case "transition":
                if len(play.names) == 3 and STRATEGIES[play.runtime.strategy].changes:
                    play.runtime.transition(data.draw(st.sampled_from(PLANS)))
            case "file":
                with TemporaryDirectory() as folder:
                    path = Path(folder, "live")
                    play.hand_over(path)
                    play.push()
                    play.restore()
                    play.live.__exit__(None, None, None)


@st.composite
def drawn(draw: st.DrawFn) -> DrawnTop:
    return DrawnTop(draw)

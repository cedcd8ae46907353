"""Every refusal of ingestion, once for a stream and once for a table: the message has the right noun and the name.

The cases are complete: each place in `eddy/ingest` that refuses a push is reached, for both kinds of input where both
can reach it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
import eddy.ingest
from stairs.modules import RENUMBER_AT
from stairs.payload import Payload

NOUNS = "stream", "table"
TEXTS, NUMBERS = pa.string(), pa.int64()
DAMAGED = pa.Array.from_buffers(TEXTS, 2, [None, pa.py_buffer(np.array([0, 9, 1], np.int32)), pa.py_buffer(b"a")])
"""Two texts of which the first one ends beyond the buffer."""
TWO = pa.array([1, 2])
INGEST = Path(eddy.ingest.__file__).parent


class Unreadable:
    """Rows, or a column, of another library that cannot give them."""

    def __arrow_c_stream__(self, requested: object = None) -> object:
        raise ValueError("the file is gone")


def make_runtime(noun: str, kind: pa.DataType = NUMBERS, other: pa.DataType = NUMBERS, **options: Any) -> eddy.Runtime:
    """Return a runtime of T, a stream or a table, and the stream S.

    kind, other   the types of T.x and S.x
    options       of T, and `on`, the predicates
    """
    on = options.pop("on", ["T.id = S.id"])
    schema = pa.schema([("id", NUMBERS), ("x", kind)])
    make: Any = eddy.Stream if noun == "stream" else eddy.Table
    keyed = {} if noun == "stream" else {"key": "id"}
    streams = [make("T", schema, **keyed, **options), eddy.Stream("S", pa.schema([("id", NUMBERS), ("x", other)]))]
    return eddy.Runtime(eddy.Query(streams, on), output="changelog")


def chunks() -> pa.Table:
    """Return two chunks with more values than the index of one dictionary can say."""
    kind = pa.dictionary(pa.int8(), TEXTS)
    parts = [pa.array([f"{first + n}" for n in range(100)]).dictionary_encode().cast(kind) for first in (0, 100)]
    return pa.table({"id": pa.array(range(200)), "x": pa.chunked_array(parts)})


LATER = datetime(9999, 1, 1)
BOTH: dict[str, tuple[dict[str, Any], Any]] = {
    "a column is missing": ({}, pa.table({"id": [1]})),
    "a column occurs twice": ({}, pa.table([[1], [1], [1]], ["id", "x", "x"])),
    "a column of a frame is missing": ({}, pd.DataFrame({"id": [1]})),
    "a column of a dict is missing": ({}, {"id": [1]}),
    "a column of a row is missing": ({}, [{"id": 1}]),
    "rows that cannot be read": ({}, Unreadable()),
    "a column that cannot be read": ({}, {"id": [1], "x": Unreadable()}),
    "no rows": ({}, 7),
    "a text for a column": ({}, {"id": [1], "x": "1"}),
    "columns of different lengths": ({}, {"id": [1], "x": [1, 2]}),
    "a value of another class": ({}, [{"id": 1, "x": "1"}]),
    "another type": ({}, pa.table({"id": [1], "x": ["1"]})),
    "a value that does not fit": ({"kind": pa.int8()}, pa.table({"id": [1], "x": [300]})),
    "too much for one array": ({"kind": pa.dictionary(pa.int8(), TEXTS)}, chunks()),
    "a batch that is no valid Arrow": ({"kind": TEXTS}, pa.record_batch([TWO, DAMAGED], ["id", "x"])),
    "a column that is no valid Arrow": ({"kind": TEXTS}, {"id": [1, 2], "x": DAMAGED}),
    "a value beyond the common type of a comparison": (
        {"kind": pa.timestamp("s"), "other": pa.timestamp("ns"), "on": ["T.id = S.id", "T.x < S.x"]},
        [{"id": 1, "x": LATER}],
    ),
    "a value beyond those that are compared": ({"on": ["T.id = S.id", "T.x < S.x"]}, [{"id": 1, "x": 1 << 62}]),
    "a key that cannot be computed": ({"kind": TEXTS, "on": ["CAST(T.x AS BIGINT) = S.x"]}, [{"id": 1, "x": "a"}]),
    "a filter without a value": ({"filter": pc.scalar(1) / pc.field("x") > 0}, [{"id": 1, "x": 0}]),
    "a payload that decodes to too much": ({"kind": pa.dictionary(pa.int8(), TEXTS)}, [{"id": 1, "x": "payload"}]),
}
"""For both kinds of input: options of the runtime, and the rows of T."""

OPS: dict[str, tuple[str | None, Any]] = {
    "no key": (None, [{"id": None, "x": 1}]),
    "no key in a row with operations": ("column", [{"op": "d", "id": None}]),
    "a delete with operations, without its key": ("column", [{"op": "d"}]),
    "an unknown operation": ("column", [{"op": "x", "id": 1, "x": 1}]),
    "no operation": ("column", pa.table({"id": [1], "x": [1]})),
    "operations that are no valid Arrow": (
        "column",
        pa.record_batch([TWO, TWO, DAMAGED], ["id", "x", "op"]),
    ),
    "an unknown operation of an envelope": ("debezium", [{"op": "x"}]),
    "a truncation": ("debezium", [{"op": "t"}]),
    "an envelope without a version": ("debezium", [{"op": "c", "after": {"id": 1, "x": 1}}]),
    "a position in a file without a number": ("debezium", [{"op": "d", "key": {"id": 1}, "source": {"pos": 4}}]),
    "an upsert without a row": ("debezium", [{"op": "c"}]),
    "a delete without a key": ("debezium", [{"op": "d"}]),
    "no envelope": ("debezium", [7]),
    "no envelopes": ("debezium", 7),
    "columns that occur twice": ("debezium", pa.table([["c"], ["d"]], ["op", "op"])),
    "rows without envelopes": ("debezium", [{"id": 1}]),
    "a dict that is one envelope": ("debezium", {"op": "d", "key": {"id": 1}}),
    "lengths": ("debezium", {"op": ["c"], "after": []}),
    "after is no struct": ("debezium", pa.table({"op": ["c"], "after": [1]})),
    "after is no dict": ("debezium", [{"op": "c", "after": 7}]),
    "after lacks a column": ("debezium", [{"op": "c", "after": {"id": 1}}]),
    "after, of Arrow, lacks a column": ("debezium", pa.table({"op": ["c"], "after": [{"id": 1}]})),
    "after has another type": ("debezium", [{"op": "c", "after": {"id": "1", "x": 1}}]),
    "envelopes that cannot be read": ("debezium", Unreadable()),
    "operations of envelopes that are no valid Arrow": ("debezium", pa.record_batch([DAMAGED], ["op"])),
}
"""For tables: how changes say what they do, and the rows of T."""


def push_timed(kind: pa.DataType, value: Any) -> eddy.Runtime:
    schemas = pa.schema([("id", NUMBERS), ("x", kind)]), pa.schema([("id", NUMBERS), ("x", pa.timestamp("ns"))])
    if kind == NUMBERS:
        schemas = schemas[0], schemas[0]
    window = eddy.Range(9 if kind == NUMBERS else pd.Timedelta(9, "s").to_pytimedelta())
    streams = [eddy.Stream(name, schema, time="x", window=window) for name, schema in zip("TS", schemas, strict=True)]
    runtime = eddy.Runtime(eddy.Query(streams, ["T.id = S.id"]))
    runtime.push({"T": [{"id": 1, "x": value}]})
    return runtime


def push_untimed() -> None:
    runtime = make_runtime("stream")
    runtime.push({name: [{"id": 1, "x": 1}] for name in "TS"})


STREAMS: dict[str, Callable[[], object]] = {
    "no event time": lambda: push_timed(NUMBERS, None),
    "an event time beyond the range": lambda: push_timed(NUMBERS, 1 << 62),
    "an event time beyond the common type": lambda: push_timed(pa.timestamp("s"), LATER),
    "no time column": push_untimed,
}
"""For streams, which alone have event times."""

ORDERS: dict[str, Any] = {
    "lists": [[0], [0, 0]],
    "a text": "0",
    "fractions": [0.0],
    "too few": [],
    "a number of no input": [7],
    "a large number": [700],
    "a negative number": [-1],
    "another input": [1],
}
"""Orders of arrival that do not fit one row of T."""


def push_order(noun: str, order: Any) -> None:
    make_runtime(noun).push({"T": [{"id": 1, "x": 1}]}, order)


def clocked(noun: str) -> eddy.Runtime:
    """Return a runtime of T, a stream with a window or a table, and a stream with a window."""
    make: Any = eddy.Stream if noun == "stream" else eddy.Table
    options = {"time": "x", "window": eddy.Range(9)} if noun == "stream" else {"key": "id"}
    schema = pa.schema([("id", NUMBERS), ("x", NUMBERS)])
    streams = [make("T", schema, **options), eddy.Stream("S", schema, time="x", window=eddy.Range(9))]
    return eddy.Runtime(eddy.Query(streams, ["T.id = S.id"]), output="changelog")


def push_twice(runtime: eddy.Runtime) -> None:
    """Push two watermarks, the second below the first."""
    for watermark in (5, 4):
        runtime.push({}, watermark=watermark)


NAMELESS: dict[str, Callable[[str], object]] = {
    "no mapping": lambda noun: make_runtime(noun).push([{"id": 1, "x": 1}]),  # type: ignore[arg-type]
    "an unknown name": lambda noun: make_runtime(noun).push({"t": [{"id": 1, "x": 1}]}),
    "a watermark that is no number": lambda noun: clocked(noun).push({}, watermark="1"),  # type: ignore[arg-type]
    "a watermark beyond the range": lambda noun: clocked(noun).push({}, watermark=1 << 62),
    "a watermark below the one before": lambda noun: push_twice(clocked(noun)),
    "a watermark without a window": lambda noun: make_runtime(noun).push({}, watermark=1),
    **{f"order: {what}": lambda noun, order=order: push_order(noun, order) for what, order in ORDERS.items()},  # type: ignore[misc]
}
"""Refusals of a whole push."""


def refusal(push: Callable[[], object]) -> tuple[str, tuple[str, int] | None]:
    """Return the message of a push that is refused, and the place in `eddy/ingest` that refused it: file, line."""
    with pytest.raises(eddy.InputError) as caught:
        push()
    places = [
        (Path(entry.path).name, entry.lineno + 1) for entry in caught.traceback if Path(entry.path).parent == INGEST
    ]
    last = caught.traceback[-1]
    return str(caught.value), places[-1] if Path(last.path).parent == INGEST else None


def push_rows(noun: str, what: str) -> None:
    options, rows = BOTH[what]
    make_runtime(noun, **options).push({"T": rows})


def push_changes(what: str) -> None:
    ops, rows = OPS[what]
    versions = {"an envelope without a version": "lsn", "a position in a file without a number": "pos"}
    version = versions.get(what)
    make_runtime("table", ops=ops, version=version).push({"T": rows})


def check(message: str, noun: str, named: bool = True) -> None:
    """Assert that a message names T with its noun, at its beginning if `named`, and with the other noun nowhere."""
    other = next(word for word in NOUNS if word != noun)
    assert not named or message.startswith(f"{noun} T"), message
    assert f"{other} T" not in message, message
    assert f"{other} 'T'" not in message, message
    assert noun == "stream" or "this stream" not in message, message


@pytest.fixture(autouse=True)
def long_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload column with the value "payload" is too long to decode; the true limit is 2 GiB."""
    real = Payload.append_log

    def append_log(self: Payload, i: int, k: int, column: pa.Array, first: int) -> None:
        if column.to_pylist() == ["payload"]:
            raise pa.ArrowCapacityError("too long")
        real(self, i, k, column, first)

    monkeypatch.setattr(Payload, "append_log", append_log)


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize("what", BOTH)
def test_rows_are_refused_by_the_noun_and_name_of_their_input(what: str, noun: str) -> None:
    check(refusal(lambda: push_rows(noun, what))[0], noun)


@pytest.mark.parametrize("what", OPS)
def test_changes_are_refused_by_the_name_of_their_table(what: str) -> None:
    check(refusal(lambda: push_changes(what))[0], "table")


@pytest.mark.parametrize("what", STREAMS)
def test_event_times_are_refused_by_the_name_of_their_stream(what: str) -> None:
    check(refusal(STREAMS[what])[0], "stream")


@pytest.mark.parametrize("noun", NOUNS)
@pytest.mark.parametrize("what", NAMELESS)
def test_a_push_is_refused_with_no_wrong_noun(what: str, noun: str) -> None:
    check(refusal(lambda: NAMELESS[what](noun))[0], noun, named=False)


@pytest.mark.parametrize(
    ("noun", "message"),
    [
        ("stream", "there is no stream 't' (the nearest is T); the streams are T, S"),
        ("table", "there is no table or stream 't' (the nearest is T); the tables are T, the streams are S"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(noun: str, message: str) -> None:
    assert refusal(lambda: make_runtime(noun).push({"t": []}))[0] == message


def refusing_lines() -> dict[tuple[str, int], tuple[str, int]]:
    """Return the file and first line of each statement in `eddy/ingest` that raises InputError, by each line of it."""
    statements: dict[tuple[str, int], tuple[str, int]] = {}
    for path in sorted(INGEST.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                made = node.exc if isinstance(node, ast.Raise) else None
                if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
                    continue
                if made.func.id in ("InputError", "_beyond"):
                    assert node.end_lineno is not None
                    lines = range(node.lineno, node.end_lineno + 1)
                    statements |= {(path.name, line): (path.name, node.lineno) for line in lines}
    return statements


def test_each_refusal_of_ingestion_has_a_case() -> None:
    lines = refusing_lines()
    of_both = {
        noun: {refusal(lambda noun=noun, what=what: push_rows(noun, what))[1] for what in BOTH} for noun in NOUNS
    }  # type: ignore[misc]
    assert of_both["stream"] == of_both["table"]
    pushes = [STREAMS[what] for what in STREAMS]
    pushes += [lambda what=what: push_changes(what) for what in OPS]  # type: ignore[misc]
    pushes += [lambda what=what: NAMELESS[what]("stream") for what in NAMELESS]  # type: ignore[misc]
    reached = {refusal(push)[1] for push in pushes} | of_both["stream"]
    assert sorted(set(lines.values()) - {lines[place] for place in reached if place is not None}) == []


@pytest.mark.parametrize(("noun", "remedy"), [("stream", "use a smaller window"), ("table", "divide its keys")])
def test_too_many_rows_are_refused_with_a_remedy_that_their_input_has(noun: str, remedy: str) -> None:
    modules = make_runtime(noun)._pipeline.join.modules
    with pytest.raises(eddy.CapacityError, match=f"^{noun} T: .*; {remedy}"):
        modules.begin([RENUMBER_AT + 1, 0])
    modules.check()

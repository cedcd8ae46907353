"""Snapshots of many kinds of runtimes, altered and sealed again with the right digest.

    python -m tests.eddy.forged_snapshots 0 20000      alterations 0 to 19999, some minutes

Each must be refused with SnapshotError, or restored to a runtime whose check passes and that accepts more pushes.
"""

from __future__ import annotations

import copy
import faulthandler
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import eddy
from eddy import (
    AsOf,
    Hopping,
    Query,
    Range,
    Rows,
    Runtime,
    Session,
    SnapshotError,
    Stream,
    Unbounded,
    VersionedTable,
    agg,
)
from eddy.storage.arrow_bytes import validate
from eddy.storage.file_kind import SNAPSHOT, FileKind
from eddy.storage.seal import DIGEST_BYTES
from tests.eddy.opened_files import closed, opened, sealed

DICTIONARY = pa.dictionary(pa.int16(), pa.string())
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.int64()),
        ("l", pa.list_(pa.struct([("x", pa.string()), ("y", DICTIONARY)]))),
        ("e", DICTIONARY),
        ("b", pa.bool_()),
        ("w", pa.map_(pa.large_string(), pa.float32())),
    ]
)
PUSHES = 6
LARGE = tuple(sign * (1 << bits) + more for bits in (31, 61, 63) for sign in (1, -1) for more in (0, -1))
NUMBERS = (0, 1, -1, 2, 7, 1 << 15, *LARGE)
NO_NUMBERS = (0.5, 1e300, -0.0, True, False, None, "", "x", "R", "R S T", "((((R", "\ud800", [], {}, [[]])
VALUES: tuple[Any, ...] = (*NUMBERS, *NO_NUMBERS)


def rows(stream: int, step: int, n: int = 12) -> pa.RecordBatch:
    """Return rows with keys of every type, payload of every layout, and some nulls."""
    rng, start = random.Random(100 * stream + step), 10 * step
    keys = [rng.randrange(5) for _ in range(n)]
    values = [f"text {k} {'long ' * k}" if rng.random() < 0.9 else None for k in keys]
    columns = [
        keys,
        [k % 2 if rng.random() < 0.9 else None for k in keys],
        values,
        [Decimal(k) / 4 for k in keys],
        [max(0, start + k - rng.randrange(9)) for k in range(n)],
        [[{"x": text, "y": text}] * (k % 3) for k, text in zip(keys, values, strict=True)],
        values,
        [k % 2 == 0 for k in keys],
        [None if text is None else [(text, k), ("y", None)] for k, text in zip(keys, values, strict=True)],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def query(
    windows: tuple[Any, ...], predicates: list[str], select: list[str] | None = None, **options: Any
) -> Callable[[], Query]:
    """Return a function that makes a query over one to three streams of SCHEMA."""
    streams = [Stream(name, SCHEMA, window=window, time="t") for name, window in zip("RST", windows, strict=False)]
    return lambda: Query(streams, predicates, select=select, **options)


GROUPS: dict[str, Any] = {
    "group_by": ["R.s", "R.b"],
    "aggregates": {
        "least": agg.min("R.d"),
        "last": agg.last("R.e", by="R.k"),
        "texts": agg.count_distinct("R.s"),
        "wide": agg.max(pc.field("R.d").cast(pa.decimal128(30, 2))),
        "mean": agg.avg(pc.field("R.n").cast(pa.float64()) / 3),
        "total": agg.sum("R.d"),
    },
}
VERSIONS = AsOf(VersionedTable("V", SCHEMA, key=["k", "b"], time="t"), ["R.k = V.k", "R.b = V.b"])
TABLE = eddy.Table("V", SCHEMA, key="k")
STAR = ["R.k = S.k", "S.k = T.k"]
WORLDS: dict[str, tuple[Callable[[], Query], dict[str, Any], bool]] = {
    "rows": (query((Rows(9), Rows(9)), ["R.k = S.k"]), {}, False),
    "texts": (query((Rows(9), Range(20), Unbounded()), ["R.s = S.s", "S.s = T.s"], lateness=4), {}, False),
    "two words": (query((Range(15),) * 3, ["(R.k, R.s) = (S.k, S.s)", "S.n = T.n"]), {"store": ["R S"]}, False),
    "decimals": (query((Rows(20),) * 3, ["R.d = S.d", "S.d = T.d"]), {"strategy": "jisc", "background": 1}, False),
    "cyclic": (query((Range(30),) * 3, ["R.k = S.k", "S.s = T.s", "T.n = R.n"]), {"strategy": "stairs"}, False),
    "parallel": (query((Range(12),) * 3, STAR, ["R.k", "T.s"]), {"strategy": "parallel-track"}, False),
    "changelog": (query((Rows(7), Range(12), Rows(9)), STAR), {"output": "changelog"}, False),
    "given": (query((Range(12),) * 3, STAR), {"output": "changelog", "strategy": "moving-state"}, True),
    "counts": (query((Range(12),) * 2, ["(R.n, R.s) = (S.n, S.s)"], lateness=9), {"count_only": True}, False),
    "where": (query((Unbounded(), Rows(5)), ["R.s = S.s"], where=pc.field("R.k").isin([1, 2, 3])), {}, False),
    "eddy": (query((Rows(9),) * 3, ["R.k = S.k", "S.n = T.n"]), {"strategy": "cacq", "ids_only": True}, False),
    "groups": (query((Rows(9), Range(20)), ["R.k = S.k"], **GROUPS), {"output": "changelog"}, False),
    "panes": (query((Range(12),) * 2, ["R.k = S.k"], group_window=Hopping(20, 8), **GROUPS), {}, False),
    "sessions": (query((Range(12),), [], lateness=3, group_window=Session(4), **GROUPS), {}, False),
    "end": (query((Rows(9), Rows(9)), ["R.k = S.k"], **GROUPS), {"bounded": True}, False),
    "first rows": (
        query(
            (Rows(9), Range(20)), ["R.k = S.k"], ["R.l", "S.w"], top=eddy.Top(2, ["R.s", "S.b"], ["R.e desc", "S.d"])
        ),
        {"output": "changelog"},
        False,
    ),
    "kept": (query((Unbounded(),) * 2, ["R.k = S.k"], top=eddy.Top(2, "R.s", "R.d")), {"output": "changelog"}, False),
    "first groups": (
        query((Rows(9), Range(20)), ["R.k = S.k"], top=eddy.Top(2, "R.b", "total desc", "place"), **GROUPS),
        {"output": "upsert"},
        False,
    ),
    "as of": (query((Range(12),), [], as_of=[VERSIONS]), {}, False),
    "as of, given": (
        query((None,), [], as_of=[replace(VERSIONS, how="left", direction="nearest", tolerance=30)]),
        {"output": "changelog"},
        True,
    ),
    "looked up": (query((None,), [], ["R.s", "V.l"], as_of=[AsOf(TABLE, ["R.k = V.k"])]), {}, False),
    "answers": (
        lambda: Query(
            [eddy.Table("D", query((Rows(9), Range(20)), ["R.k = S.k"], **GROUPS)())], aggregates={"n": agg.count()}
        ),
        {"output": "changelog"},
        False,
    ),
    "branches of tables": (
        lambda: Query(
            [TABLE],
            branches=[
                eddy.Branch([Stream("S", SCHEMA, window=Rows(9))], ["V.s = S.s"], "left"),
                eddy.Branch([replace(TABLE, name="W", version="t", tombstones=15)], ["V.b = W.b"], "anti"),
            ],
        ),
        {"output": "changelog"},
        False,
    ),
    "bounded": (query((Range(12),) * 3, STAR), {"max_bytes": 1 << 24, "decide_every": 7}, False),
}


def push(runtime: Runtime, step: int, given: bool) -> None:
    """Push the rows of a step, in a random order or by event time."""
    names = [name for name in runtime._pipeline.names if "." not in name]
    batches = {name: rows(k, step) for k, name in enumerate(names)}
    if given:
        runtime.push(batches, watermark=10 * step)
    elif step % 2 or runtime.derived:
        runtime.push(batches)
    else:
        runtime.push(batches, order=np.random.default_rng(step).permutation(np.repeat(np.arange(len(names)), 12)))


@cache
def saved(world: str) -> bytes:
    """Return the snapshot of a used runtime, with scheduled transitions if its strategy can change its plan."""
    make, options, given = WORLDS[world]
    runtime = Runtime(make(), **options)
    whole = len(runtime.query.streams) == 3 and not runtime.query.branches
    for step in range(PUSHES):
        push(runtime, step, given)
        if step == PUSHES - 2 and whole:
            runtime.transition("R (S T)" if world != "cyclic" else "(R T) S")
    if whole:
        runtime.transition("(R S) T", at=runtime.position + 5)
    return runtime.snapshot()


def alter(data: bytes, rng: random.Random, kind: FileKind = SNAPSHOT) -> bytes:
    """Return a snapshot with one to three things altered, sealed again."""
    values, contents = opened(data, kind)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        what = rng.random()
        if what < 0.35:
            alter_json(values if rng.random() < 0.2 else values["header"], rng)
        elif what < 0.9:
            alter_section(contents, rng)
        else:
            alter_names(contents, rng)
    forged = closed(values, contents, kind)
    if rng.random() < 0.1:
        at = rng.randrange(8, len(forged) - DIGEST_BYTES)
        forged = sealed(forged[:at] + some_bytes(rng, 4) + forged[at + rng.choice((0, 4, 4, 4)) :])
    return forged


def alter_json(header: dict[str, Any], rng: random.Random) -> None:
    """Replace, remove, duplicate or add a nested value of the header."""
    # The options and counts are few compared with the query, which is compared as a whole.
    parts = [header, *(part for part in header.values() if isinstance(part, dict | list) and part)]
    at: Any = rng.choice(parts)
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.85:
            at = at[key]
            continue
        break
    what, value = rng.random(), at[key]
    if what < 0.1:
        del at[key]
    elif what < 0.2:
        if isinstance(at, list):
            at.insert(key, copy.deepcopy(rng.choice([value, *VALUES])))
        else:
            at[rng.choice(("x", "", "rows", "sections"))] = copy.deepcopy(value)
    elif what < 0.6 and isinstance(value, int):
        at[key] = value + rng.choice((-1, 1, 2, 1 << 31, -(1 << 31), 1 << 61))
    elif what < 0.65:
        at[key] = json.loads("[" * 200 + "]" * 200)
    else:
        at[key] = copy.deepcopy(rng.choice(VALUES))


def some_bytes(rng: random.Random, n: int) -> bytes:
    return rng.choice((bytes(n), b"\xff" * n, rng.randbytes(n)))


def alter_section(contents: dict[str, bytes], rng: random.Random) -> None:
    """Alter the numbers, the bytes or the length of a section."""
    name = rng.choice(sorted(contents))
    content = bytearray(contents[name])
    what = rng.random()
    if not content or what < 0.08:
        content += some_bytes(rng, rng.choice((1, 4, 8, 32)))
    elif what < 0.2:
        cut = rng.choice((1, 4, 8, len(content)))
        del content[rng.randrange(len(content)) :][:cut]
    elif what < 0.5:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    else:
        widths = {"payload": (4, 4, 8), "late": (4, 4, 8), "class": (4,) if "stream" in name else (8,)}
        width = rng.choice(next((sizes for word, sizes in widths.items() if word in name), (8,)))
        slots = len(content) // width
        if slots:
            at = rng.randrange(slots) * width
            was = int.from_bytes(content[at : at + width], "little", signed=True)
            number = rng.choice((*NUMBERS, was + 1, was - 1, was * 2, -was, len(content)))
            content[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
    contents[name] = bytes(content)


def alter_names(contents: dict[str, bytes], rng: random.Random) -> None:
    """Remove, add or exchange sections."""
    section, other = (rng.choice(sorted(contents)) for _ in range(2))
    what = rng.random()
    if what < 0.3:
        del contents[section]
    elif what < 0.5:
        name = rng.choice(("x", "late 9", "groups", "joins 0 class 0 word 0 text", f"{section} "))
        contents[name] = contents[other]
    else:
        contents[section], contents[other] = contents[other], contents[section]


def outcome(world: str, forged: bytes) -> str:
    """Restore a forged snapshot; return "refused", "same" or "another". Raises for everything else."""
    make, _, given = WORLDS[world]
    try:
        runtime = Runtime.restore(forged, make())
    except SnapshotError:
        return "refused"
    runtime.check()
    again = runtime.snapshot()
    for step in range(PUSHES, PUSHES + 4):
        try:
            push(runtime, step, given)
        except eddy.StateError:
            raise
        except eddy.EddyError:
            # A bound on bytes, or a decreasing watermark.
            pass
        runtime.check()
    for table in runtime.late().values():
        for batch in table.to_batches():
            validate(batch)
    Runtime.restore(runtime.snapshot(), make()).check()
    return "same" if again == saved(world) else "another"


def main(first: int, last: int) -> None:
    """Try alterations by number, printed before each, so that a crash can be reproduced."""
    faulthandler.enable()
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(first, last):
        rng = random.Random(number)
        world = rng.choice(sorted(WORLDS))
        print(f"\r{number}", end="", flush=True)
        try:
            outcomes[world, outcome(world, alter(saved(world), rng))] += 1
        except BaseException as problem:
            print(f"{number} {world}: {type(problem).__name__}: {str(problem)[:400]}", flush=True)
            outcomes[world, type(problem).__name__] += 1
            if isinstance(problem, KeyboardInterrupt):
                raise
    for key, count in sorted(outcomes.items()):
        print(*key, count)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

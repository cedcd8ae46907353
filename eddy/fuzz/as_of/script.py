"""Write a case of as-of joins as a Python script: the calls of the library, and the expected rows of each call."""

from __future__ import annotations

import inspect

from eddy.fuzz import chaos
from eddy.fuzz.as_of.answer import compare_answer
from eddy.fuzz.as_of.case import TYPES, AsOfArrival, AsOfCase, AsOfPushStep, AsOfQuery, AsOfStep, equal, on_text
from eddy.fuzz.as_of.play import AsOfModel, Changed
from eddy.fuzz.case import DemoteStep
from eddy.fuzz.oracle import OracleStream
from eddy.fuzz.script import CHAOS_IMPORTS, CHECK, SPILL_IMPORTS, helpers, listed, plan_call, policy_text
from eddy.fuzz.times import type_text

_HEAD = '''"""{title}"""

from __future__ import annotations

{imports}from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import eddy
{more}
Rows = Sequence[tuple[Any, ...]]


'''

_TAIL = '''

def push(arrivals: Rows, ended: Rows, begun: Rows, watermark: int | None = None) -> None:
    """Push rows in this order, each with the name of its input and perhaps its operation, and compare the results."""
    batches = {}
    for name, schema in SCHEMAS.items():
        own = [dict(zip(schema.names, one[1:])) for one in arrivals if one[0] == name]
        batches[name] = pa.RecordBatch.from_pylist(own, schema=schema)
    order = [list(SCHEMAS).index(one[0]) for one in arrivals]
    compare_answer(runtime.push(batches, order, watermark=watermark), ended, begun)
'''


def script(case: AsOfCase, title: str) -> str:
    """Return a case as a script that raises AssertionError, or the engine's error, if the case fails."""
    model, lines = AsOfModel(case), []
    for step in case.steps:
        lines += _call(model, step)
        lines.append(f"check({model.position}, {model.plans()!r}, {model.waiting()!r})")
    lines += ["compare_answer(", "    runtime.finish(),", *_changed(model.finish()), ")"]
    demotes = any(isinstance(step, DemoteStep) for step in case.steps)
    more = "from stairs.descriptors import C_NEXT\n" * demotes + SPILL_IMPORTS * ("spill" in case.options())
    more += CHAOS_IMPORTS * case.chaotic
    imports = "import datetime\n" * bool(case.asked.times.units) + "import random\n" * case.chaotic
    text = _HEAD.format(title=title, imports=imports, more=more)
    text += inspect.getsource(compare_answer) + _TAIL + CHECK + helpers(lines)
    text += "\n\n" + inspect.getsource(chaos.Chaos) if case.chaotic else ""
    return text + "\n\n" + _setup(case) + "\n".join(lines) + "\n"


def _setup(case: AsOfCase) -> str:
    asked, lines = case.asked, ["SCHEMAS = {"]
    for name in asked.inputs:
        a, b, p = (_type(kind) for kind in asked.types[name])
        t = type_text(asked.schema(name).field("t").type)
        fields = f'("a", {a}), ("b", {b}), ("t", {t}), ("v", pa.int64()), ("p", {p})'
        fields += ', ("op", pa.string())' if name in asked.deletes else ""
        lines.append(f"    {name!r}: pa.schema([{fields}]),")
    lines += ["}", "COLUMNS = {name: pa.schema(list(schema)[:5]) for name, schema in SCHEMAS.items()}"]
    lines += ["query = eddy.Query("]
    lines += ["    [", *(f"        {_stream(asked, core_stream)}," for core_stream in asked.core), "    ],"]
    lines.append(f"    {equal(asked.equalities)!r},")
    if asked.branch is not None:
        stream = _stream(asked, asked.branch.stream)
        lines.append(
            f"    branches=[eddy.Branch([{stream}], {equal(asked.branch.equalities)!r}, {asked.branch.how!r})],"
        )
    lines += ["    as_of=[", *(f"        {join}," for join in _joins(asked)), "    ],"]
    lines += [f"    {name}={value!r}," for name, value in asked.times.timing(asked.timing).items()]
    options = [f"policy={policy_text(case.policy, case.seed)}", *(f"{n}={v!r}" for n, v in case.options().items())]
    return "\n".join([*lines, ")", f"runtime = eddy.Runtime(query, {case.plan!r}, {', '.join(options)})", "", ""])


def _type(name: str) -> str:
    return "pa.dictionary(pa.int8(), pa.string())" if name == "dictionary" else f"pa.{TYPES[name]}()"


def _stream(asked: AsOfQuery, stream: OracleStream) -> str:
    if stream.name == asked.keyed:
        return f'eddy.Table({stream.name!r}, COLUMNS[{stream.name!r}], key={list(asked.key)!r}, ops="column")'
    window = asked.window(stream)
    shown = "None" if window is None else f"eddy.{window!r}"
    return f'eddy.Stream({stream.name!r}, COLUMNS[{stream.name!r}], {shown}, "t")'


def _joins(asked: AsOfQuery) -> list[str]:
    joins = []
    for join in asked.joins:
        name = join.table.name
        parts = [f"key={list(join.key)!r}"] + ['time="t"'] * (join.at is not None)
        parts += ['ops="column"'] * (name in asked.deletes) + ['filter=pc.field("v") > 0'] * (name in asked.rejects)
        kind = "Table" if join.at is None else "VersionedTable"
        table = f"eddy.{kind}({name!r}, COLUMNS[{name!r}], {', '.join(parts)})"
        options = ", ".join(f"{option}={value!r}" for option, value in asked.options(join).items())
        joins.append(f"eddy.AsOf({table}, {on_text(join)!r}, {options})")
    return joins


def _call(model: AsOfModel, step: AsOfStep) -> list[str]:
    if not isinstance(step, AsOfPushStep):
        return plan_call(model, step)
    asked = model.case.asked
    watermark = asked.ticks(model.watermark(step))
    given = [] if watermark is None else [f"    watermark={watermark},"]
    return [
        "push(",
        *listed([_arrival(asked, arrival) for arrival in step.arrivals]),
        *_changed(model.push(step)),
        *given,
        ")",
    ]


def _changed(changed: Changed) -> list[str]:
    return [line for rows in changed for line in listed([repr(row) for row in rows])]


def _arrival(asked: AsOfQuery, arrival: AsOfArrival) -> str:
    values = asked.pushed(arrival.name, arrival.row).values()
    return repr((arrival.name, *values, *([arrival.op] if arrival.op else [])))

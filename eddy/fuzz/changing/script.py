"""Write a case of an engine as a Python script: the calls of the library, and the expected results of each push."""

from __future__ import annotations

import inspect

from eddy.fuzz import chaos
from eddy.fuzz.case import CHAOS, NAMES, PushStep, Row
from eddy.fuzz.changing import given
from eddy.fuzz.changing.case import (
    BadOrderStep,
    ChangeStep,
    Element,
    EngineCase,
    EngineQuery,
    EngineReloadStep,
    EngineStreams,
    StartStep,
    Step,
    StopStep,
)
from eddy.fuzz.changing.play import EngineModel
from eddy.fuzz.script import CHAOS_IMPORTS, COMPARE, listed
from eddy.fuzz.times import type_text
from eddy.streams.windows import Window

_HEAD = '''"""{title}"""

from __future__ import annotations

{imports}from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import eddy
{policy}
Group = Sequence[tuple[Any, ...]]
Expected = tuple[int, int, tuple[int, ...]]
Pushed = Sequence[tuple[str, tuple[int, ...]]]


'''

_TAIL = '''

def batches(rows: Pushed) -> dict[str, pa.RecordBatch]:
    """Make a batch of each stream's rows."""
    own = {name: [values for stream, values in rows if stream == name] for name, _ in rows}
    return {
        name: pa.RecordBatch.from_pylist([dict(zip(SCHEMAS[name].names, values)) for values in found], SCHEMAS[name])
        for name, found in own.items()
    }


def push(rows: Pushed, wanted: Mapping[str, Sequence[Sequence[Expected]]]) -> None:
    """Push rows in this order and compare the results of each query: version, first position, column n of each row."""
    tables = engine.push(batches(rows), [list(SCHEMAS).index(name) for name, _ in rows])
    assert tables.keys() == wanted.keys(), f"results of {list(tables)}, not of {list(wanted)}"
    for name, groups in wanted.items():
        compare_given(tables[name], groups, complete_from.get(name, {}))


def refused(call: Callable[[], Any]) -> None:
    """Call the engine and expect an error."""
    try:
        call()
    except eddy.EddyError:
        return
    raise AssertionError("a call that must be refused was not")


def warm(name: str, version: int, most: int) -> None:
    """Note from where a version that started warm has all results, and compare that with where it must have them."""
    complete_from.setdefault(name, {})[version] = engine[name].complete_from
    assert engine[name].complete_from <= most, f"complete from {engine[name].complete_from} only, not from {most}"


def reload() -> None:
    """Continue with an engine restored from a snapshot."""
    global engine
    queries = {one.name: [own.query for own in one.versions] for one in engine.queries.values() if one.live}
    engine = eddy.Engine.restore(engine.snapshot(), streams, queries, policy=policy)


def check(position: int, late: Mapping[str, int], states: Mapping[str, str]) -> None:
    """Check the joins; compare the position, the late rows and the states of the queries."""
    engine.check()
    assert engine.position == position, f"position {engine.position}, not {position}"
    assert engine.late_counts == late, f"late rows {engine.late_counts}, not {late}"
    got = {name: one.state for name, one in engine.queries.items()}
    assert got == states, f"states {got}, not {states}"
'''


def script(case: EngineCase, title: str) -> str:
    """Return a case as a script that raises AssertionError, or the engine's error, if the case fails."""
    chaotic = case.policy == CHAOS
    text = _HEAD.format(
        title=title,
        imports="import datetime\n" * bool(case.sources.times.units) + "import random\n" * chaotic,
        policy=CHAOS_IMPORTS * chaotic + "\n" * (not chaotic),
    )
    text += COMPARE + "\n\n" + inspect.getsource(given.given_rows) + "\n\n" + inspect.getsource(given.compare_given)
    text += _TAIL
    text += "\n\n" + inspect.getsource(chaos.Chaos) if chaotic else ""
    return text + "\n\n" + _setup(case) + "\n".join(_calls(case)) + "\n"


def _setup(case: EngineCase) -> str:
    sources = case.sources
    policy = f"Chaos({case.seed})" if case.policy == CHAOS else repr(case.policy)
    options = ["policy=policy", *(f"{name}={value!r}" for name, value in case.options.items())]
    lines = ["SCHEMAS = {"]
    for name in sources.names:
        fields = ", ".join(f"({field.name!r}, {type_text(field.type)})" for field in sources.schema(name))
        lines.append(f"    {name!r}: pa.schema([{fields}]),")
    lines += ["}", f"policy: Any = {policy}", "streams = ["]
    for name, window in zip(sources.names, sources.windows, strict=True):
        lines.append(f"    {_stream(sources, name, window, None, sources.late_of.get(name))},")
    lines += ["]", f"engine = eddy.Engine(streams, {', '.join(options)})"]
    lines += [f'engine.options["decide_every"] = {case.decide_every}', "complete_from: dict[str, dict[int, int]] = {}"]
    return "\n".join([*lines, "", ""])


def _stream(
    sources: EngineStreams, name: str, window: Window | None, least: int | None, lateness: int | None = None
) -> str:
    parts = [repr(name), f"SCHEMAS[{name!r}]"]
    parts += [] if window is None else [f"window=eddy.{sources.times.window(window)!r}"]
    parts += ['time="t"'] * sources.timed
    parts += [] if least is None else [f'filter=pc.field("x") >= {least}']
    parts += [] if lateness is None else [f"lateness={sources.times.span(lateness)!r}"]
    return f"eddy.Stream({', '.join(parts)})"


def _query(case: EngineCase, asked: EngineQuery, version: int) -> list[str]:
    streams = [_stream(case.sources, NAMES[member.stream], member.window, member.least) for member in asked.streams]
    lines = ["    eddy.Query(", "        [", *(f"            {stream}," for stream in streams), "        ],"]
    return [*lines, f"        {asked.predicates!r},", f"        select={asked.select(version)!r},", "    ),"]


def _calls(case: EngineCase) -> list[str]:
    """Write the steps, with the expected results of each."""
    model, lines = EngineModel(case), []
    for step in case.steps:
        if model.skips(step):
            continue
        lines += _call(model, step)
        states = {name: state for name, (state, _) in model.states().items()}
        lines.append(f"check({model.oracle.position}, {model.oracle.late!r}, {states!r})")
    return lines


def _call(model: EngineModel, step: Step) -> list[str]:
    case = model.case
    match step:
        case PushStep(rows):
            wanted = model.push(rows)
            lines = ["push(", *listed([_row(case, row) for row in rows]), "    {"]
            return [*lines, *(f"        {name!r}: {groups!r}," for name, groups in wanted.items()), "    },", ")"]
        case BadOrderStep(rows):
            order = [*(row.stream for row in rows), 0]
            return [f"refused(lambda: engine.push(batches({[_values(case, row) for row in rows]!r}), {order!r}))"]
        case EngineReloadStep():
            model.forget_stopped()
            return ["reload()"]
        case _:
            return _element(model, step)


def _element(model: EngineModel, step: Element) -> list[str]:
    at, version = model.position(step), model.version(step)
    taken = model.take(step)
    match step:
        case StartStep(name, asked, _, warm):
            call = [f"engine.start({name!r},", *_query(model.case, asked, version), f"    at={at}, warm={warm})"]
        case ChangeStep(name, asked, how, _):
            call = [f"engine[{name!r}].change(", *_query(model.case, asked, version), f"    {how!r}, {at})"]
        case StopStep(name, how, _):
            call = [f"engine[{name!r}].stop(", f"    {how!r}, {at})"]
    if not taken:
        return (
            ["refused(lambda: " + call[0], *call[1:-1], call[-1] + ")"]
            if len(call) > 1
            else [f"refused(lambda: {call[0]})"]
        )
    forgotten = [f"complete_from.pop({step.name!r}, None)"] if isinstance(step, StartStep) else []
    most = model.warm(step.name, version)
    return [*call, *forgotten, *([] if most is None else [f"warm({step.name!r}, {version}, {most})"])]


def _values(case: EngineCase, row: Row) -> tuple[str, tuple[int, ...]]:
    return NAMES[row.stream], tuple(case.sources.pushed(row).values())


def _row(case: EngineCase, row: Row) -> str:
    return repr(_values(case, row))

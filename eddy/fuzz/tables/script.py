"""Write a case over tables as a Python script: the calls of the library, and the expected changes of each call."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence

from eddy.fuzz import chaos
from eddy.fuzz.case import NAMES, DemoteStep, TransitionStep
from eddy.fuzz.play import Expected
from eddy.fuzz.script import (
    CHAOS_IMPORTS,
    CHECK,
    COMPARE,
    SPILL_IMPORTS,
    helpers,
    listed,
    plan_call,
    policy_text,
    transition_refused,
)
from eddy.fuzz.tables import changes
from eddy.fuzz.tables.case import (
    RANK,
    SCHEMA,
    WHERE,
    BadChangeStep,
    TableArrival,
    TableCase,
    TableLoadStep,
    TablePushStep,
    TablesQuery,
    TableStep,
    TrimStep,
    WatermarkStep,
    texts,
)
from eddy.fuzz.tables.play import AcceptingSwitch, TableModel, bad_arrivals

_HEAD = '''"""{title}"""

from __future__ import annotations

{random}from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import eddy
{more}
Group = Sequence[tuple[Any, ...]]
Change = tuple[Any, ...]


'''

_TAIL = '''

def batches(arrivals: Sequence[tuple[Any, ...]]) -> dict[str, pa.RecordBatch]:
    """Make a batch of the rows or changes of each input: its name, the values, and the operation of a change."""
    found = {}
    for name in sorted({one[0] for one in arrivals}):
        schema = SCHEMA.append(pa.field("op", pa.string())) if name in TABLES else SCHEMA
        own = [dict(zip(schema.names, one[1:])) for one in arrivals if one[0] == name]
        found[name] = pa.RecordBatch.from_pylist(own, schema=schema)
    return found


def order_of(arrivals: Sequence[tuple[Any, ...]]) -> list[int]:
    """Return the number of the input of each arrival."""
    return [NAMES.index(one[0]) for one in arrivals]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table."""
    return [tuple(row.values()) for row in table.to_pylist()]


def push(
    arrivals: Sequence[tuple[Any, ...]],
    groups: Sequence[Group],
    late: dict[str, list[tuple[Any, ...]]],
    atomic: bool = False,
    watermark: int | None = None,
) -> None:
    """Push rows and changes in this order; compare the changelog, the late rows and the stale changes."""
    dropped = runtime.metrics()["late_dropped"]
    given = {"watermark": watermark} if watermark is not None else {"order": order_of(arrivals), "atomic": atomic}
    compare_changes(rows_of(runtime.push(batches(arrivals), **given)), groups, KEY)
    got = {name: rows_of(found) for name, found in runtime.late().items()}
    dropped = runtime.metrics()["late_dropped"] - dropped  # the oldest ones, if max_bytes leaves no room
    kept = {name: rows[len(rows) - len(got.get(name, ())) :] for name, rows in late.items()}
    assert got == {name: rows for name, rows in kept.items() if rows}, f"late rows {got}, not {late}"
    assert sum(map(len, late.values())) - sum(map(len, got.values())) == dropped, f"late rows {got}, not {late}"
'''

_FAIL = '''

def push_in_vain(arrivals: Sequence[tuple[Any, ...]], more: int) -> None:
    """Push rows and changes, and expect it to fail."""
    try:
        runtime.push(batches(arrivals), order_of(arrivals) + [0] * more)
    except eddy.InputError:
        return
    raise AssertionError("a push that must fail did not")
'''

_SWITCHED = '''

def push_switched(arrivals: Sequence[tuple[Any, ...]]) -> None:
    """Push rows and changes while the filter of results fails."""
    switch.on = True
    try:
        runtime.push(batches(arrivals), order_of(arrivals))
    except eddy.InputError:
        return
    finally:
        switch.on = False
    raise AssertionError("the filter of results was not asked")
'''


def script(case: TableCase, title: str, refused: Collection[int] = ()) -> str:
    """Return a case as a script that raises AssertionError, or the engine's error, if the case fails.

    refused   numbers of the steps that are refused (`eddy.fuzz.tables.play.refusals`)
    """
    model, lines = TableModel(case), []
    for k, step in enumerate(case.steps):
        lines += _refused(model, step) if k in refused else _call(model, step)
        lines.append(f"check({model.position}, {model.plans()!r}, {model.waiting()!r})")
    demotes = any(isinstance(step, DemoteStep) for step in case.steps)
    more = "from stairs.descriptors import C_NEXT\n" * demotes + SPILL_IMPORTS * ("spill" in case.options())
    more += CHAOS_IMPORTS * case.chaotic
    text = _HEAD.format(title=title, random="import random\n" * case.chaotic, more=more)
    text += COMPARE + "\n\n" + inspect.getsource(changes.pairs_of) + "\n\n" + inspect.getsource(changes.compare_changes)
    text += _TAIL + CHECK
    text += _FAIL if any(line.startswith("push_in_vain") for line in lines) else ""
    text += _SWITCHED if any(line.startswith("push_switched") for line in lines) else ""
    text += helpers(lines)
    text += "\n\n" + inspect.getsource(AcceptingSwitch) if case.asked.switched else ""
    text += "\n\n" + inspect.getsource(chaos.Chaos) if case.chaotic else ""
    return text + "\n\n" + _setup(case, model.reference.key) + "\n".join(lines) + "\n"


def _setup(case: TableCase, key: Sequence[int] | None) -> str:
    asked = case.asked
    fields = ", ".join(f"({field.name!r}, pa.{field.type}())" for field in SCHEMA)
    lines = [f"SCHEMA = pa.schema([{fields}])", f"NAMES = {list(asked.names)!r}"]
    lines.append(f"TABLES = {[name for name, table in zip(asked.names, asked.tables, strict=True) if table]!r}")
    lines += [f"KEY = {key!r}", *(["switch = AcceptingSwitch()"] if asked.switched else []), "query = eddy.Query("]
    lines += [*_inputs(asked, asked.nodes[0], "    "), f"    {texts(asked.predicates_of())!r},"]
    if asked.branches:
        lines += ["    branches=[", *_branches(asked, -1, "        "), "    ],"]
    if asked.grouped is None:
        lines.append(f"    select={asked.outputs!r},")
    else:
        lines += [f"    group_by={list(asked.grouped)!r},", "    aggregates={"]
        for name, aggregate in asked.functions.items():
            columns = [aggregate.column, *([aggregate.by] if aggregate.function == "first" else [])]
            given = ", ".join(repr(column) for column in columns if column is not None)
            lines.append(f"        {name!r}: eddy.agg.{aggregate.function}({given}),")
        lines.append("    },")
    if asked.top is not None:
        rank = RANK if asked.rank else None
        lines.append(f"    top=eddy.Top({asked.top.n}, {list(asked.top.by)!r}, {asked.order!r}, {rank!r}),")
    lines += ['    where=eddy.Predicate(switch, ["R.a"]),'] if asked.switched else []
    lines += [f"    {name}={value!r}," for name, value in {"expiry": asked.expiry, **asked.timing}.items()]
    options = [f"policy={policy_text(case.policy, case.seed)}", *(f"{n}={v!r}" for n, v in case.options().items())]
    return "\n".join([*lines, ")", f"runtime = eddy.Runtime(query, {case.plan!r}, {', '.join(options)})", "", ""])


def _inputs(asked: TablesQuery, inputs: Sequence[int], indent: str) -> list[str]:
    lines = [f"{indent}["]
    for i in inputs:
        if asked.tables[i]:
            parts = [f'eddy.Table({NAMES[i]!r}, SCHEMA, key={list(asked.key)!r}, ops="column"']
            parts += [f"{name}={value!r}" for name, value in asked.versions.items()]
        else:
            parts = [f"eddy.Stream({NAMES[i]!r}, SCHEMA, window=eddy.{asked.window(i)!r}"]
            parts += ['time="t"'] * asked.timed
        parts += [f'filter=pc.field("w") <= {WHERE}'] * asked.filtered
        lines.append(f"{indent}    {', '.join(parts)}),")
    return [*lines, f"{indent}],"]


def _branches(asked: TablesQuery, node: int, indent: str) -> list[str]:
    lines = []
    for k in asked.below(node):
        branch = asked.branches[k]
        lines += [f"{indent}eddy.Branch(", *_inputs(asked, branch.streams, indent + "    ")]
        lines += [f"{indent}    {texts(asked.predicates_of(k))!r},", f"{indent}    {branch.how!r},"]
        lines += [f"{indent}    [", *_branches(asked, k, indent + " " * 8), f"{indent}    ],", f"{indent}),"]
    return lines


def _arrivals(asked: TablesQuery, arrivals: Sequence[TableArrival]) -> list[str]:
    return listed(
        [
            repr((NAMES[arrival.input], *arrival.values, *([arrival.op] if asked.tables[arrival.input] else [])))
            for arrival in arrivals
        ]
    )


def _refused(model: TableModel, step: TableStep) -> list[str]:
    """Write a step that is refused, for lack of room or by the filter of results; the oracle does not take it."""
    asked = model.case.asked
    match step:
        case TablePushStep(arrivals, atomic, switched):
            if switched:
                return ["push_switched(", *_arrivals(asked, arrivals), ")"]
            return ["refused(lambda: push(", *_arrivals(asked, arrivals), f"    [], {{}}, atomic={atomic}))"]
        case TableLoadStep(arrivals):
            return ["refused(lambda: runtime.load(batches(", *_arrivals(asked, arrivals), ")))"]
        case BadChangeStep(_, how):
            bad = _arrivals(asked, bad_arrivals(asked, step))
            return ["refused(lambda: push_in_vain(", *bad, f"    more={int(how == 'order')}))"]
        case TransitionStep():
            return [transition_refused(step)]
        case _:
            raise AssertionError(f"{step} is never refused")


def _call(model: TableModel, step: TableStep) -> list[str]:
    asked, reference = model.case.asked, model.reference
    match step:
        case TablePushStep(arrivals, atomic):
            wanted = reference.push(arrivals, atomic)
            given = ["    atomic=True,"] if atomic else []
            return ["push(", *_arrivals(asked, arrivals), *_wanted(wanted), *given, ")"]
        case TableLoadStep(arrivals):
            if not model.loads():
                return []
            reference.load(arrivals)
            return ["runtime.load(batches(", *_arrivals(asked, arrivals), "))"]
        case BadChangeStep(_, how):
            bad = bad_arrivals(asked, step)
            if not bad and how != "order":
                return []
            return ["push_in_vain(", *_arrivals(asked, bad), f"    more={int(how == 'order')},", ")"]
        case WatermarkStep():
            watermark = model.watermark(step)
            if watermark is None:
                return []
            return ["push(", "    [],", *_wanted(reference.advance(watermark)), f"    watermark={watermark},", ")"]
        case TrimStep():
            return ["runtime.trim()"]
        case _:
            return plan_call(model, step)


def _wanted(wanted: Expected) -> list[str]:
    return [*listed([repr(group) for group in wanted.groups]), f"    {wanted.late!r},"]

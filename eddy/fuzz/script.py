"""Write a case as a Python script that anyone can run: the calls of the library, and the expected rows of each call."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable

from eddy.fuzz import chaos
from eddy.fuzz import compare as comparison
from eddy.fuzz.branch_oracle import BranchOracle
from eddy.fuzz.case import (
    CHAOS,
    NAMES,
    BadPushStep,
    Case,
    DemoteStep,
    LimitStep,
    PushStep,
    ReloadStep,
    Row,
    Shape,
    Step,
    TransitionStep,
    quotient,
)
from eddy.fuzz.play import CaseModel, PlanModel, branch_groups, expected, given_watermark, must_fail
from eddy.fuzz.times import type_text

COMPARE = inspect.getsource(comparison.compare) + "\n\n" + inspect.getsource(comparison.compare_rows)
"""The comparison, as scripts contain it."""

SPILL_IMPORTS = "from stairs.memory.spill import SpillDirectory\n"
CHAOS_IMPORTS = """from eddy.routing.policies import Decision, View
from jisc.plan.tree import Tree, join
from jisc.plan.states import states_of

"""
"""The imports that the fuzzer's own policy needs in a script."""

_HEAD = '''"""{title}"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
{imports}
import eddy

'''

_TAIL = '''

def batches(rows: Sequence[tuple[str, tuple[Any, ...]]]) -> dict[str, pa.RecordBatch]:
    """Make a batch of each stream's rows."""
    own = {name: [values for stream, values in rows if stream == name] for name, _ in rows}
    return {
        name: pa.RecordBatch.from_pylist(
            [dict(zip(SCHEMAS[name].names, values, strict=True)) for values in found], schema=SCHEMAS[name]
        )
        for name, found in own.items()
    }


def push(
    rows: Sequence[tuple[str, tuple[Any, ...]]],
    groups: Sequence[Group],
    late: dict[str, list[int]],
    watermark: int | None = None,
) -> None:
    """Push rows in this order and compare the results, and the column n of the late rows."""
    dropped = runtime.metrics()["late_dropped"]
    table = runtime.push(batches(rows), [list(SCHEMAS).index(name) for name, _ in rows], watermark=watermark)
    compare(table, groups)
    got = {name: found["n"].to_pylist() for name, found in runtime.late().items()}
    dropped = runtime.metrics()["late_dropped"] - dropped  # the oldest ones, if max_bytes leaves no room
    kept = {name: numbers[len(numbers) - len(got.get(name, ())) :] for name, numbers in late.items()}
    assert got == {name: numbers for name, numbers in kept.items() if numbers}, f"late rows {got}, not {late}"
    assert sum(map(len, late.values())) - sum(map(len, got.values())) == dropped, f"late rows {got}, not {late}"
'''

CHECK = '''

def check(position: int, plans: Sequence[str], waiting: Sequence[tuple[int, str]]) -> None:
    """Check the state; compare the position, the plan and the changes of plan to come."""
    runtime.check()
    assert runtime.position == position, f"position {runtime.position}, not {position}"
    assert not plans or runtime.plan in plans, f"plan {runtime.plan}, not {' or '.join(plans)}"
    got = [tuple(entry) for entry in runtime.scheduled() if entry[0] > position]
    assert got == waiting, f"scheduled {got}, not {waiting}"
'''

_FAIL = '''

def push_in_vain(rows: Sequence[tuple[str, tuple[Any, ...]]], more: int) -> None:
    """Push rows and expect it to fail, and that no change of plan within it stands."""
    before = runtime.history().num_rows
    try:
        runtime.push(batches(rows), [list(SCHEMAS).index(name) for name, _ in rows] + [0] * more)
    except eddy.InputError:
        changed = runtime.history()["position"].to_pylist()[before:]
        assert set(changed) <= {runtime.position}, f"changes of plan at {changed} were not taken back"
        return
    raise AssertionError("a push that must fail did not")
'''

IN_VAIN = '''

def transition_in_vain(plan: str, at: int | None) -> None:
    """Request another plan and expect an error."""
    try:
        runtime.transition(plan, at=at)
    except eddy.PlanError:
        return
    raise AssertionError("another plan was taken")
'''

NO_ROOM = '''

def refused(step: Callable[[], Any]) -> None:
    """Do a step and expect an error for lack of room."""
    try:
        step()
    except eddy.CapacityError:
        return
    raise AssertionError("there was room for a step that was refused when this script was written")
'''

DEMOTE = '''

def demote(state: int, key: int) -> None:
    """Drop the entries of one key in one state; both numbers are taken modulo the numbers of states and keys."""
    if runtime.stairs:
        stair = runtime.stairs[state % len(runtime.stairs)]
        keys = int(stair.modules.classes[stair.by, C_NEXT])
        if keys:
            stair.demote(key % keys)
'''


def script(case: Case, title: str, refused: Collection[int] = ()) -> str:
    """Return a case as a script that raises AssertionError, or the engine's error, if the case fails.

    refused   numbers of the steps that are refused for lack of room (`eddy.fuzz.play.refusals`)
    """
    kinds = {type(step) for step in case.steps}
    imports = "import pyarrow.compute as pc\n" if case.shape.breakable else ""
    lines = _calls(case, refused)
    text = _HEAD.format(title=title, imports=imports)
    if case.shape.times.units:
        text = text.replace("from collections import Counter", "import datetime\nfrom collections import Counter")
    if DemoteStep in kinds:
        text += "from stairs.descriptors import C_NEXT\n"
    if case.bands:
        text += "from stairs.bands import Sizes\n"
    if "spill" in case.options():
        text += SPILL_IMPORTS
    if case.chaotic:
        text = text.replace("from collections import Counter", "import random\nfrom collections import Counter")
        text += CHAOS_IMPORTS
    text += "Group = Sequence[tuple[Any, ...]]\n\n\n" + COMPARE + _TAIL + CHECK
    text += _FAIL if any(line.startswith("push_in_vain") for line in lines) else ""
    text += helpers(lines)
    text += "\n\n" + inspect.getsource(quotient) if case.shape.breakable else ""
    text += "\n\n" + inspect.getsource(chaos.Chaos) if case.chaotic else ""
    return text + "\n\n" + _setup(case) + "\n".join(lines) + "\n"


def helpers(lines: Collection[str]) -> str:
    """Return the functions that the steps of a script need, of those that all kinds of cases have."""
    definitions = {"transition_in_vain(": IN_VAIN, "refused(": NO_ROOM, "demote(": DEMOTE}
    return "".join(text for name, text in definitions.items() if any(line.startswith(name) for line in lines))


def _setup(case: Case) -> str:
    shape = case.shape
    lines = ["SCHEMAS = {"]
    for i, name in enumerate(shape.names):
        fields = ", ".join(f"({field.name!r}, {type_text(field.type)})" for field in shape.schema(i))
        lines.append(f"    {name!r}: pa.schema([{fields}]),")
    lines += ["}", "query = eddy.Query("]
    lines += _streams(shape, shape.nodes[0], "    ")
    lines.append(f"    {shape.predicates()!r},")
    if shape.branches:
        lines += ["    branches=[", *_branches(shape, -1, "        "), "    ],"]
    lines.append(f"    select={[f'{NAMES[i]}.n' for i in shape.shown]!r},")
    if shape.breakable:
        lines.append('    where=eddy.Predicate(quotient, columns=["R.v"]),')
    lines += [f"    {name}={value!r}," for name, value in shape.times.timing(shape.timing).items()]
    given = [
        f"policy={policy_text(case.policy, case.seed)}",
        *(f"{n}={value!r}" for n, value in case.options().items()),
    ]
    options = ", ".join([repr(case.plan), *given])
    return "\n".join([*lines, ")", f"runtime = eddy.Runtime(query, {options})", *_use_bands(case), "", ""])


def _streams(shape: Shape, streams: Iterable[int], indent: str) -> list[str]:
    lines = [f"{indent}["]
    for i in streams:
        time = ', time="t"' if shape.timed else ""
        window = "" if shape.windows[i] is None else f", window=eddy.{shape.times.window(shape.windows[i])!r}"
        lateness = shape.lateness_of(i)
        late = "" if lateness is None else f", lateness={shape.times.span(lateness)!r}"
        lines.append(f"{indent}    eddy.Stream({NAMES[i]!r}, SCHEMAS[{NAMES[i]!r}]{window}{time}{late}),")
    return [*lines, f"{indent}],"]


def _branches(shape: Shape, parent: int, indent: str) -> list[str]:
    lines = []
    for k, branch in enumerate(shape.branches):
        if branch.parent == parent:
            lines += [f"{indent}eddy.Branch(", *_streams(shape, branch.streams, indent + "    ")]
            lines += [f"{indent}    {shape.predicates(k)!r},", f"{indent}    {branch.how!r},"]
            lines += [f"{indent}    [", *_branches(shape, k, indent + " " * 8), f"{indent}    ],", f"{indent}),"]
    return lines


def _use_bands(case: Case) -> list[str]:
    if not case.bands:
        return []
    return ["for operator in runtime._pipeline.joins.values():", f"    operator.modules.bands.sizes = {case.bands!r}"]


def policy_text(name: str | None, seed: int) -> str:
    """Return the argument `policy` as text."""
    return f"Chaos({seed})" if name == CHAOS else repr(name)


def _calls(case: Case, refused: Collection[int]) -> list[str]:
    """Write the steps, with the expected rows of each."""
    model, lines = CaseModel(case), []
    for k, step in enumerate(case.steps):
        lines += _refused(case, step) if k in refused else _call(model, step)
        lines.append(f"check({model.oracle.position}, {model.plans()!r}, {model.waiting()!r})")
    if isinstance(model.oracle, BranchOracle):
        lines.append(f"compare(runtime.finish(), {branch_groups(case, model.oracle, [], model.oracle.finish())!r})")
    return lines


def _refused(case: Case, step: Step) -> list[str]:
    """Write a step for which there is no room; the oracle does not take it."""
    match step:
        case PushStep(rows) | BadPushStep(rows):
            v = 0 if isinstance(step, BadPushStep) and step.how == "where" else 1
            pushed = listed([_row(case, row, v if row.stream == 0 else 1) for row in rows])
            watermark = None if isinstance(step, BadPushStep) else case.shape.times.ticks(step.watermark)
            given = "" if watermark is None else f", watermark={watermark}"
            return ["refused(lambda: push(", *pushed, f"    [], {{}}{given}))"]
        case TransitionStep():
            return [transition_refused(step)]
        case _:
            raise AssertionError(f"{step} is never refused for lack of room")


def _call(model: CaseModel, step: Step) -> list[str]:
    case, oracle = model.case, model.oracle
    match step:
        case PushStep(rows):
            watermark = given_watermark(oracle, step)
            wanted = expected(case, oracle, rows, watermark)
            lines = ["push(", *listed([_row(case, row) for row in rows])]
            given = [] if watermark is None else [f"    watermark={case.shape.times.ticks(watermark)},"]
            return [*lines, *listed([repr(group) for group in wanted.groups]), f"    {wanted.late!r},", *given, ")"]
        case BadPushStep(rows, how):
            if not must_fail(case, oracle, step):
                return []
            v = 0 if how == "where" else 1
            pushed = listed([_row(case, row, v if row.stream == 0 else 1) for row in rows])
            return ["push_in_vain(", *pushed, f"    more={int(how == 'order')},", ")"]
        case ReloadStep():
            return [*plan_call(model, step), *_use_bands(case)]
        case _:
            return plan_call(model, step)


def plan_call(model: PlanModel, step: TransitionStep | ReloadStep | DemoteStep | LimitStep) -> list[str]:
    """Write a step that all kinds of cases have; the model takes it."""
    match step:
        case TransitionStep(plan, _, store, box):
            name = "transition_in_vain" if model.fixed else "runtime.transition"
            chosen = "" if store is None else f", store={list(store)!r}"
            chosen += f", box={box!r}" if box and not model.fixed else ""
            line = f"{name}({plan!r}, at={model.at(step)}{chosen})"
            if not model.fixed:
                model.change(step)
            return [line]
        case ReloadStep(plan, strategy, policy, seed):
            model.reload(step)
            chosen = "" if policy is None else f", policy={policy_text(policy, seed)}"
            chosen += ", spill=runtime.spill"
            return [f"runtime = eddy.Runtime.restore(runtime.snapshot(), query, {plan!r}, {strategy!r}{chosen})"]
        case DemoteStep(state, key):
            return [f"demote({state}, {key})"]
        case LimitStep(max_bytes):
            return [f"runtime.max_bytes = {max_bytes}"]


def transition_refused(step: TransitionStep) -> str:
    """Write a change of plan for which there is no room."""
    chosen = ("" if step.store is None else f", store={list(step.store)!r}") + (
        f", box={step.box!r}" if step.box else ""
    )
    return f"refused(lambda: runtime.transition({step.plan!r}{chosen}))"


def listed(items: list[str]) -> list[str]:
    """Return the lines of an argument that is a list, an item on each."""
    return ["    [", *(f"        {item}," for item in items), "    ],"] if items else ["    [],"]


def _row(case: Case, row: Row, v: int = 1) -> str:
    return repr((case.shape.names[row.stream], tuple(case.shape.pushed(row, v).values())))

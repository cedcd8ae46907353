"""The description as text."""

from __future__ import annotations

from collections.abc import Iterator

from eddy.show.description import (
    BenefitDescription,
    Description,
    JoinPlan,
    Node,
    PredictionDescription,
    Reasons,
    StemDescription,
)


def bytes_text(count: int) -> str:
    """Return a number of bytes with a unit.

    >>> bytes_text(20480)
    '20.0 KiB'
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def as_text(shown: Description) -> str:
    """Return the description as text: plans as trees, keys, routes, reasons, groups, filters."""
    lines: list[str] = []
    if shown.queries or not shown.joins:
        lines += [f"{shown.title}: {_count(shown.arrivals)} arrivals, {_count(shown.late)} late"]
        lines += [
            f"query {query.name}: {query.state}, version {query.version}, {query.results:,} results: {query.text}"
            for query in shown.queries
        ]
    elif shown.waiting is not None:
        lines += [str(shown.query), f"{shown.waiting:,} matches whose partners are counted, or rows that wait"]
    for join in shown.joins:
        if lines:
            lines.append("")
        if join.title:
            lines.append(join.title)
        lines += _join_lines(join)
    return "\n".join([*lines, *shown.groups, *shown.filters])


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _join_lines(join: JoinPlan) -> Iterator[str]:
    yield f"plan {join.plan}"
    if join.strategy:
        yield f"strategy {join.strategy}"
    yield from (f"old plan, until its tuples have expired: {other}" for other in join.old_plans)
    yield from _tree_lines(join.tree, "  ", "")
    yield "keys"
    for key in join.keys:
        interned = "" if key.keys is None else f"  {key.keys:,} interned"
        yield f"  [{key.number}] {key.text}{interned}{'' if key.bytes is None else f'  {bytes_text(key.bytes)}'}"
    if join.routes:
        yield "routes (tuples matched per chain walked)"
    for route in join.routes:
        hops = []
        for hop in route.hops:
            to = hop.to[0] if len(hop.to) == 1 else f"({' '.join(hop.to)})"
            hops.append(f"{to} {'-' if hop.selectivity is None else f'{hop.selectivity:.3g}'}")
        walked = ""
        if route.virtual:
            share = "-" if route.walked is None else f"{route.walked:.1%}"
            walked = f"  ({share} of arrivals had matches at all leaf hops)"
        yield f"  {route.stream} → {' → '.join(hops)}{walked}"
    if join.results is not None and join.bytes is not None:
        yield f"results {join.results:,} of {_count(join.arrivals)} arrivals, state {bytes_text(join.bytes)}"
    yield from (f"compares {comparison.text}" for comparison in join.comparisons)
    if join.where:
        yield f"where {' and '.join(join.where)}"
    if join.reasons is not None:
        yield from _reason_lines(join, join.reasons)


def _tree_lines(node: Node, prefix: str, branch: str) -> Iterator[str]:
    if isinstance(node, StemDescription):
        yield prefix + branch + _stem_line(node)
        return
    on = ", ".join(f"[{c}]" for c in node.on)
    if node.stair is not None:
        pending = f"{node.stair.pending:,} keys to complete" if node.stair.pending else "complete"
        about = f"STAIR by [{node.stair.by}], entries {node.stair.entries:,}, {pending}  {bytes_text(node.stair.bytes)}"
    else:
        about = "(results)" if node.root else "(presence words)" if node.words else "(virtual: computed on probe)"
    yield prefix + branch + f"join on {on}  {about}"
    inside = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    yield from _tree_lines(node.left, inside, "├─ ")
    yield from _tree_lines(node.right, inside, "└─ ")


def _stem_line(stem: StemDescription) -> str:
    text = f"SteM {stem.stream} [{stem.window}{', from the intervals' if stem.derived else ''}]"
    figures = stem.figures
    if figures is None:
        return text
    text += f"  rows {figures.rows:,}  arrivals {figures.arrivals:,}  expired {figures.expired:,}"
    text += "" if figures.late is None else f"  late {figures.late:,}"
    text += "" if figures.bytes is None else f"  {bytes_text(figures.bytes)}"
    return f"{text}  no-good marks {figures.marks:,}" if figures.marks else text


def _reason_lines(join: JoinPlan, reasons: Reasons) -> Iterator[str]:
    if reasons.sampling:
        yield (
            f"policy {reasons.policy}: {reasons.samples:,} samples, {reasons.decisions:,} decisions,"
            f" {reasons.changes:,} changes, {1e3 * reasons.seconds:,.1f} ms in total"
        )
        if join.last is not None:
            yield f"  last change at arrival {join.last.position:,}: {join.last.reason or 'no reason given'}"
    else:
        yield f"policy {reasons.policy}: statistics are off, so the plan stays"
    if (room := reasons.room) is not None:
        yield (
            f"max_bytes {bytes_text(room.max_bytes)}: windows, keys and payload {bytes_text(room.base)},"
            f" room for states {bytes_text(max(room.max_bytes - room.base, 0))}, used {bytes_text(room.stored)}"
        )
    if not reasons.predicted:
        return
    if reasons.present is None:
        yield "no arrivals yet, so there are no predictions"
        return
    measured = "too few arrivals to measure" if reasons.measured is None else f"measured {reasons.measured:,.0f}"
    yield f"present {_plan_text(reasons.present)}"
    yield f"  ns per arrival: predicted {reasons.present.ns:,.0f}, {measured}"
    if reasons.considered:
        remark = (
            ""
            if reasons.present_cost is None
            else f", when the present plan was predicted at {reasons.present_cost:,.0f}"
        )
        yield f"considered last at arrival {reasons.considered_at:,}{remark}"
        for tried in reasons.considered:
            margin = f" ({tried.ns / reasons.present_cost - 1:+.1%})" if reasons.present_cost else ""
            yield f"  {tried.ns:,.0f}{margin}{', the same routes as now' * tried.alike}  {_plan_text(tried)}"
        if reasons.more:
            yield f"  and {reasons.more:,} more"
    if reasons.benefits:
        yield "inner states (predicted ns per arrival of any stream)"
        yield from map(_benefit_line, reasons.benefits)
        if reasons.more_states:
            yield f"  and {reasons.more_states:,} more"


def _plan_text(prediction: PredictionDescription) -> str:
    return f"{prediction.plan}, {'stored ' + ', '.join(prediction.stored) if prediction.stored else 'nothing stored'}"


def _benefit_line(gain: BenefitDescription) -> str:
    return (
        f"  {gain.state}  saves {gain.saved:,.1f}, upkeep {gain.upkeep:,.1f}, net {gain.net:+,.1f}"
        f"  about {gain.entries:,.0f} entries, {bytes_text(gain.bytes)}  {'stored' if gain.stored else 'not stored'}"
    )

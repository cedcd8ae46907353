"""What the ratios of `limit`, `transitions`, `adaptivity`, `filters` and `streaming` are called and should reach, and
their tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import filters, streaming
from bench.adaptivity import RATIOS, wanted
from bench.families import SHAPES
from bench.harness.tables import number
from bench.limit import BARS
from bench.transitions import BARS as MOST
from eddy import EddyError
from jisc.strategies import STRATEGIES

WINDOWS, POWERS = (1_000, 10_000, 100_000, 1_000_000), ("10³", "10⁴", "10⁵", "10⁶")

TITLES = {
    "W1.engine_vs_loop": "W1, four streams on one key: engine / hand-written loop, row ids out",
    "W1.arrow_vs_loop": "W1, Arrow batches in, Arrow tables out / hand-written loop",
    "W1.batch1000_vs_batch100000": "W1, engine: pushes of 1 000 / pushes of 100 000",
    "W1.arrow_batch1000_vs_batch100000": "W1, Arrow: pushes of 1 000 / pushes of 100 000",
    "W1.arrow_vs_polars_microbatch": "W1, Arrow / Polars in micro-batches of 50 000, one thread each",
    "W2.engine_vs_loop": "W2, a chain of four streams, three attributes: engine / hand-written loop",
    "W2.arrow_vs_loop": "W2, Arrow batches in, Arrow tables out / hand-written loop",
    "W2.batch1000_vs_batch100000": "W2, engine: pushes of 1 000 / pushes of 100 000",
    "W2.arrow_batch1000_vs_batch100000": "W2, Arrow: pushes of 1 000 / pushes of 100 000",
    "W21.engine_vs_loop": "W21, 21 streams, every arrival joins all the way: engine / hand-written loop",
    "W21.batch1000_vs_batch100000": "W21, engine: pushes of 1 000 / pushes of 100 000",
    "W1.loop_tuples_per_s": "W1, hand-written loop, tuples/s",
    "W1.engine_tuples_per_s": "W1, engine, tuples/s",
    "W1.arrow_tuples_per_s": "W1, Arrow in and out, tuples/s",
    "W1.polars_tuples_per_s": "W1, Polars in micro-batches, tuples/s",
    "W2.loop_tuples_per_s": "W2, hand-written loop, tuples/s",
    "W2.engine_tuples_per_s": "W2, engine, tuples/s",
    "W2.arrow_tuples_per_s": "W2, Arrow in and out, tuples/s",
    "W21.loop_tuples_per_s": "W21, hand-written loop, tuples/s",
    "W21.engine_tuples_per_s": "W21, engine, tuples/s",
    "spark.rows_vs_identity": "Spark, rows: join / a `mapInArrow` that does nothing, same rows",
    "spark.packed_vs_rows": "Spark: packed transport / rows",
    "state.bytes_per_live_tuple": "W1, bytes of state per live tuple, payload included",
}
"""What each figure of `limit` is, in the order of the table."""

TRANSITION_TITLES = {
    "normal.jisc_vs_symmetric_hash": "No transition, the worse of W1 and W21: CPU time, jisc / symmetric-hash",
    "normal.W1.jisc_vs_symmetric_hash": "W1, four streams on one key: jisc / symmetric-hash",
    "normal.W1.jisc_after_transitions_vs_symmetric_hash": "W1: jisc, back from another plan / symmetric-hash",
    "normal.W21.jisc_vs_symmetric_hash": "W21, 21 streams, every arrival joins all the way: jisc / symmetric-hash",
    "normal.W21.jisc_after_transitions_vs_symmetric_hash": "W21: jisc, back from another plan / symmetric-hash",
    "pause.jisc_vs_steady_batch": "20 joins, all states change: longest pause under jisc / median push before",
    "pause.jisc_latency_vs_steady_batch": "the call and the first push / median push before",
    "pause.steady_max_vs_steady_batch": "longest push before / median push before",
    "pause.jisc_vs_steady_batch_cpu": "longest pause under jisc / median push before, CPU time",
    "pause.jisc_latency_vs_steady_batch_cpu": "the call and the first push / median push before, CPU time",
    "pause.steady_max_vs_steady_batch_cpu": "longest push before / median push before, CPU time",
    "pause.moving_state_vs_jisc.1000": "Longest pause, moving-state / jisc, windows of 10³",
    "pause.moving_state_vs_jisc.10000": "the same, windows of 10⁴",
    "pause.moving_state_vs_jisc.100000": "the same, windows of 10⁵",
    "pause.moving_state_vs_jisc.1000000": "the same, windows of 10⁶",
    "pause.moving_state_vs_jisc.1000000.streams": "streams there (21 at the others)",
    "latency.moving_state_vs_jisc.1000": "Until there is output again, moving-state / jisc, windows of 10³",
    "latency.moving_state_vs_jisc.10000": "the same, windows of 10⁴",
    "latency.moving_state_vs_jisc.100000": "the same, windows of 10⁵",
    "latency.moving_state_vs_jisc.1000000": "the same, windows of 10⁶, four streams",
    "transition_call_ms": "`transition` under jisc, 20 joins, all states change, ms",
    "transition_call_first_ms": "the same, to a plan never seen before, ms",
}
"""What each figure of `transitions` is, in the order of the table."""

UNSAID = {f"pause.moving_state_vs_jisc.{rows}.streams" for rows in (1_000, 10_000, 100_000)}
"""Figures that say what everybody knows: always 21."""

BY_STRATEGY = {
    "No transition: speed in terms of that of mjoin": {
        "W1": "normal.W1.{}_vs_mjoin",
        "W21": "normal.W21.{}_vs_mjoin",
    },
    **{
        title: {f"windows of {power}": f"{figure}.{{}}.{rows}" for power, rows in zip(POWERS, WINDOWS, strict=True)}
        for figure, title in {
            "latency_ms": "A transition that changes all states: ms until there is output again",
            "pause_ms": "Longest pause within a turnover of the windows after it, ms",
            "steady_max_ms": "Longest push within the turnover before it, ms",
        }.items()
    },
}
"""Tables with a row for each strategy: by title, its columns as the names of their figures."""

ADAPTIVITY_TITLES = {
    "adaptivity.shapes": "Shapes measured",
    "adaptivity.reached": "of them all that is wanted is reached",
}
"""What each figure of `adaptivity` over all shapes is."""

BY_SHAPE = {
    "Speed of the default in terms of that of others": {
        "best fixed plan": "{}.vs_best_fixed",
        "best plan of each phase": "{}.vs_best_per_phase",
        "default order": "{}.vs_default_order",
        "CACQ": "{}.vs_cacq",
        "all states stored": "{}.vs_all_stored",
    },
    "What there is to win, and what was done": {
        "fixed plans": "{}.n_fixed",
        "time of the worst / of the best": "{}.worst_fixed_vs_best",
        "of the best per phase / of the best": "{}.best_fixed_vs_best_per_phase",
        "changes of plan": "{}.transitions",
        "results an arrival": "{}.results_per_arrival",
        "cost of statistics": "{}.statistics_cost",
    },
}
"""Tables with a row for each shape."""

OF_SHAPES = (
    *(f"{ratio}_{end}" for ratio in RATIOS[:2] for end in ("least", "most")),
    *("reached", "n_screened_out", "best_fixed_plan", "worst_fixed_plan"),
)
"""Figures of a shape that no table shows."""


STREAMING_TITLES = {
    "vs_spark_stream_joins.rows": "Rows a second in micro-batches of 500 000, rows transport / Spark's joins",
    "vs_spark_stream_joins.packed": "the same, packed transport",
    "fixed_cost_s": "A micro-batch of 4 000 rows over 1 M live rows, 64 key groups, less an empty foreachBatch, s",
    "recovery_s": "The same after every live engine was lost, less a usual one, s",
    "scaling_1_to_2": "Rows a second of local[2] / local[1], packed, micro-batches of 4 M rows",
    "streaming.large.scaling_1_to_2": "the same, micro-batches of 500 000 rows",
    "streaming.small_batch_s": "A micro-batch of 4 000 rows over 1 M live rows, s",
    "streaming.empty_batch_s": "A micro-batch of an empty foreachBatch over the same sources, s",
    "streaming.state_rows": "Live rows of that state",
    "streaming.state_bytes": "Bytes of its live engines",
}
"""What each figure of `streaming` is."""

BY_STEP = {
    "Rows a second, micro-batches of 50 000 rows (small) and 500 000 (large)": {
        "rows transport": "streaming.{}.rows_rows_per_s",
        "packed transport": "streaming.{}.packed_rows_per_s",
        "Spark's joins": "streaming.{}.spark_rows_per_s",
        "rows / Spark's": "streaming.{}.vs_spark_stream_joins.rows",
        "packed / Spark's": "streaming.{}.vs_spark_stream_joins.packed",
    }
}

BY_WORKLOAD = {
    "Speed of a filter that adapts in terms of that of others": {
        "best fixed order": "{}.adaptive_vs_best_fixed",
        "worst fixed order": "{}.adaptive_vs_worst_fixed",
        "order given": "{}.adaptive_vs_given",
        "share of time for sampling": "{}.sampling_share",
        "changes of order": "{}.changes_of_order",
    }
}
"""Tables with a row for each workload of `filters`."""


@dataclass(frozen=True)
class Section:
    """The tables of one benchmark.

    name     the benchmark
    titles   what each figure is
    wanted   what figures should reach, or not exceed, as text
    grids    tables by strategy, as BY_STRATEGY, or by what `rows` are
    unsaid   figures which no table shows
    head     what the rows are
    """

    name: str
    titles: Mapping[str, str]
    wanted: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unsaid: frozenset[str] = frozenset()
    head: str = "strategy"
    rows: tuple[str, ...] = tuple(STRATEGIES)

    @property
    def figures(self) -> set[str]:
        """The names of all its figures."""
        patterns = [pattern for grid in self.grids.values() for pattern in grid.values()]
        return {*self.titles, *self.unsaid, *(p.format(row) for p in patterns for row in self.rows)}


LIMIT = Section("limit", TITLES, {name: f"≥ {least:g}" for name, least in BARS.items()})
TRANSITIONS = Section(
    "transitions",
    TRANSITION_TITLES,
    {name: f"≤ {most:g}" for name, most in MOST.items()},
    BY_STRATEGY,
    frozenset(UNSAID),
)
ADAPTIVITY = Section(
    "adaptivity",
    ADAPTIVITY_TITLES,
    {f"{name}.{ratio}": f"≥ {least:g}" for name, shape in SHAPES.items() for ratio, least in wanted(shape).items()},
    BY_SHAPE,
    frozenset(f"{shape}.{figure}" for shape in SHAPES for figure in OF_SHAPES),
    "shape",
    tuple(SHAPES),
)
FILTERS = Section("filters", {}, grids=BY_WORKLOAD, head="workload", rows=filters.WORKLOADS)
STREAMING = Section(
    "streaming",
    STREAMING_TITLES,
    {name: f"≥ {least:g}" for name, least in streaming.LEAST.items()}
    | {name: f"≤ {most:g}" for name, most in streaming.MOST.items()},
    BY_STEP,
    frozenset({"streaming.results_compared"}),
    "micro-batches",
    tuple(streaming.FULL.steps),
)
SECTIONS = (LIMIT, TRANSITIONS, ADAPTIVITY, FILTERS, STREAMING)


class UntitledFigure(EddyError):
    """A figure that no table has a place for."""


def tables(figures: Mapping[str, Any], section: Section) -> list[str]:
    """Return the figures of a benchmark as lines of Markdown tables. Raises UntitledFigure for one it does not know."""
    unknown = sorted(set(figures) - {"machine"} - section.figures)
    if unknown:
        raise UntitledFigure(f"{section.name}: no title for {', '.join(unknown)}: give it one in bench/ratios.py")
    lines = []
    if any(name in figures for name in section.titles):
        lines = ["| what | measured | wanted |", "|---|---|---|"]
    for name, title in section.titles.items():
        if name in figures:
            lines.append(f"| {title} | {number(figures[name])} | {section.wanted.get(name, '')} |")
    for title, columns in section.grids.items():
        lines += _grid(title, columns, figures, section)
    return lines


def _grid(title: str, columns: Mapping[str, str], figures: Mapping[str, Any], section: Section) -> list[str]:
    """Return a table with a row for each strategy or shape; rows and columns without any figure are left out."""
    rows = {name: [pattern.format(name) for pattern in columns.values()] for name in section.rows}
    shown = [k for k in range(len(columns)) if any(row[k] in figures for row in rows.values())]
    if not shown:
        return []
    heads = " | ".join(list(columns)[k] for k in shown)
    lines = ["", f"{title}:", "", f"| {section.head} | {heads} |", "|---" * (1 + len(shown)) + "|"]
    for name, row in rows.items():
        if any(cell in figures for cell in row):
            cells = [_cell(row[k], figures, section) for k in shown]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(name: str, figures: Mapping[str, Any], section: Section) -> str:
    if name not in figures:
        return ""
    return number(figures[name]) + (f" ({section.wanted[name]})" if name in section.wanted else "")

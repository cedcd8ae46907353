"""Rewrites the tables of figures in the README from what the benchmarks of `eddy bench` wrote.

    python -m bench.readme FILE...

The tables of each benchmark stand between two marker comments. Figures come from the files and nowhere else; what a
file lacks is left out, a benchmark without any figure keeps its tables, and tables say on what machine and with which
versions they were measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import streaming
from bench.adaptivity import RATIOS, wanted
from bench.families import SHAPES
from bench.limit import BARS
from bench.transitions import BARS as MOST
from eddy import EddyError
from jisc.strategies import STRATEGIES

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
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
    "scaling_1_to_2": "Rows a second of local[2] / local[1], packed",
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


@dataclass(frozen=True)
class Section:
    """The tables of one benchmark.

    name     the benchmark
    begin    the marker before its tables, and `end` the one after them
    titles   what each figure is
    wanted   what figures should reach, or not exceed, as text
    grids    tables by strategy, as BY_STRATEGY, or by what `rows` are
    unsaid   figures which no table shows
    head     what the rows are
    """

    name: str
    begin: str
    end: str
    titles: Mapping[str, str]
    wanted: Mapping[str, str]
    grids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unsaid: frozenset[str] = frozenset()
    head: str = "strategy"
    rows: tuple[str, ...] = tuple(STRATEGIES)

    @property
    def figures(self) -> set[str]:
        """The names of all its figures."""
        patterns = [pattern for grid in self.grids.values() for pattern in grid.values()]
        return {*self.titles, *self.unsaid, *(p.format(row) for p in patterns for row in self.rows)}


LIMIT = Section("limit", BEGIN, END, TITLES, {name: f"≥ {least:g}" for name, least in BARS.items()})
TRANSITIONS = Section(
    "transitions",
    "<!-- figures of transitions -->",
    "<!-- /figures of transitions -->",
    TRANSITION_TITLES,
    {name: f"≤ {most:g}" for name, most in MOST.items()},
    BY_STRATEGY,
    frozenset(UNSAID),
)
ADAPTIVITY = Section(
    "adaptivity",
    "<!-- figures of adaptivity -->",
    "<!-- /figures of adaptivity -->",
    ADAPTIVITY_TITLES,
    {f"{name}.{ratio}": f"≥ {least:g}" for name, shape in SHAPES.items() for ratio, least in wanted(shape).items()},
    BY_SHAPE,
    frozenset(f"{shape}.{figure}" for shape in SHAPES for figure in OF_SHAPES),
    "shape",
    tuple(SHAPES),
)
STREAMING = Section(
    "streaming",
    "<!-- figures of streaming -->",
    "<!-- /figures of streaming -->",
    STREAMING_TITLES,
    {name: f"≥ {least:g}" for name, least in streaming.LEAST.items()}
    | {name: f"≤ {most:g}" for name, most in streaming.MOST.items()},
    BY_STEP,
    frozenset({"streaming.results_compared"}),
    "micro-batches",
    tuple(streaming.FULL.steps),
)
SECTIONS = (LIMIT, TRANSITIONS, ADAPTIVITY, STREAMING)


class ReadmeError(EddyError):
    """The figures cannot be put into the document."""


def number(value: float) -> str:
    """Return a figure with three digits that count.

    >>> number(0.61789), number(12.3456), number(20_123_456.0), number(143.2)
    ('0.618', '12.3', '20.1 M', '143')
    """
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(figures: Mapping[str, Any], section: Section = LIMIT) -> str:
    """Return the figures of a benchmark as Markdown tables under a line that names the machine.

    Figures of other benchmarks are left out. Raises ReadmeError for a bad file.
    """
    machine = figures.get("machine")
    if not isinstance(machine, str) or not machine:
        raise ReadmeError(f'the figures have no "machine": write the file with `eddy bench {section.name} --json FILE`')
    unknown = sorted(set(figures).difference({"machine"}, *(other.figures for other in SECTIONS)))
    if unknown:
        raise ReadmeError(f"no title for {', '.join(unknown)}: give it one in bench/readme.py")
    lines = [f"Measured on {machine}.", "", "| what | measured | wanted |", "|---|---|---|"]
    for name, title in section.titles.items():
        if name in figures:
            lines.append(f"| {title} | {number(figures[name])} | {section.wanted.get(name, '')} |")
    for title, columns in section.grids.items():
        lines += _grid(title, columns, figures, section)
    return "\n".join(lines)


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


def with_table(text: str, figures: Mapping[str, Any], section: Section = LIMIT) -> str:
    """Return a document with the tables between their markers. Raises ReadmeError unless it has them once, in order."""
    begin_at, end_at = section.begin, section.end
    head, begin, rest = text.partition(begin_at)
    _, end, tail = rest.partition(end_at)
    if not begin or not end or begin_at in rest or end_at in tail:
        raise ReadmeError(f"the document does not have {begin_at} and, after it, {end_at}, once each")
    return f"{head}{begin_at}\n\n{table(figures, section)}\n\n{end_at}{tail}"


def with_tables(text: str, figures: Mapping[str, Any]) -> str:
    """Return a document with the tables of all benchmarks that the figures are of."""
    found = [section for section in SECTIONS if section.figures & set(figures)]
    for section in found or [LIMIT]:  # without any figure the first says what is wrong
        text = with_table(text, figures, section)
    return text


def main(
    figures: Annotated[list[Path], typer.Argument(help="What `eddy bench NAME --json FILE` wrote.")],
    document: Annotated[Path, typer.Option(help="The document to rewrite.")] = README,
) -> None:
    """Rewrite the tables of figures in the README."""
    text = document.read_text()
    for file in figures:
        text = with_tables(text, json.loads(file.read_text()))
    document.write_text(text)
    typer.echo(f"{document.name}: figures of {', '.join(file.name for file in figures)}")


if __name__ == "__main__":
    typer.run(main)

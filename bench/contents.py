"""The figures of the report by chapter: their names, titles, and the modules that define them.

This module has the titles, so that commands can be listed without an import of the modules that measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

from eddy import EddyError

if TYPE_CHECKING:
    from bench.harness.figure import Figure


class UnknownFigure(EddyError):
    """No figure has this name."""


@dataclass(frozen=True)
class Chapter:
    """Figures that belong together, as {name: title}, among the FIGURES of one module."""

    title: str
    module: str
    figures: dict[str, str]


CHAPTERS = (
    Chapter("Peers", "bench.peers.comparison", {"peers": "W1 in other engines", "peers-batch": "The size of a push"}),
    Chapter("NEXMark", "bench.nexmark", {"nexmark": "Queries of NEXMark in eddy and in other systems"}),
    Chapter("Hand-written loops", "bench.limit", {"limit": "The engine and hand-written loops; transports of Spark"}),
    Chapter("Streaming", "bench.streaming", {"streaming": "Streaming jobs and Spark's own joins"}),
    Chapter(
        "Aggregates on Spark",
        "bench.spark_aggregates",
        {"spark-aggregates": "Groups of a streaming join, with one core and with two, and Spark's own"},
    ),
    Chapter("Hub", "bench.hub", {"hub": "Several queries on one hub, and as many jobs"}),
    Chapter("Spill", "bench.spill", {"spill": "Throughput of a streaming join with a part of the memory"}),
    Chapter(
        "Windows larger than memory",
        "bench.spill_runtime",
        {"spill-runtime": "A runtime whose rows are in files, with and without memory for them"},
    ),
    Chapter("Soak", "bench.soak", {"soak": "An hour of a streaming join: memory, files, time"}),
    Chapter("Adaptivity", "bench.adaptivity", {"adaptivity": "The default and all fixed plans, while data drift"}),
    Chapter("Transitions", "bench.transitions", {"transitions": "Strategies without and with changes of plan"}),
    Chapter("Strategies", "bench.strategies", {"strategies": "All strategies: throughput, longest pushes, memory"}),
    Chapter("Joins", "bench.joins", {"joins": "Comparisons, theta joins and intervals"}),
    Chapter("Aggregates", "bench.aggregates", {"aggregates": "Groups by ring values and by enumeration"}),
    Chapter("Changes", "bench.changes", {"changes": "Inputs whose rows are replaced, and other ways to follow them"}),
    Chapter(
        "Drift of tables",
        "bench.drift_of_tables",
        {"changes-drift": "The default and all fixed plans, while updates move what tables hold"},
    ),
    Chapter("As-of joins", "bench.as_of", {"as_of": "A star of versioned tables, and other ways to follow it"}),
    Chapter("Sharing", "bench.sharing", {"sharing": "Many queries in one engine, and each in a Runtime of its own"}),
    Chapter("Load shedding", "bench.shedding", {"shedding": "A burst, with and without cheaper versions of a query"}),
    Chapter("Filters", "bench.filters", {"filters": "Adaptive filters and all fixed orders of their conditions"}),
    Chapter(
        "The JISC paper",
        "bench.papers.jisc",
        {
            "fig7": "The migration stage, best case",
            "fig8": "The migration stage, worst case",
            "fig9": "Normal operation, 20 joins",
            "fig10": "Output latency after a transition",
            "fig11": "Repeated transitions, worst case",
            "fig12": "Repeated transitions, best case",
            "fig7-uniform": "The migration stage, best case, uniform keys",
            "fig8-uniform": "The migration stage, worst case, uniform keys",
            "fig9-uniform": "Normal operation, 20 joins, uniform keys",
            "fig10-uniform": "Output latency after a transition, uniform keys",
            "fig11-uniform": "Repeated transitions, worst case, uniform keys",
            "fig12-uniform": "Repeated transitions, best case, uniform keys",
            "propositions": "Complete states after a transition, propositions 1 to 3",
        },
    ),
    Chapter(
        "The plan migration paper",
        "bench.papers.migration",
        {
            "migration-fig9": "Length of a parallel-track stage over the window",
            "migration-fig10": "Length of a moving-state stage over the window",
            "migration-fig11": "Length of both stages over the rate of B",
            "migration-fig12": "Length of both stages over the window, high configuration",
            "migration-fig13": "Entries stored, low configuration",
            "migration-fig14": "Output rate, low configuration",
            "migration-fig15": "Entries stored, high configuration",
            "migration-fig16": "Output rate, high configuration",
            "migration-costs": "Work of a parallel-track stage, equations 5 to 7",
        },
    ),
    Chapter(
        "The paper on query lifecycle",
        "bench.lifecycle",
        {
            "lifecycle-fig14": "Response time of changes of a query",
            "lifecycle-fig15": "Loss, disorder and duplicates of changes of a query",
            "lifecycle-fig16": "CPU time of changes of a query",
        },
    ),
    Chapter(
        "The paper on query lifecycle, sums",
        "bench.lifecycle_sums",
        {
            "lifecycle-sum-fig14": "Response time of changes of a sliding sum",
            "lifecycle-sum-fig15": "Loss, disorder and duplicates of changes of a sliding sum",
            "lifecycle-sum-fig16": "CPU time of changes of a sliding sum",
        },
    ),
    Chapter(
        "The paper on load balancing",
        "bench.papers.balancing",
        {
            "balancing-fig7": "Results and tuples over time, four settings",
            "balancing-fig9": "Protocols over windows and rates, and the length of moves",
            "balancing-fig13": "A decision after rates have fallen",
        },
    ),
    Chapter(
        "The paper on placement",
        "bench.papers.placement",
        {
            "placement-fig4": "Cost over time of adaptive plans on nodes",
            "placement-fig5": "Overhead of plan modification and migration",
            "placement-table3": "Messages of plan modification and migration",
        },
    ),
    Chapter("Balancing", "bench.balancing", {"balancing": "Partition groups that move, simulated and on Spark"}),
    Chapter(
        "Placement",
        "bench.placement",
        {"placement": "Chains on simulated nodes: one round, several hops, and the choice"},
    ),
    Chapter(
        "Placement on Spark",
        "bench.placement_spark",
        {"placement-spark": "Batch joins of chains on Spark: one round, several hops, and the choice"},
    ),
    Chapter(
        "Costs of placement on Spark",
        "bench.placement_costs",
        {"placement-spark-costs": "Costs of the parts of a batch join on Spark: fitted, and in the code"},
    ),
    Chapter(
        "Placement of streams on Spark",
        "bench.placement_stream",
        {"placement-stream": "Streaming joins of chains on Spark: one round, several hops, and the choice"},
    ),
    Chapter("Memory", "bench.machine_limit.memory", {"latency": "The cost of an access to memory"}),
    Chapter("The floor", "bench.machine_limit.floor", {"floor": "Time per arrival, and of its memory accesses"}),
    Chapter("Profile", "bench.machine_limit.profile", {"profile": "Where a push spends its time"}),
    Chapter(
        "Growth",
        "bench.growth",
        {
            "growth-joins": "Throughput and bytes by the number of joins",
            "growth-window": "Throughput and bytes by rows of a window",
            "growth-keys": "Throughput and bytes by the number of keys and their skew",
            "growth-selectivity": "Throughput and bytes by the share of arrivals that find a partner",
            "growth-batch": "Throughput and bytes by arrivals of a push",
            "growth-results": "Throughput and bytes by results per arrival",
        },
    ),
    Chapter("Regression guard", "bench.limit", {"guard": "A few ratios, to see that a change made nothing slower"}),
)

TITLES = {name: title for chapter in CHAPTERS for name, title in chapter.figures.items()}


def load(names: Sequence[str] = ()) -> list[Figure]:
    """Return the named figures, or all of them, in the order of the report. Raises UnknownFigure."""
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        raise UnknownFigure(f"no figure {unknown[0]!r}; the figures are {', '.join(TITLES)}")
    figures = []
    for chapter in CHAPTERS:
        wanted = [name for name in chapter.figures if not names or name in names]
        if wanted:
            made = {figure.name: figure for figure in import_module(chapter.module).FIGURES}
            figures += [replace(made[name], title=TITLES[name]) for name in wanted]
    return figures

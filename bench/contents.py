"""Which figures there are, by chapter of the report, and where they are made.

Names stand here so that commands can be listed without importing anything that measures; a test holds them against the
modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from eddy import EddyError

if TYPE_CHECKING:
    from bench.harness.figure import Figure


class UnknownFigure(EddyError):
    """No figure has this name."""


@dataclass(frozen=True)
class Chapter:
    """Figures that belong together, as {name: what it shows}, made in one module."""

    title: str
    module: str
    figures: dict[str, str]


CHAPTERS = (
    Chapter(
        "Ratios: the library beside hand-written loops, fixed plans, and Spark",
        "bench.ratio_figures",
        {
            "limit": "the engine beside hand-written loops, and the ways through Spark",
            "transitions": "the strategies by which one plan takes over from another",
            "adaptivity": "the runtime that finds its plan beside all fixed plans, while the data drift",
            "filters": "filters that choose the order of their conditions beside all fixed orders",
            "streaming": "streaming joins beside Spark's own, and what a micro-batch costs at least",
        },
    ),
    Chapter(
        "The JISC paper",
        "bench.papers.jisc",
        {
            "fig7": "the migration stage by number of joins, one state incomplete",
            "fig8": "the migration stage by number of joins, all states incomplete",
            "fig9": "normal operation: jisc, symmetric hash joins and cacq",
            "fig10": "how long until there is output after a transition, hash and nested-loop joins",
            "fig11": "transitions at different frequencies, all states incomplete",
            "fig12": "transitions at different frequencies, one state incomplete",
        },
    ),
    Chapter(
        "The plan migration paper",
        "bench.papers.migration.figures",
        {
            "migration-fig9": "length of the migration stage of parallel track against the window",
            "migration-fig10": "length of the migration stage of moving state against the window",
            "migration-fig11": "length of the migration stage of both against a rate",
            "migration-fig12": "length of the migration stage of both against the window, high configuration",
            "migration-fig13": "intermediate tuples over time, low configuration",
            "migration-fig14": "output over time, low configuration",
            "migration-fig15": "intermediate tuples over time, high configuration",
            "migration-fig16": "output over time, high configuration",
        },
    ),
    Chapter(
        "Peers on the same work",
        "bench.peers.figures",
        {
            "peers": "what else a user may pick, on the same four-way join",
            "peers-batch": "the same against the size of a micro-batch",
        },
    ),
    Chapter(
        "Strategies side by side",
        "bench.strategies",
        {"strategies": "all strategies over the same arrivals: throughput, latency, stall, memory"},
    ),
    Chapter(
        "The limit: what the machine allows, and where the time goes",
        "bench.machine_limit.figures",
        {
            "latency": "what a random access costs, by the size of what is accessed",
            "floor": "the least that an arrival can cost on this machine, beside what it costs",
            "profile": "where the time of a push goes: probe, insert, route, emit, gather",
        },
    ),
    Chapter(
        "Growth",
        "bench.growth.figures",
        {
            "growth-joins": "throughput and bytes against the number of joins",
            "growth-window": "throughput and bytes against the rows of a window",
            "growth-keys": "throughput and bytes against the number of keys",
            "growth-selectivity": "throughput and bytes against the share of arrivals that find a partner",
            "growth-batch": "throughput against the size of a push",
            "growth-results": "throughput against results per arrival",
        },
    ),
    Chapter(
        "Regression guard",
        "bench.guard",
        {"guard": "a few ratios in half a minute, to hold against those of another run"},
    ),
)

NAMES = tuple(name for chapter in CHAPTERS for name in chapter.figures)


def load(names: Sequence[str] = ()) -> list[Figure]:
    """Return the figures named, or all of them, in the order of the report. Raises UnknownFigure."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise UnknownFigure(f"no figure {unknown[0]!r}; there are {', '.join(NAMES)}")
    found = []
    for chapter in CHAPTERS:
        wanted = [name for name in chapter.figures if not names or name in names]
        if wanted:
            made = {figure.name: figure for figure in import_module(chapter.module).FIGURES}
            found += [made[name] for name in wanted]
    return found

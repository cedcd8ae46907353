"""How the figures of growth are drawn and told, which they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.growth.curves import against, decisions, slopes
from bench.growth.ways import DEFAULT, JISC, LOOP, MJOIN
from bench.harness.figure import Plot, Row

TIME, BYTES, PER_TUPLE = "time per arrival", "memory held", "state per live tuple"
PER_OUTCOME = "time per arrival or result"
COMMON = (
    " Streams are joined on one key; streams of arrivals come in random order, each window is ROWS and full before the"
    " clock runs. default is a Runtime as it comes (strategy eddy, policy cost), mjoin stores nothing and keeps its"
    " plan, jisc stores all inner states; all three take Arrow batches and give Arrow tables with the key of each"
    " result. loop is the hand-written loop of bench/limit_kernels.py: keys in as an array, row ids out. All take the"
    " same arrivals in turns, round by round, and their results are compared each round. CPU time of the thread;"
    " medians and the least and most of the rounds; what default spends on samples and decisions, more at the beginning"
    " than later, is part of it and told beside it. Bytes held are state and room for a push and for its results, at"
    " the powers of two that they have grown to; bytes of state are without the room."
)


def size(full: bool, arrivals: int, quick: int) -> dict[str, int]:
    """Return arrivals of a round and the number of rounds."""
    return {"arrivals": arrivals, "rounds": 7} if full else {"arrivals": quick, "rounds": 4}


def throughput(x: str, label: str) -> Plot:
    """Return the plot of tuples per second."""
    return Plot(
        f"Throughput by {label}",
        x=x,
        y="tuples_per_s",
        by="way",
        name="throughput",
        x_label=label,
        y_label="tuples per second",
        log_x=True,
        log_y=True,
        spread=("tuples_per_s_low", "tuples_per_s_high"),
    )


def memory(x: str, label: str, y: str = "bytes") -> Plot:
    """Return the plot of bytes: those held, or those of state per live tuple."""
    what = BYTES if y == "bytes" else PER_TUPLE
    return Plot(
        f"{what.capitalize()} by {label}",
        x=x,
        y=y,
        by="way",
        name=y.replace("_", "-"),
        x_label=label,
        y_label=f"{what}, bytes",
        log_x=True,
        log_y=True,
    )


def told(x: str, by: str, what: Mapping[str, str]) -> Callable[[Sequence[Row]], list[str]]:
    """Return remarks: the slopes of these columns, and how the ways compare at both ends."""

    def remarks(rows: Sequence[Row]) -> list[str]:
        said = slopes(rows, x, by, what)
        for other in (MJOIN, JISC, LOOP):
            said += against(rows, x, by, DEFAULT, other)
        return said + decisions(rows, x, by)

    return remarks

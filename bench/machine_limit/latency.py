"""The figure `latency`: what an access to memory costs, by the size of what is accessed."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.figure import Figure, Plot, Point, Row, Say
from bench.harness.rows import number
from bench.harness.spread import spread
from bench.machine_limit.memory import LEAST, LINE, costs

KINDS = {
    "dependent": "one after the other",
    "independent": "many at a time",
    "sequential": "lines in order",
}


def points(full: bool) -> list[Point]:
    """4 KB to 1 GB by factors of 2, or to 256 MB by factors of 4."""
    most, factor = (1 << 30, 2) if full else (1 << 28, 4)
    accesses, rounds = (4_000_000, 7) if full else (1_000_000, 3)
    found: list[Point] = []
    size = LEAST
    while size <= most:
        found.append({"bytes": size, "accesses": accesses, "rounds": rounds, "seed": 1})
        size *= factor
    return found


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each kind of access: `ns` for a line of 64 bytes, and `gb_per_s`, what that is in bytes."""
    n_bytes = int(point["bytes"])
    say(f"{n_bytes:,} bytes")
    found = costs(n_bytes, int(point["rounds"]), int(point["accesses"]), int(point["seed"]))
    rows: list[Row] = []
    for kind in KINDS:
        taken = spread(getattr(found, kind), "ns")
        rows.append({"access": kind, **taken, "gb_per_s": LINE / number(taken, "ns")})
    return rows


def size_text(n_bytes: float) -> str:
    """Return so many bytes as text: 4 KB, 1 GB."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} bytes"


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say what accesses cost at both ends, how many the machine has under way, and where each step lies."""
    by = {kind: sorted((number(r, "bytes"), number(r, "ns")) for r in rows if r["access"] == kind) for kind in KINDS}
    said = []
    for kind, name in KINDS.items():
        if len(by[kind]) < 2:
            continue
        (small, least), (large, most) = by[kind][0], by[kind][-1]
        said.append(
            f"A line of {LINE} bytes, {name}: {least:.3g} ns in {size_text(small)}, {most:.3g} ns in"
            f" {size_text(large)}, {most / least:.3g} times as long."
        )
    if by["dependent"] and by["independent"] and by["dependent"][-1][0] == by["independent"][-1][0]:
        one, many = by["dependent"][-1][1], by["independent"][-1][1]
        said.append(
            f"In {size_text(by['dependent'][-1][0])} about {one / many:.2g} independent accesses are under way at once."
            if one > many
            else "Independent accesses are no faster than dependent ones here."
        )
    steps = [
        f"{size_text(after[0])} (× {after[1] / before[1]:.2g})"
        for before, after in zip(by["dependent"], by["dependent"][1:], strict=False)
        if after[1] > 1.5 * before[1]
    ]
    if steps:
        said.append(f"A dependent access takes over 1.5 × as long as at the size before in {', '.join(steps)}.")
    return said


LATENCY = Figure(
    name="latency",
    title="What an access to memory costs",
    about=(
        "Random accesses to cache lines of a working set: each naming the next (a chase through one random cycle of"
        " all lines), or none depending on another (addresses computed, values added up); and a sum over the same"
        " memory from front to end. CPU time per line of 64 bytes, the loop around it included: in the smallest working"
        " sets an independent access is the arithmetic of its address. Memory is NumPy's, as the engine's is, so misses"
        " of the address translation are in it. One thread."
    ),
    points=points,
    measure=measure,
    plots=[
        Plot(
            "Time per cache line",
            x="bytes",
            y="ns",
            by="access",
            x_label="working set, bytes",
            y_label="ns per line",
            log_x=True,
            log_y=True,
            spread=("ns_low", "ns_high"),
        ),
    ],
    remarks=remarks,
)

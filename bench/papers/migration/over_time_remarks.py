"""What the data of figures 13 to 16 say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.harness.figure import Row
from bench.papers.migration.arrivals import Setting
from bench.papers.migration.cost_model import pairs_looked_at
from bench.papers.migration.rows import number, value

MS, PT, JISC = "moving-state", "parallel-track", "jisc"
NEW_ONLY, OLD_ONLY = "new plan only", "old plan only"
CHANGING = (MS, PT, JISC)
PAPER_SILENCE_MS = 10_000.0
"""Sec. 6.3: "noticeable output silence between 10,000ms and 20,000ms" of moving-state, in the high configuration."""
ALIKE = 1.1
"""Two figures whose ratio is below this are called alike."""


def cases(rows: Sequence[Row]) -> Iterable[tuple[int, dict[str, Row]]]:
    """Yield each scale with the rows of its cases, where all five are there."""
    own = [row for row in rows if row.get("shows") == "case" and row.get("scale") is not None]
    for scale in sorted({int(row["scale"] or 0) for row in own}):
        found = {str(row["case"]): row for row in own if row["scale"] == scale}
        if {*CHANGING, NEW_ONLY, OLD_ONLY} <= found.keys():
            yield scale, found


def _in_words(ms: float | None) -> str:
    return "not before the stream ends" if ms is None else f"after {ms:,.0f} ms"


def _beside(one: float, other: float) -> str:
    """Return one figure in terms of another, in words."""
    return f"{one / other:.2f} times as many" if other else ("as many" if one == other else "more than none")


def entries(rows: Sequence[Row]) -> list[str]:
    """Remarks of figures 13 and 15."""
    said = []
    for scale, found in cases(rows):
        old, new = (value(found[case], "mean_entries") for case in (OLD_ONLY, NEW_ONLY))
        if old and new:
            larger = "the old plan stores more, as in the paper" if old > new else "that is not as in the paper"
            said.append(
                f"At scale {scale} the old plan alone stores {old:,.0f} entries on average after the moment of the"
                f" change and the new one {new:,.0f}: {larger}."
            )
        levels = {case: value(found[case], "level_ms") for case in CHANGING}
        said.append(
            f"At scale {scale} entries are at the new plan's level {_in_words(levels[MS])} under moving-state,"
            f" {_in_words(levels[PT])} under parallel-track, {_in_words(levels[JISC])} under jisc:"
            f" {_earlier(levels[MS], levels[PT])}"
        )
        said += _stored_in_stage(found, scale)
    return said


def _stored_in_stage(found: dict[str, Row], scale: int) -> list[str]:
    """Say what is stored in the stage, and hold it against the paper where the old plan is too much."""
    moving, parallel, lazy = (value(found[case], "stage_entries") for case in CHANGING)
    if moving is None or parallel is None or lazy is None:
        return []
    said = (
        f"At scale {scale}, in the 2 W after the change, {parallel:,.0f} entries are stored on average under"
        f" parallel-track, {moving:,.0f} under moving-state ({_beside(parallel, moving)} under the first) and"
        f" {lazy:,.0f} under jisc"
    )
    if number(found[OLD_ONLY], "load") > 1:
        said += "; the paper has fewer under parallel-track at this load, "
        said += (
            "and so has this run"
            if parallel < moving
            else "which does not reproduce: its moving-state holds all tuples for as long as it recomputes, and here"
            f" that is {number(found[MS], 'stall_ms'):,.0f} ms on the clock"
        )
    return [f"{said}."]


def _earlier(moving: float | None, parallel: float | None) -> str:
    if moving is None and parallel is None:
        return "neither of the paper's two gets there."
    if parallel is None or (moving is not None and moving < parallel):
        return "moving-state is there earlier than parallel-track, as in the paper."
    if moving == parallel:
        return "moving-state and parallel-track are there together, where the paper has moving-state first."
    return "parallel-track is there earlier than moving-state, which is not as in the paper."


def _silence(found: dict[str, Row], scale: int) -> list[str]:
    """Say how long there was no output around the change, and how long is usual."""
    parts = [
        f"{value(found[case], 'silence_ms') or 0:,.0f} ms under {case}"
        f" ({value(found[case], 'silence_before_ms') or 0:,.0f} ms before it)"
        for case in CHANGING
    ]
    stall = value(found[MS], "stall_ms") or 0.0
    return [
        f"At scale {scale} the longest output silence around the change is {', '.join(parts)};"
        f" moving-state's call of `transition` takes {stall:,.0f} ms on the clock. Output comes in pushes of 250 ms"
        " of stream time, so there is silence between them anyway."
    ]


def _outputs(found: dict[str, Row], scale: int) -> list[str]:
    """Say who has more output in the stage."""
    results = {case: int(value(found[case], "stage_results") or 0) for case in CHANGING}
    beside = _beside(results[PT], results[MS])
    return [
        f"At scale {scale}, in the 2 W after the change, {results[PT]:,} results come out under parallel-track,"
        f" {results[MS]:,} under moving-state ({beside} under the first) and {results[JISC]:,} under jisc."
    ]


def _processor(found: dict[str, Row], scale: int) -> list[str]:
    """Say what the clock is."""
    loads = {case: value(found[case], "load") or 0.0 for case in found}
    factor = value(found[OLD_ONLY], "slow_down") or 0.0
    return [
        f"At scale {scale} the processor of the clock is {factor:,.0f} times slower than this one; the old plan then"
        f" asks for {loads[OLD_ONLY]:.2f} of the time there is and the new one for {loads[NEW_ONLY]:.2f}."
    ]


def output_low(rows: Sequence[Row]) -> list[str]:
    """Remarks of figure 14."""
    said = []
    for scale, found in cases(rows):
        said += [*_processor(found, scale), *_silence(found, scale), *_outputs(found, scale)]
        counts = [value(found[case], "stage_results") or 0.0 for case in (MS, PT)]
        alike = max(counts) < ALIKE * min(counts) or counts[0] == counts[1]
        verdict = "neither has a strong advantage, as in the paper" if alike else "which the paper does not have"
        said.append(f"At scale {scale}, moving-state and parallel-track beside each other: {verdict}.")
    return said


def output_high(rows: Sequence[Row]) -> list[str]:
    """Remarks of figure 16."""
    said = []
    for scale, found in cases(rows):
        said += [*_processor(found, scale), *_silence(found, scale), *_outputs(found, scale)]
        said.append(_against_paper(found, scale))
        results = [value(found[case], "stage_results") or 0.0 for case in (MS, PT)]
        if results[1] > ALIKE * results[0]:
            said.append(f"At scale {scale} parallel-track has the better output rate in the stage, as in the paper.")
        else:
            said.append(
                f"At scale {scale} parallel-track has no better output rate in the stage than moving-state, where the"
                f" paper's has. It runs both plans in the stage; moving-state's stall is"
                f" {value(found[MS], 'stall_ms') or 0:,.0f} ms and then it runs the new one alone."
            )
        behind = {case: value(found[case], "behind_ms") or 0.0 for case in found}
        listed = ", ".join(f"{behind[case]:,.0f} ms under {case}" for case in (*CHANGING, NEW_ONLY))
        worst = behind[OLD_ONLY] > ALIKE * max(behind[case] for case in (*CHANGING, NEW_ONLY))
        verdict = "all others outperform it, as in the paper" if worst else "not all others outperform it"
        said.append(
            f"At scale {scale} the last push comes out {behind[OLD_ONLY]:,.0f} ms late under the old plan, {listed}:"
            f" {verdict}."
        )
    return said


def _against_paper(found: dict[str, Row], scale: int) -> str:
    """Hold the silence of moving-state against the paper's."""
    silence, parallel = (value(found[case], "silence_ms") or 0.0 for case in (MS, PT))
    beside = (
        f"At scale {scale} the silence of moving-state is {silence:,.0f} ms, {silence - parallel:+,.0f} ms beside"
        f" parallel-track's, where the paper shows about {PAPER_SILENCE_MS:,.0f} ms"
    )
    if silence >= PAPER_SILENCE_MS / 2:
        return f"{beside}: it reproduces."
    said = (
        f"{beside}: that does not reproduce. Here states are computed by hash, from the pairs that join; the paper's"
        " system joins by nested loops, works off its backlog first and runs other queries beside this one."
    )
    if scale == 1:
        pairs = pairs_looked_at(Setting.of(found[MS]))
        said += (
            f" Eq. 8 has {pairs:,.0f} pairs of tuples looked at, each of which would take"
            f" {PAPER_SILENCE_MS / pairs:.2g} ms if that were all of the paper's silence."
        )
    return said

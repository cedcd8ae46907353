"""What the streaming part of the demo shows, while it runs and at the end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from eddy.demo.stream import Course, Story, Verdict
from eddy.demo.transfers import COLUMNS, LATENESS, WINDOW, Arrivals

SHORT = {name: name[0].upper() for name in COLUMNS}
CHANGES_SHOWN = 4
PLANS_SHOWN = 3
NEWEST = 6
"""Micro-batches shown while it runs: a terminal may have few lines."""


def short(plan: str) -> str:
    """Write a plan with one letter for a stream.

    >>> short("((transfers logins) payees) warnings")
    '((TL)P)W'
    """
    for name, letter in SHORT.items():
        plan = plan.replace(name, letter)
    return plan.replace(" ", "")


def introduction(course: Course, arrivals: Arrivals) -> str:
    """Say what is going to happen."""
    before, after = course.partitions
    return (
        f"Transfers with the login they were made from, their payee and a warning, all of one account and within "
        f"{WINDOW.seconds} s; rows come up to {LATENESS.seconds} s out of order.\n"
        f"{arrivals.rows:,} rows in {course.batches} files a stream, one every {course.pause_s} s. {course.key_groups} "
        f"key groups, each with an engine and a plan of its own, in {before} partitions, after a restart in {after}. "
        "Half way the data drift.\n"
    )


def view(story: Story, newest: int | None = None) -> Group:
    """Give the table as it stands, a row for each micro-batch or the newest ones, and what happened beside it."""
    table = Table(
        title="Micro-batches  (" + ", ".join(f"{letter} {name}" for name, letter in SHORT.items()) + ")",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for heading in ("batch", "rows", "results", "watermark", "s"):
        table.add_column(heading, justify="right")
    table.add_column("plans of the key groups")
    table.add_column("engines")
    table.add_column("changes", justify="right")
    for batch in sorted(story.rows)[-newest if newest else 0 :]:
        table.add_row(*_cells(story.rows[batch], story.groups.get(batch, [])))
    events = [Text(f"batch {batch}: {what}", "yellow") for batch, what in story.events]
    return Group(table, *events)


def _cells(row: dict[str, Any], groups: list[dict[str, Any]]) -> list[str]:
    plans = Counter(short(one["plan"]) for one in groups)
    engines = Counter(one["source"] for one in groups)
    shown = [f"{count} {plan}" for plan, count in plans.most_common(PLANS_SHOWN)]
    return [
        str(row["batch"]),
        f"{row['rows']:,}",
        f"{row['results']:,}",
        "" if row["watermark"] is None else f"{datetime.fromtimestamp(row['watermark'] / 1e6, UTC):%H:%M:%S}",
        f"{sum(row[f'{step}_seconds'] for step in ('log', 'join', 'commit', 'publish')):.1f}",
        "  ".join(shown) + (" …" if len(plans) > PLANS_SHOWN else ""),
        ", ".join(f"{count} {source}" for source, count in engines.most_common()),
        str(row["transitions"]),
    ]


def reasons(story: Story) -> list[str]:
    """Say which changes of plan were most frequent since the drift, and why the first of each was made."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in story.changes():
        if story.drift is None or one["batch"] < story.drift:
            continue
        found.setdefault((one["before"], one["plan"]), []).append(one)
    frequent = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        f"{short(before)} → {short(plan)}  {len(own)} times, first in batch {own[0]['batch']}, key group "
        f"{own[0]['group']};  {own[0]['reason']}"
        for (before, plan), own in frequent[:CHANGES_SHOWN]
    ]


def print_end(console: Console, story: Story, verdict: Verdict) -> None:
    """Print why plans changed, what the faults cost and whether the results are exact."""
    console.print("\n[bold]Why plans changed after the drift[/]")
    for line in reasons(story) or ["none did"]:
        console.print(Text(line), soft_wrap=True)
    console.print(
        f"\n{verdict.results:,} results of {len(story.rows)} micro-batches, in {story.starts} starts; "
        f"{verdict.expected:,} by counting, without a join."
    )
    if verdict.wrong is None:
        console.print("[bold green]exact[/]: each transfer is in as many results as counting says, none is there twice")
    else:
        console.print(f"[bold red]not exact: {verdict.wrong}; this is a defect, please report it.[/]")


def figures(course: Course, story: Story, verdict: Verdict, seconds: float) -> dict[str, Any]:
    """Give all of it as objects that JSON has."""
    return {
        "seconds": seconds,
        "partitions": list(course.partitions),
        "key_groups": course.key_groups,
        "results": verdict.results,
        "expected": verdict.expected,
        "exact": verdict.wrong is None,
        "wrong": verdict.wrong,
        "starts": story.starts,
        "killed": {"process": story.killed, "failed_tasks": story.failed_tasks},
        "events": [{"batch": batch, "event": what} for batch, what in story.events],
        "plan_changes": [
            {key: one[key] for key in ("batch", "group", "before", "plan", "reason")} for one in story.changes()
        ],
        "batches": [
            {
                **story.rows[batch],
                "plans": Counter(one["plan"] for one in story.groups.get(batch, [])),
                "engines": Counter(one["source"] for one in story.groups.get(batch, [])),
            }
            for batch in sorted(story.rows)
        ],
    }

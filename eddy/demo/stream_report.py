"""The output of the streaming demo, while it runs and at the end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from eddy.demo.scenario import RunRecord, Scenario, ScenarioOutcome
from eddy.demo.transfers import COLUMNS, LATENESS, WINDOW, TransferArrivals

SHORT = {name: name[0].upper() for name in COLUMNS}
CHANGES_SHOWN = 4
PLANS_SHOWN = 3
NEWEST = 6
"""Micro-batches shown during the run: a terminal may have few lines."""


def short(plan: str) -> str:
    """Return a plan with one letter for each stream.

    >>> short("((transfers logins) payees) warnings")
    '((TL)P)W'
    """
    for name, letter in SHORT.items():
        plan = plan.replace(name, letter)
    return plan.replace(" ", "")


def introduction(scenario: Scenario, arrivals: TransferArrivals) -> str:
    """Return a description of the scenario."""
    before, after = scenario.partitions
    return (
        f"Joins transfers with their login, their payee and a warning of the same account within {WINDOW.seconds} s;"
        f" rows arrive up to {LATENESS.seconds} s out of order.\n"
        f"{arrivals.rows:,} rows in {scenario.batches} files per stream, one file every {scenario.pause_s} s."
        f" {scenario.key_groups} key groups, each with its own engine and plan, in {before} partitions, and in {after}"
        " after a restart. The data drift half way through.\n"
    )


def view(record: RunRecord, newest: int | None = None) -> Group:
    """Return the table of micro-batches, of all or the newest ones, with the events below it."""
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
    for batch in sorted(record.rows)[-newest if newest else 0 :]:
        table.add_row(*_cells(record.rows[batch], record.groups.get(batch, [])))
    events = [Text(f"batch {batch}: {what}", "yellow") for batch, what in record.events]
    return Group(table, *events)


def _cells(row: dict[str, Any], groups: list[dict[str, Any]]) -> list[str]:
    plans = Counter(short(group["plan"]) for group in groups)
    engines = Counter(group["source"] for group in groups)
    shown = [f"{count}×{plan}" for plan, count in plans.most_common(PLANS_SHOWN)]
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


def reasons(record: RunRecord) -> list[str]:
    """Return the most frequent changes of plan since the drift, each with the reason of its first occurrence."""
    changes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for change in record.changes():
        if record.drift is None or change["batch"] < record.drift:
            continue
        changes.setdefault((change["before"], change["plan"]), []).append(change)
    frequent = sorted(changes.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        f"{short(before)} → {short(plan)}  {len(rows)} times, first in batch {rows[0]['batch']}, key group "
        f"{rows[0]['group']};  {rows[0]['reason']}"
        for (before, plan), rows in frequent[:CHANGES_SHOWN]
    ]


def print_end(console: Console, record: RunRecord, outcome: ScenarioOutcome) -> None:
    """Print the reasons for changes of plan, the number of results, and whether they are exact."""
    console.print("\n[bold]Why plans changed after the drift[/]")
    for line in reasons(record) or ["No plan changed."]:
        console.print(Text(line), soft_wrap=True)
    console.print(
        f"\n{outcome.results:,} results in {len(record.rows)} micro-batches and {record.starts} starts of the job;"
        f" {outcome.expected:,} by an exact count without a join."
    )
    if outcome.wrong is None:
        console.print("[bold green]exact[/]: each transfer is in as many results as the count says, without duplicates")
    else:
        console.print(f"[bold red]not exact: {outcome.wrong}; this is a defect, please report it.[/]")


def figures(scenario: Scenario, record: RunRecord, outcome: ScenarioOutcome, seconds: float) -> dict[str, Any]:
    """Return all figures as JSON values."""
    return {
        "seconds": seconds,
        "partitions": list(scenario.partitions),
        "key_groups": scenario.key_groups,
        "results": outcome.results,
        "expected": outcome.expected,
        "exact": outcome.wrong is None,
        "wrong": outcome.wrong,
        "starts": record.starts,
        "killed": {"process": record.killed, "failed_tasks": record.failed_tasks},
        "events": [{"batch": batch, "event": what} for batch, what in record.events],
        "plan_changes": [
            {key: change[key] for key in ("batch", "group", "before", "plan", "reason")} for change in record.changes()
        ],
        "batches": [
            {
                **record.rows[batch],
                "plans": Counter(group["plan"] for group in record.groups.get(batch, [])),
                "engines": Counter(group["source"] for group in record.groups.get(batch, [])),
            }
            for batch in sorted(record.rows)
        ],
    }

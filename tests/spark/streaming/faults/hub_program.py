"""The queries of a broken hub: a drawn program of control elements for each, and what follows from those in effect.

A journal has the elements of each committed micro-batch, as its manifest names them. The expected results follow from
the journal and from the rows by nested loops. So they are right only if an element takes effect with exactly that
micro-batch, in all key groups, through all replays.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import eddy
from tests.spark.streaming.faults.workload import LATENESS, SCHEMA, STREAMS, FaultsWorkload, Row, accepted, kept
from tests.spark.streaming.hub_reference import Batches, HubReferenceQuery, HubReferenceVersion

NAMES = ("one", "two", "three")
KINDS = ("immediate", "delayed-drain", "drain-stream", "graceful", "graceful-drain", "handover")
SELECT = {f"{stream.lower()}{column}": f"{stream}.{column}" for stream in "RS" for column in "ktv"}
DRAWN = 40
"""Elements of each query."""


@dataclass(frozen=True)
class HubQueryVariant:
    """A query: streams with windows, with a filter of streams and one of results or without."""

    ranges: tuple[tuple[str, int], ...]
    filtered: bool

    def query(self, traps: Path) -> eddy.Query:
        """Return the query; its filters are places for faults."""
        keep = eddy.Predicate(partial(kept, traps=str(traps))) if self.filtered else None
        where = eddy.Predicate(partial(accepted, traps=str(traps)), columns=["R.v", "S.v", "S.k"])
        streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(d), time="t", filter=keep) for n, d in self.ranges]
        on = [f"{name}.k = R.k" for name, _ in self.ranges[1:]]
        return eddy.Query(streams, on, select=SELECT, where=where if self.filtered else None)

    @property
    def asked(self) -> HubReferenceQuery:
        """The same for the nested loop."""
        return HubReferenceQuery(
            dict(self.ranges),
            {name: tuple(place.split(".")) for name, place in SELECT.items()},  # type: ignore[misc]
            (lambda row: row["v"] & 7 != 3) if self.filtered else (lambda row: True),
            (lambda rows: (rows["R"]["v"] + rows["S"]["v"] + rows["S"]["k"]) & 3 != 1) if self.filtered else None,
        )


@dataclass(frozen=True)
class HubElement:
    """A control element; `event` as the history names it."""

    event: str
    variant: HubQueryVariant | None = None

    @property
    def how(self) -> str:
        """The kind of a change or stop, or "fresh" or "warm"."""
        return self.event.rpartition(" ")[0]

    @property
    def verb(self) -> str:
        """Start, change or stop."""
        return self.event.rpartition(" ")[2]


class HubProgram:
    """The elements of each query, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(f"hub {seed}")
        self.elements = {name: _drawn(chance) for name in NAMES}

    def variants(self, name: str) -> list[HubQueryVariant]:
        """Return all queries of a name."""
        return list(dict.fromkeys(element.variant for element in self.elements[name] if element.variant is not None))


def _drawn(chance: random.Random) -> list[HubElement]:
    def variant() -> HubQueryVariant:
        names = ("R", "S", "T") if chance.random() < 0.3 else ("R", "S")
        return HubQueryVariant(tuple((name, chance.randrange(4, 30)) for name in names), chance.random() < 0.5)

    elements = [HubElement("fresh start", variant())]
    while len(elements) < DRAWN:
        if elements[-1].verb == "stop":
            elements.append(HubElement(chance.choice(["fresh start", "warm start"]), variant()))
        elif chance.random() < 0.2:
            elements.append(HubElement(chance.choice(["immediate stop", "drain stop"])))
        else:
            elements.append(HubElement(f"{chance.choice(KINDS)} change", variant()))
    return elements


class Journal:
    """The elements of each committed micro-batch, in a file."""

    def __init__(self, root: Path) -> None:
        self._path = root / "journal"

    def write(self, batch: int, elements: list[list[Any]]) -> None:
        """Record a micro-batch; of two records the later one counts, as its manifest was committed later."""
        with open(self._path, "a") as file:
            file.write(json.dumps([batch, elements]) + "\n")

    def read(self) -> dict[int, list[list[Any]]]:
        """Return the elements by micro-batch."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return dict(sorted(json.loads(line) for line in _last(lines)))

    def elements(self, name: str, until: int) -> list[tuple[int, str]]:
        """Return the elements of a query and their micro-batches, and starts of versions that waited ("begun")."""
        events, known = [], set()
        for batch, elements in self.read().items():
            for query, number, event in elements if batch <= until else []:
                if query == name:
                    waited = event == "fresh start" and number in known
                    known.add(number)
                    events.append((batch + 1, "begun") if waited else (batch, event))
        return events


def _last(lines: list[str]) -> list[str]:
    """Return the last line of each micro-batch."""
    return list({json.loads(line)[0]: line for line in lines}.values())


def on_time(workload: FaultsWorkload) -> tuple[Batches, dict[str, Counter[Row]]]:
    """Return the rows of each micro-batch that are not late, and the late ones; a hub logs rows before all filters."""
    rows: dict[str, list[list[Mapping[str, Any]]]] = {name: [] for name in STREAMS}
    late: dict[str, Counter[Row]] = {name: Counter() for name in STREAMS}
    greatest, mark = dict.fromkeys(STREAMS, -(10**9)), -(10**9)
    for batch in range(workload.batches):
        for name in STREAMS:
            rows[name].append([])
            for row in workload.streams[name][batch]:
                if row[1] < mark:
                    late[name][row] += 1
                else:
                    rows[name][-1].append(dict(zip("ktv", row, strict=True)))
                greatest[name] = max(greatest[name], row[1])
        mark = max(mark, min(greatest.values()) - LATENESS)
    return rows, late


def versions(program: HubProgram, journal: Journal, name: str, batches: Batches) -> list[HubReferenceVersion]:
    """Return the versions of a query that follow from the journal. Raises AssertionError for another program."""
    drafts: list[dict[str, Any]] = []
    waiting = iter(program.elements[name])
    for batch, event in journal.elements(name, 10**9):
        if event == "begun":
            drafts[-1]["start"] = batch
            continue
        element = next(waiting)
        assert element.event == event, (name, batch, event, element)
        if element.variant is not None:
            new = {"asked": element.variant.asked, "start": batch, "warm": element.how in ("warm", "handover")}
        old = drafts[-1] if drafts else {}
        if element.verb == "stop":
            old["stop" if element.how == "immediate" else "drain"] = batch
        elif element.verb == "change":
            at: int | None = batch
            if element.how.startswith("graceful"):
                at = min((last for first, last, _ in new["asked"].matches(batches) if first >= batch), default=None)
            if at is not None:
                old["stop" if element.how in ("immediate", "handover", "graceful") else "drain"] = at
            if element.how == "delayed-drain":
                new["start"] = 10**9
        if element.variant is not None:
            drafts.append(new)
    return [HubReferenceVersion(**draft) for draft in drafts]


def counted_results(tables: list[pa.Table]) -> Counter[Any]:
    """Return the rows of tables as tuples, with their counts."""
    return sum((Counter(zip(*(c.to_pylist() for c in table.columns), strict=True)) for table in tables), Counter())

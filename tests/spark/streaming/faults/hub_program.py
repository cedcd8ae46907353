"""The queries of a broken hub: a drawn program of control elements for each, and what follows from those in effect.

A journal has the elements of each committed micro-batch, as its manifest names them. The expected results follow from
the journal and from the rows by nested loops. So they are right only if an element takes effect with exactly that
micro-batch, in all key groups, through all replays.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import eddy
from tests.spark.streaming.faults.workload import LATENESS, SCHEMA, STREAMS, FaultsWorkload, Row, accepted, kept
from tests.spark.streaming.hub_reference import (
    Batches,
    BranchReference,
    HubReferenceQuery,
    HubReferenceVersion,
    always,
)

KINDS_OF = {"branches": ("semi", "anti"), "left": ("left",), "changes": ("inner",)}
"""Names of the queries with a join alone, and their kinds; the last one has a changelog."""
NAMES = ("one", "two", "three", *KINDS_OF)
KINDS = ("immediate", "delayed-drain", "drain-stream", "graceful", "graceful-drain", "handover")
SELECT = {f"{stream.lower()}{column}": f"{stream}.{column}" for stream in "RS" for column in "ktv"}
DRAWN = 40
"""Elements of each query."""


@dataclass(frozen=True)
class HubQueryVariant:
    """A query: streams with windows, with a filter of streams and one of results or without.

    kind   that of its `BranchReference`, "" for an inner join that shares its state
    """

    ranges: tuple[tuple[str, int], ...]
    filtered: bool
    kind: str = ""

    def query(self, traps: Path) -> eddy.Query:
        """Return the query; its filters are places for faults."""
        keep = eddy.Predicate(partial(kept, traps=str(traps))) if self.filtered else None
        where = eddy.Predicate(partial(accepted, traps=str(traps)), columns=["R.v", "S.v", "S.k"])
        streams = [eddy.Stream(n, SCHEMA, window=eddy.Range(d), time="t", filter=keep) for n, d in self.ranges]
        on = [f"{name}.k = R.k" for name, _ in self.ranges[1:]]
        if self.kind:
            select = {"r": "R.v"} if self.kind in ("semi", "anti") else {"r": "R.v", "s": "S.v"}
            if self.kind == "inner":
                return eddy.Query(streams, on, select=select)
            branch = eddy.Branch(streams[1:], on, self.kind)  # type: ignore[arg-type]
            return eddy.Query(streams[:1], branches=[branch], select=select)
        return eddy.Query(streams, on, select=SELECT, where=where if self.filtered else None)

    def branch(self, start: int, warm: bool) -> BranchReference:
        """Return the reference of a version with a join alone."""
        keep = (lambda row: row["v"] & 7 != 3) if self.filtered else always
        (_, left), (_, right) = self.ranges
        return BranchReference(self.kind, (left, right), start, warm, keep=keep)

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
        self.elements = {name: _drawn(chance, name) for name in NAMES}

    def variants(self, name: str) -> list[HubQueryVariant]:
        """Return all queries of a name."""
        return list(dict.fromkeys(element.variant for element in self.elements[name] if element.variant is not None))


def output_of(name: str) -> Any:
    """Return the form of the results of a query."""
    return "changelog" if name == "changes" else "append"


def _drawn(chance: random.Random, query: str) -> list[HubElement]:
    alone = KINDS_OF.get(query, ())
    changes = ("immediate", "handover") if alone else KINDS
    stops = ["immediate stop"] if alone else ["immediate stop", "drain stop"]

    def variant() -> HubQueryVariant:
        names = ("R", "S", "T") if chance.random() < 0.3 and not alone else ("R", "S")
        ranges = tuple((name, chance.randrange(4, 30)) for name in names)
        return HubQueryVariant(ranges, chance.random() < 0.5, chance.choice(alone) if alone else "")

    elements = [HubElement("fresh start", variant())]
    while len(elements) < DRAWN:
        if elements[-1].verb == "stop":
            elements.append(HubElement(chance.choice(["fresh start", "warm start"]), variant()))
        elif chance.random() < 0.2:
            elements.append(HubElement(chance.choice(stops)))
        else:
            elements.append(HubElement(f"{chance.choice(changes)} change", variant()))
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


def on_time(workload: FaultsWorkload) -> tuple[Batches, dict[str, Counter[Row]], list[int | None]]:
    """Return the rows of each micro-batch that are not late, the late ones, and the watermark after each micro-batch; a
    hub logs rows before all filters."""
    rows: dict[str, list[list[Mapping[str, Any]]]] = {name: [] for name in STREAMS}
    late: dict[str, Counter[Row]] = {name: Counter() for name in STREAMS}
    greatest, mark = dict.fromkeys(STREAMS, -(10**9)), -(10**9)
    marks: list[int | None] = []
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
        marks.append(mark)
    return rows, late, marks


def results_alone(
    program: HubProgram, journal: Journal, name: str, batches: Batches, marks: Sequence[int | None]
) -> Counter[Any]:
    """Return the results of a query with a join alone: of a changelog those that it adds up to, to the end of each
    version."""
    results: Counter[Any] = Counter()
    waiting, drafts = iter(program.elements[name]), list[BranchReference]()
    for batch, event in journal.elements(name, 10**9):
        element = next(waiting)
        assert element.event == event, (name, batch, event, element)
        if drafts and drafts[-1].stop is None:
            drafts[-1] = replace(drafts[-1], stop=batch)
            if output_of(name) == "changelog" and element.how == "handover":
                drafts.pop()  # its answer is taken back
        if element.variant is not None:
            drafts.append(element.variant.branch(batch, element.how in ("warm", "handover")))
    for version in drafts:
        if output_of(name) == "append":
            results += version.results(batches, marks)
            continue
        end = len(marks) if version.stop is None else version.stop
        if end > version.start:
            results += version.answer({stream: parts[:end] for stream, parts in batches.items()}, marks[end - 1])
    return results


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

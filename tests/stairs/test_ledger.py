"""Ledgers against a model that lists all rows: branches of every kind, undone pushes, copies, room."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from random import Random
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stairs.ledger import Int64s, Ledger
from stairs.storage.parts import Parts
from tests.stairs.held import Held

Match = tuple[int, ...]
Row = tuple[int, ...]


@dataclass
class LedgerEntry:
    """A match of the model: its serial number, and for each branch its options, and whether it is done."""

    serial: int
    options: list[list[int]]
    done: list[bool]

    def copy(self) -> LedgerEntry:
        return LedgerEntry(self.serial, [list(branch_options) for branch_options in self.options], list(self.done))


@dataclass
class LedgerModel:
    """The expected entries of a ledger. A row has the components of the match, followed by one for each branch."""

    hows: list[str]
    width: int
    entries: dict[Match, LedgerEntry] = field(default_factory=dict)
    final: list[Row] = field(default_factory=list)
    """Rows of entries that were freed while their rows stay."""

    def copy(self) -> LedgerModel:
        return LedgerModel(
            self.hows, self.width, {m: entry.copy() for m, entry in self.entries.items()}, list(self.final)
        )

    def rows_of(self, match: Match) -> list[Row]:
        entry = self.entries[match]
        choices = []
        for how, options, done in zip(self.hows, entry.options, entry.done, strict=True):
            if how == "left":
                choices.append(options or [-1] * done)
            else:
                choices.append([-1] * (bool(options) if how == "semi" else done and not options))
        return [(*match, *choice) for choice in product(*choices)]

    def answer(self) -> Counter[Row]:
        return Counter(self.final) + Counter(row for match in self.entries for row in self.rows_of(match))

    def close(self, match: Match, b: int) -> None:
        entry = self.entries[match]
        entry.done[b] = True
        if all(entry.done):
            self.final += self.rows_of(match)
            del self.entries[match]


class LedgerPlay:
    """A ledger and its model, step by step."""

    def __init__(self, hows: list[str], width: int, at_once: bool, seed: int) -> None:
        self.hows, self.width, self.at_once, self.random = hows, width, at_once, Random(seed)
        self.ledger = self.empty()
        self.model = LedgerModel(hows, width)
        self.number = 0
        """The next match of a ledger over one stream."""
        self.component = 0
        """The next component of an option."""
        self.marked: list[Row] = []

    def empty(self) -> Ledger:
        return Ledger(self.hows, self.width + len(self.hows), range(self.width))

    def draw(self, most: int) -> int:
        return self.random.randint(0, most)

    def array(self, rows: list[Row]) -> Int64s:
        return np.array(rows, np.int64).reshape(-1, self.width + len(self.hows))

    def option(self, match: Match, b: int, component: int) -> Row:
        choice = [-1] * len(self.hows)
        choice[b] = component
        return (*match, *choice)

    def push(self) -> None:
        before, numbers = self.model.copy(), (self.number, self.component)
        shown, self.marked = before.answer(), []
        self.ledger.begin()
        self.enter()
        first = self.at_once and self.draw(1)
        if first:
            self.leave()
        for b in range(len(self.hows)):
            self.follow(b)
        if not self.at_once:
            self.close()
        elif not first:
            self.leave()
        rows, signs = self.ledger.put_out()
        change = Counter(self.marked)
        for row, sign in zip(rows.tolist(), signs.tolist(), strict=True):
            change[tuple(row)] += 1 if sign else -1
        wanted = self.model.answer()
        wanted.subtract(shown)
        assert {row: n for row, n in change.items() if n} == {row: n for row, n in wanted.items() if n}
        assert self.at_once or signs.all()
        if self.draw(3) == 3:
            self.ledger.undo()
            self.model, (self.number, self.component) = before, numbers
        else:
            self.ledger.commit()
        self.check()

    def enter(self) -> None:
        matches: list[Match] = []
        for _ in range(self.draw(4)):
            match = (self.number,) if self.width == 1 else (self.draw(2), self.draw(2))
            if match not in self.model.entries and match not in matches:
                matches.append(match)
                self.number += 1
        rows = [(*match, *[-1] * len(self.hows)) for match in matches]
        serials = self.ledger.enter(self.array(rows), self.at_once).tolist()
        for match, serial in zip(matches, serials, strict=True):
            k = len(self.hows)
            self.model.entries[match] = LedgerEntry(serial, [[] for _ in range(k)], [self.at_once] * k)

    def follow(self, b: int) -> None:
        known, rows, signs = list(self.model.entries), [], []
        for _ in range(self.draw(6) if known else 0):
            match = known[self.draw(len(known) - 1)]
            entry = self.model.entries[match]
            if entry.done[b] and not self.at_once:
                continue
            if self.at_once and entry.options[b] and self.draw(1):
                ended = entry.options[b].pop(self.draw(len(entry.options[b]) - 1))
                rows.append(self.option(match, b, ended))
                signs.append(0)
                # The next option replaces this one.
                if self.draw(1):
                    continue
            entry.options[b].append(self.component)
            rows.append(self.option(match, b, self.component))
            signs.append(1)
            self.component += 1
        if not self.draw(4):
            # An option of a match that has left.
            rows.append(self.option((9999,) * self.width, b, self.component))
            signs.append(1)
        if self.ledger.passes and not self.at_once:
            self.marked = [row for row in rows if row[0] != 9999]
            self.ledger.mark(self.array(rows))
        else:
            self.ledger.follow(b, self.array(rows), np.array(signs, np.uint8))

    def close(self) -> None:
        due = []
        for match, entry in list(self.model.entries.items()):
            for b in range(len(self.hows)):
                if not self.draw(3):
                    due.append(entry.serial * len(self.hows) + b)
                    if match in self.model.entries:
                        self.model.close(match, b)
        self.ledger.close(np.array(due, np.int64))

    def leave(self) -> None:
        gone = [match for match in self.model.entries if not self.draw(3)]
        matches = self.array([(*match, *[-1] * len(self.hows)) for match in gone])
        first = self.draw(1)
        if first:
            self.ledger.leave(matches)
        for match in gone:
            for b, options in enumerate(self.model.entries.pop(match).options):
                ended = self.array([self.option(match, b, component) for component in options])
                self.ledger.follow(b, ended, np.zeros(len(ended), np.uint8))
        if not first:
            self.ledger.leave(matches)

    def check(self) -> None:
        self.ledger.check()
        assert len(self.ledger) == len(self.model.entries)
        assert sorted(self.ledger.serials().tolist()) == sorted(entry.serial for entry in self.model.entries.values())
        far = 10**6
        lows = np.full(self.width + len(self.hows), far)
        wanted = lows.copy()
        for match, entry in self.model.entries.items():
            wanted[: self.width] = np.minimum(wanted[: self.width], match)
            for b, options in enumerate(entry.options):
                if len(self.hows) > 1 and self.hows[b] == "left":
                    wanted[self.width + b] = min([wanted[self.width + b], *options])
        self.ledger.lower(lows)
        assert lows.tolist() == wanted.tolist()

    def copied(self) -> None:
        """Continue with a copy: from its contents, or from its parts."""
        copy = self.empty()
        if self.draw(1):
            copy.load_parts(Parts(self.ledger.to_parts(), Held(), "a ledger"))
        else:
            entries, options = self.ledger.contents()
            serials = copy.fill(entries, options, self.at_once).tolist()
            for serial, row in zip(serials, entries.tolist(), strict=True):
                first = 2 * len(self.hows)
                self.model.entries[tuple(row[first : first + self.width])].serial = serial
            assert [part.tolist() for part in copy.contents()] == [entries.tolist(), options.tolist()]
        self.ledger = copy


@given(
    st.lists(st.sampled_from(("left", "left", "semi", "anti")), min_size=1, max_size=3),
    st.sampled_from((1, 2)),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_rows_are_those_of_the_model(hows: list[str], width: int, at_once: bool, seed: int) -> None:
    # Steps that Hypothesis draws one by one are short for the most part; those of a seed are not.
    with patch("stairs.ledger.LEAST_ROOM", 4):
        play = LedgerPlay(hows, width, at_once, seed)
        for _ in range(play.draw(20)):
            play.push()
            if not play.draw(5):
                play.copied()

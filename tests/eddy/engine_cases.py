"""Small cases of engines, written by hand."""

from __future__ import annotations

import re

from eddy.fuzz.case import NAMES, PushStep, Row
from eddy.fuzz.changing.case import EngineCase, EngineQuery, EngineStreams, Step, StreamUse
from eddy.streams.windows import Window

_ROW = re.compile(r"(\w)(-?\d+)(?:k(\d))?(?:x(\d))?$")


def arrivals(text: str, first: int = 0) -> PushStep:
    """Return a push of rows: "R3" is a row of R at time 3, "R3k1x2" one with the key 1 and the value 2; both may be
    left out and are 0 then. The rows are numbered from `first`."""
    rows = []
    for number, word in enumerate(text.split(), first):
        match = _ROW.match(word)
        assert match is not None
        keys = dict.fromkeys(("k0", "k1"), int(match[3] or 0))
        rows.append(Row(NAMES.index(match[1]), keys, int(match[2]), number, int(match[4] or 0)))
    return PushStep(tuple(rows))


def asked(*windows: Window, least: int | None = None) -> EngineQuery:
    """Return a join of the first streams on one key; `least` is the filter of the first stream."""
    owns = tuple(StreamUse(i, window, least if i == 0 else None) for i, window in enumerate(windows))
    return EngineQuery(owns, tuple((i, i + 1, "k0") for i in range(len(windows) - 1)))


def case(*steps: Step, timed: bool = True, lateness: int = 0, streams: int = 2) -> EngineCase:
    """Return a case of an engine whose streams have no windows of their own; the stream that is ahead is the clock."""
    return EngineCase(EngineStreams((None,) * streams, timed, lateness, "fastest"), "eddy", steps)

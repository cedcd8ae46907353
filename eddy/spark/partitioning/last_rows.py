"""The rows of a table after all of its changes, as an input of a batch join."""

from __future__ import annotations

from dataclasses import dataclass

from eddy.streams.stream import Stream


@dataclass(frozen=True, eq=False)
class LastRows(Stream):
    """A stream with the last row of each key of a table. Its rows have no event time, and come before all others."""

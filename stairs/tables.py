"""The tables of all STAIRs of one engine, as kernels read them.

A *track* is a running plan. Usually there is one, and the tuples that count are those in the windows. When plans run
side by side, each plan knows only the tuples from its marks on: the low mark of a stream in a track is the greater of
the stream's low mark and the track's mark.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import E_FIELDS, P_FIELDS, S_LO
from stairs.graph import FOREVER
from stairs.memory.arena import Entries, Int64s, Routes
from stairs.modules import Modules
from stairs.routes import no_routes

FIRST_STATES = 4


class StairTables:
    """Descriptors of STAIRs over the SteMs of `modules`, the low marks of tracks, and the routes of promotions.

    routes   tables that contain the promotion of each state, at the row of `span` that its descriptor names; whoever
             adds states sets the routes
    """

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.routes: Routes = no_routes()
        m = modules.graph.n_streams
        self.entries = Entries(
            states=np.zeros((FIRST_STATES, E_FIELDS), np.int64),
            parts=np.zeros((FIRST_STATES * m, P_FIELDS), np.int64),
            lows=np.zeros(m, np.int64),
            marks=np.full(m, -FOREVER, np.int64),
        )
        self.sync()

    @property
    def marks(self) -> Int64s:
        """First tuple of each stream that each track knows: int64[tracks, streams], a view."""
        return self.entries.marks.reshape(-1, self.modules.graph.n_streams)

    def set_marks(self, marks: Int64s) -> None:
        """Give each track its marks: int64[tracks, streams] sequence numbers."""
        flat = np.ascontiguousarray(marks, np.int64).reshape(-1)
        self.entries = self.entries._replace(marks=flat, lows=np.zeros_like(flat))
        self.sync()

    def sync(self) -> None:
        """Raise the low marks of all tracks to those of the windows. O(tracks * streams)."""
        lows = self.entries.lows.reshape(-1, self.modules.graph.n_streams)
        np.maximum(self.modules.streams[:, S_LO], self.marks, out=lows)

    def clear(self, rows: int) -> None:
        """Replace the descriptors by `rows` empty ones."""
        self.entries = self.entries._replace(
            states=np.zeros((rows, E_FIELDS), np.int64),
            parts=np.zeros((rows * self.modules.graph.n_streams, P_FIELDS), np.int64),
        )

    def double(self) -> None:
        """Make room for twice as many states. O(states)."""
        states, parts = self.entries.states, self.entries.parts
        self.entries = self.entries._replace(
            states=np.concatenate([states, np.zeros_like(states)]), parts=np.concatenate([parts, np.zeros_like(parts)])
        )

"""The figures of an engine, published for the threads of a server.

No other thread may read an engine while the engine works. So a server requests figures, and the thread of the engine
publishes the figures at the end of its push. A push costs one read of an attribute more, and the time of the figures
only after a request. If no push ends within PATIENCE, the server reads the engine itself, provided no thread works on
the engine; a push that begins meanwhile waits for the server (`eddy.push.turn`). For any number of readers, figures are
at least `every` seconds apart.
"""

from __future__ import annotations

import logging
import threading
import time

from eddy.log import LOG
from eddy.show.sheet import Sheet
from eddy.watch.embedded import ObservedFigures, Watchable, observe, sheet_of

PATIENCE = 0.05
"""Seconds to wait for the end of a push."""


class Board:
    """The newest figures of a runtime or engine; any thread may request the figures.

    name    a label of the figures
    every   seconds between two figures, at least
    """

    def __init__(self, shown: Watchable, name: str, every: float) -> None:
        self._shown, self._name, self._every = shown, name, every
        self._changed = threading.Condition()
        self._seen: ObservedFigures | None = None
        self._read_at = -float("inf")
        self._sheet: tuple[ObservedFigures, Sheet] | None = None
        shown._turn.read(self.publish)

    def publish(self) -> None:
        """Publish the present figures; in turn. Raises nothing: a push does not fail because of its figures."""
        try:
            seen = observe(self._shown)
        except Exception:
            # Figures may be inconsistent until an interrupted push has been taken back.
            LOG.log(logging.DEBUG, "the figures of %s could not be read", self._name, exc_info=True)
            return
        with self._changed:
            self._seen, self._read_at = seen, time.monotonic()
            self._changed.notify_all()

    def sheet(self) -> Sheet | None:
        """Return the newest figures available without waiting for a push under way; None before the first figures."""
        self._refresh()
        with self._changed:
            seen, known = self._seen, self._sheet
        if seen is None:
            return None
        if known is None or known[0] is not seen:
            known = seen, sheet_of(seen, self._name)
            self._sheet = known
        return known[1]

    def _refresh(self) -> None:
        with self._changed:
            before = self._seen
            if time.monotonic() < self._read_at + self._every:
                return
            turn = self._shown._turn
            turn.asked = self.publish
            if self._changed.wait_for(lambda: self._seen is not before, PATIENCE):
                return
        if turn.read(self.publish) and turn.asked == self.publish:
            turn.asked = None

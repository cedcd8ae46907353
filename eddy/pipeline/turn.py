"""One call at a time: during a call, no other thread and no function that the runtime calls may work on the runtime.

The frame of the running call holds the turn. A flag or a lock would stay set if an exception (from a signal, for
example) came immediately after it was taken. A frame that no thread runs any longer does not hold the turn, whatever
the exception left behind, so the next call takes the turn. Frames are searched only when two calls meet; otherwise a
turn costs two operations on a dictionary, each of which is atomic.

Another thread may need figures (`eddy.watch.board`). It requests the figures, and the thread of the next call answers
at the end of the call; or it reads the figures itself while no call runs, and a call that comes during the read waits.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from eddy.log import LOG, log_changes, log_refusal
from stairs.errors import StateError

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
T = TypeVar("T")
_HOLDER = "holder"
_SEARCH = threading.Lock()
"""Held while a thread determines whether a holder still runs."""
NAP, LONGEST = 0.0002, 10.0
"""Seconds between two checks whether a reader has finished; seconds after which a call is refused."""


class Turn:
    """The right to work on one runtime; `what` is its name in errors."""

    def __init__(self, what: str = "runtime") -> None:
        self._what = what
        self._held: dict[str, FrameType] = {}
        self._ended: str | None = None
        self._reading: dict[str, FrameType] = {}
        """The frame that reads, under `_HOLDER`. An interrupt may leave it there, as in `_held`, and unlike a lock."""
        self.asked: Callable[[], None] | None = None
        """Called once at the end of the next call, in its thread. It raises nothing of its own."""

    def take(self, frame: FrameType, call: str) -> None:
        """Give the turn to a frame that runs `call`. Raises StateError if another frame has it."""
        if self._held.setdefault(_HOLDER, frame) is frame:
            return
        if self._ended:
            raise StateError(f"{call}: {self._ended}")
        self._wait_for_reader()
        if not self._claim(self._held, frame):
            raise StateError(_refusal(call, self._what, _thread_of(self._held.get(_HOLDER))))

    def _claim(self, held: dict[str, FrameType], frame: FrameType) -> bool:
        """Let a frame hold `held` unless another running frame holds it; return whether the frame holds it."""
        if held.setdefault(_HOLDER, frame) is frame:
            return True
        if self._ended:
            return False
        with _SEARCH:
            holder = held.get(_HOLDER)
            if holder is not None and _thread_of(holder) is None and held.get(_HOLDER) is holder:
                del held[_HOLDER]
            return held.setdefault(_HOLDER, frame) is frame

    def answer(self) -> None:
        """Call the requested function, at the end of a call."""
        asked, self.asked = self.asked, None
        if asked is not None:
            asked()

    def read(self, act: Callable[[], None]) -> bool:
        """Call a function that reads, if no call has the turn; return whether it was called.

        A call of another thread waits until the function returns, so it should take only milliseconds.
        """
        frame = sys._getframe()
        try:
            # First, so that whoever meets this frame as the holder of the turn knows that it only reads.
            if not self._claim(self._reading, frame) or not self._claim(self._held, frame):
                return False
            try:
                act()
            finally:
                self.give_back()
            return True
        finally:
            if self._reading.get(_HOLDER) is frame:
                del self._reading[_HOLDER]

    def _wait_for_reader(self) -> None:
        until = time.monotonic() + LONGEST
        while (holder := self._held.get(_HOLDER)) is not None and holder is self._reading.get(_HOLDER):
            if time.monotonic() > until:
                return
            time.sleep(NAP)

    @property
    def ended(self) -> bool:
        """Whether every turn is refused."""
        return self._ended is not None

    def end(self, why: str) -> None:
        """Refuse every turn from now on, with this message."""
        self._ended = why
        self._held[_HOLDER] = sys._getframe()

    def end_in_copies(self, why: str) -> None:
        """Refuse every turn, with this message, in a process that is a copy of this one after a fork."""
        _ENDING[self] = why

    def give_back(self) -> None:
        """End the turn."""
        self._held.pop(_HOLDER, None)


_ENDING: WeakKeyDictionary[Turn, str] = WeakKeyDictionary()
"""The turns that end in a copy of the process, and why."""


def _end_copies() -> None:
    for turn, why in list(_ENDING.items()):
        turn.end(why)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_copies)


def _thread_of(frame: FrameType | None) -> int | None:
    """Return the thread that runs a frame, None if none does, and for None. O(threads * depth of their stacks)."""
    for thread, top in sys._current_frames().items():
        at: FrameType | None = top
        while at is not None:
            if at is frame:
                return thread
            at = at.f_back
    return None


def _refusal(call: str, what: str, thread: int | None) -> str:
    if thread == threading.get_ident():
        return (
            f"{call}: this {what} is in the middle of another call, which has called this one (from a filter, `where`,"
            " a policy or a signal handler); such functions may only read their arguments: call it afterwards"
        )
    return (
        f"{call}: this {what} is at work in another thread; one call at a time: give each thread its own {what}, or put"
        " a lock around the calls"
    )


class Settled(Protocol):
    """An object with state on which one call at a time works, and which completes or undoes an interrupted call."""

    _turn: Turn

    def _settle(self) -> None: ...

    @property
    def _unsettled(self) -> bool: ...


class Adaptive(Settled, Protocol):
    """A settled object whose plan changes; `history` has the changes, and `changes` is their number."""

    @property
    def changes(self) -> int: ...

    def history(self) -> pa.Table: ...


R = TypeVar("R", bound=Adaptive)
S = TypeVar("S", bound=Settled)


def in_turn(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Run a method of a runtime only if no other call is at work, and only on consistent state.

    After an exception the state is made consistent (`_settle`). If another exception interrupts `_settle`, the next
    call runs it.
    """
    return _turned(method, logged=False)


def in_logged_turn(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Run a method as `in_turn` does, and log its exception or the changes of plan that it makes."""
    return _turned(method, logged=True)


def _turned(method: Callable[Concatenate[Any, P], T], *, logged: bool) -> Callable[Concatenate[Any, P], T]:
    name = method.__name__.lstrip("_")

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        before = self.changes if logged and LOG.isEnabledFor(logging.DEBUG) else None
        turn = self._turn
        try:
            turn.take(sys._getframe(), name)
            try:
                self._settle()
                result = method(self, *args, **kwargs)
                if turn.asked is not None:
                    turn.answer()
            except BaseException:
                self._settle()
                raise
            finally:
                turn.give_back()
        except Exception as problem:
            if logged:
                # The turn is over, so a handler of the record may call the runtime.
                log_refusal(name, problem)
            raise
        if before is not None and self.changes > before:
            log_changes(self.history().slice(before).to_pylist())
        return result

    return call


def settled(figure: Callable[[S], T]) -> Callable[[S], T]:
    """Read a figure on consistent state: first complete or undo an interrupted call, unless a call is running."""

    @wraps(figure)
    def read(self: S) -> T:
        if self._unsettled:
            self._turn.read(self._settle)
        return figure(self)

    return read

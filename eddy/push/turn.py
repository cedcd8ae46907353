"""One call at a time: what keeps threads, and functions that a runtime calls, from working on it at once.

A turn is held by a frame: that of the call at work. A flag or a lock would stay set when an exception (a signal's, say)
came just after it was taken. A frame that no thread runs any more holds nothing, whatever the exception left behind, so
the next call takes the turn. That is looked into only when two calls meet; otherwise a turn costs two operations on a
dictionary, each of which is atomic.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from stairs.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")
_HOLDER = "holder"
_LOOKING = threading.Lock()
"""Held while somebody finds out whether a holder is at work still."""


class Turn:
    """The turn to work on one runtime."""

    def __init__(self) -> None:
        self._held: dict[str, FrameType] = {}
        self._over: str | None = None

    def take(self, frame: FrameType, call: str) -> None:
        """Give the turn to a frame that runs `call`. Raises StateError when another one has it."""
        if self._held.setdefault(_HOLDER, frame) is frame:
            return
        if self._over:
            raise StateError(f"{call}: {self._over}")
        with _LOOKING:
            holder = self._held.get(_HOLDER)
            thread = None if holder is None else _thread_of(holder)
            if holder is not None and thread is None and self._held.get(_HOLDER) is holder:
                del self._held[_HOLDER]
            if self._held.setdefault(_HOLDER, frame) is not frame:
                raise StateError(_refusal(call, thread))

    def end(self, why: str) -> None:
        """Refuse every turn from now on, with this message."""
        self._over = why
        self._held[_HOLDER] = sys._getframe()

    def give_back(self) -> None:
        """End the turn."""
        self._held.pop(_HOLDER, None)


def _thread_of(frame: FrameType) -> int | None:
    """Return the thread that runs a frame, None if none does any more. O(threads * depth of their stacks)."""
    for thread, top in sys._current_frames().items():
        at: FrameType | None = top
        while at is not None:
            if at is frame:
                return thread
            at = at.f_back
    return None


def _refusal(call: str, thread: int | None) -> str:
    if thread == threading.get_ident():
        return (
            f"{call}: this runtime is in the middle of another call, which has called this one (from a filter, `where`,"
            " a policy or a signal handler); such functions only read what they are given: call it after that"
        )
    return (
        f"{call}: this runtime is at work in another thread; one call at a time: let each thread have a runtime of its"
        " own, or put a lock around the calls"
    )


class Settled(Protocol):
    """What works in turns, and can put right what an exception left half done."""

    _turn: Turn

    def _settle(self) -> None:
        """End what an earlier call began: take it back, or do the rest of it."""


R = TypeVar("R", bound=Settled)


def in_turn(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Let a method run in its turn only, on state that is whole; an exception leaves whole state behind.

    If another exception ends the putting right itself, the next call does it.
    """
    name = method.__name__

    @wraps(method)
    def call(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._turn.take(sys._getframe(), name)
        try:
            self._settle()
            return method(self, *args, **kwargs)
        except BaseException:
            self._settle()
            raise
        finally:
            self._turn.give_back()

    return call


def refuse_copy(self: Any, *_: Any) -> Any:
    """Refuse to copy or pickle a runtime: two would share state."""
    raise StateError("a Runtime cannot be copied or pickled: make another with Runtime.restore(rt.snapshot(), query)")

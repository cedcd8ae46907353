"""Kinds of change from an old version of a query to a new one, at a position c.

                     old version                          new version
    immediate        stops at c                           fresh start at c
    delayed-drain    drains from c                        fresh start when the old one has ended
    drain-query      drains from c                        fresh start at c; its results wait until the old one has ended
    drain-stream     drains from c                        fresh start at c
    graceful         stops at the new one's first result  fresh start at c
    graceful-drain   drains from the new one's first result   fresh start at c
    handover         stops at c                           warm start at c

The paper's names: IChange, DDChange, QDChange, SDChange, GIChange, GDChange. The handover is ours.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

How = Literal["immediate", "delayed-drain", "drain-query", "drain-stream", "graceful", "graceful-drain", "handover"]


class ChangeKind(NamedTuple):
    """A kind of change.

    drains     whether the old version drains; else it stops
    at_result  whether it does so at the first result of the new one; else at the position of the change
    waits      whether the new version starts when the old one has ended; else at the position of the change
    holds      whether the results of the new version wait until the old one has ended
    warm       whether the new version starts on the rows that were kept
    """

    drains: bool = False
    at_result: bool = False
    waits: bool = False
    holds: bool = False
    warm: bool = False


CHANGES: dict[str, ChangeKind] = {
    "immediate": ChangeKind(),
    "delayed-drain": ChangeKind(drains=True, waits=True),
    "drain-query": ChangeKind(drains=True, holds=True),
    "drain-stream": ChangeKind(drains=True),
    "graceful": ChangeKind(at_result=True),
    "graceful-drain": ChangeKind(drains=True, at_result=True),
    "handover": ChangeKind(warm=True),
}

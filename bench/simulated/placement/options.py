"""Options of a simulated cluster: their values, and the check that they fit together."""

from __future__ import annotations

from bench.simulated.placement.choice import KINDS
from stairs.errors import InputError


def check_options(nodes: int | None, placement: object, update: str, migration: str) -> None:
    """Raise InputError for options that do not fit together."""
    if nodes is not None and (not isinstance(nodes, int) or nodes < 1):
        raise InputError(f"nodes={nodes!r}: give a number of 1 or more, or None for one node per stream")
    if isinstance(placement, str) and placement not in ("greedy", "auto", *KINDS):
        raise InputError(f'placement={placement!r}: "greedy", "grid", "hops", "auto", or a plan for each stream')
    if isinstance(placement, str) and (placement == "greedy") != (nodes is None):
        remedy = "leave out `nodes`" if placement == "greedy" else "give the number of `nodes`"
        raise InputError(f"placement={placement!r}, nodes={nodes}: {remedy}")
    for name, value, known in (
        ("update", update, ("central", "shared", "distributed")),
        ("migration", migration, ("log", "track")),
    ):
        if value not in known:
            raise InputError(f"{name}={value!r}: one of {', '.join(map(repr, known))}")

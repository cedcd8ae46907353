"""The options of a running query, as in `eddy.Runtime`: the options of each join, and of the whole query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eddy.results.modes import check_output
from eddy.routing.policies import Policy
from stairs.errors import InputError
from stairs.memory.spill import SpillDirectory
from stairs.stems import RENUMBER_AT


@dataclass(frozen=True)
class RuntimeOptions:
    """The arguments of `eddy.Runtime`, documented there. Raises InputError for arguments that exclude each other."""

    plan: str | None = None
    policy: str | Policy | None = None
    strategy: str = "eddy"
    store: Iterable[str] | None = None
    max_bytes: int | None = None
    decide_every: int | None = None
    statistics: bool = True
    background: int = 0
    output: str = "append"
    count_only: bool = False
    ids_only: bool = False
    renumber_at: int = RENUMBER_AT
    bounded: bool = False
    ordered: bool = False
    purge: str = "exact"
    spill: SpillDirectory | None = None

    def __post_init__(self) -> None:
        if self.count_only and self.ids_only:
            raise InputError("count_only and ids_only exclude each other: leave one out")
        if self.count_only and self.ordered:
            raise InputError("count_only and ordered exclude each other: a count has no order; leave one out")
        check_output(self.output)

"""The versions of a query of a hub, with the form of its results."""

from __future__ import annotations

from typing import Protocol

from eddy.queries.lineage import Lineage, VersionHost
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.spark.partitioning.engine import JoinOutput


class HubHost(VersionHost, Protocol):
    """A host of lineages that makes versions with a form of results."""

    def make(self, version: Version, output: JoinOutput = "append") -> Version:
        """See `VersionHost.make`."""


class HubLineage(Lineage):
    """A lineage whose versions have one form of results."""

    def __init__(self, host: HubHost, name: str, version: Version, output: JoinOutput) -> None:
        super().__init__(host, name, version)
        self._hub, self.output = host, output

    def _made(self, number: int, query: Query, start: int | None, warm: bool) -> Version:
        return self._hub.make(Version(number, query, start, warm, 0), self.output)

"""Loss, disorder and duplicates of a change, as docs/guide/semantics.md, "What a change guarantees", defines them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from eddy.fuzz.changing.oracle import Arrived, OracleResult, OracleVersion
from eddy.fuzz.oracle import OracleQuery

OLD, NEW = 0, 1
"""The numbers of the versions."""


class Measures(NamedTuple):
    """The effect of a change on the results of a query.

    lost             results of the reference that did not come
    query_disorder   results of the old version that came after one of the new version
    stream_disorder  results that came after one with a later last component
    duplicates       results of the new version whose components are those of a result of the old version
    """

    lost: int = 0
    query_disorder: int = 0
    stream_disorder: int = 0
    duplicates: int = 0


def all_results(query: OracleQuery, number: int, arrived: Sequence[Arrived]) -> list[OracleResult]:
    """Return all results of a query over all arrivals, as those of a version that ran from the first one."""
    version = OracleVersion(number, query, 0)
    return [given for place, arrival in enumerate(arrived) for given in version.take(place, arrival)]


def papers_reference(old: Iterable[OracleResult], new: Iterable[OracleResult], at: int) -> set[OracleResult]:
    """Return what no change should lose: the old query drained at a position, the new one started fresh there."""
    return {r for r in old if r.first < at} | {r for r in new if r.first >= at}


def handover_reference(
    old: Iterable[OracleResult], new: Iterable[OracleResult], at: int, complete_from: int
) -> set[OracleResult]:
    """Return what a handover does not lose: old results before a position, new ones from it on, if rows were kept."""
    return {r for r in old if r.last < at} | {r for r in new if r.last >= at and r.first >= complete_from}


def measured(given: Sequence[OracleResult], reference: set[OracleResult], streams: Sequence[Sequence[str]]) -> Measures:
    """Return the measures of results in the order in which they came.

    streams   those of the old query, and those of the new one: the streams of the components
    """
    seen_new = list(accumulate((result.version == NEW for result in given), lambda a, b: a or b, initial=False))
    latest = list(accumulate((result.last for result in given), max, initial=-1))
    parts = [frozenset(zip(streams[result.version], result.places, strict=True)) for result in given]
    olds = {part for result, part in zip(given, parts, strict=True) if result.version == OLD}
    return Measures(
        lost=len(reference - set(given)),
        query_disorder=sum(result.version == OLD and new for result, new in zip(given, seen_new, strict=False)),
        stream_disorder=sum(result.last < last for result, last in zip(given, latest, strict=False)),
        duplicates=sum(result.version == NEW and part in olds for result, part in zip(given, parts, strict=True)),
    )

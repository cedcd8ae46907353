"""A restart: the queries that a manifest saved, and the starts of the new program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eddy.queries.changes import CHANGES
from eddy.queries.lineage import require_ends
from eddy.queries.sources import Sources
from eddy.query.text import difference
from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.hub.below import HubJoin
from eddy.spark.streaming.hub.checks import check_columns, check_kind, check_stateless
from eddy.spark.streaming.hub.elements import ChangeElement, Elements, StartElement, When
from eddy.spark.streaming.hub.lineage import HubHost, HubLineage
from eddy.spark.streaming.hub.saved import has_operator, matched, resumed_lineage, saved_columns


def restarted(host: HubHost, lineages: Mapping[str, Any], elements: Elements, sources: Sources) -> Iterator[HubLineage]:
    """Yield the lineages that continue; their starts are removed from the elements, or become changes.

    lineages   name -> the saved lineage of each query that has not ended and was not dropped

    Raises SparkJoinError for a query that was not started again, that differs and has no kind of change, or whose old
    versions still have results but no queries; QueryError for other result columns.
    """
    starts = {element.name: element for element in reversed(elements.waiting) if isinstance(element, StartElement)}
    missing = [name for name in lineages if name not in starts]
    if missing:
        raise SparkJoinError(
            f"the checkpoint has the query {missing[0]!r}, which was not started again: start it with its sink, or drop"
            f" it: Hub.drop({missing[0]!r})"
        )
    for name, saved in lineages.items():
        start = starts[name]
        place = elements.waiting.index(start)
        queries = matched(saved, [start.query, *start.earlier])
        differs = difference(saved["versions"][-1]["query"], start.query, where="the checkpoint")
        if differs is not None and start.how is None:
            raise SparkJoinError(
                f"query {name!r} is another one than in the checkpoint ({differs}): say how it changes, such as"
                " how='handover', or start the same query"
            )
        if start.output != saved["output"]:
            raise SparkJoinError(
                f"query {name!r}: its output is {start.output!r}, and {saved['output']!r} in the checkpoint: start it"
                f" with output={saved['output']!r}, or under another name"
            )
        if differs is not None and start.how is not None:
            below = HubJoin(name, start.query, start.output)
            check_columns(name, saved_columns(saved), below.rows)
            check_stateless(name, start.how, below, always=has_operator(saved))
            check_kind(name, start.how, queries[-1] or start.query, below, sources)
            if CHANGES[start.how].drains:
                require_ends(name, queries[-1] or start.query, repr(start.how))
            kind = CHANGES[start.how]
            takes_back = kind.warm and below.output == "changelog"
            if not (kind.drains or kind.at_result or takes_back):
                if start.when != When():
                    raise SparkJoinError(
                        f"query {name!r}: at= and at_time= are for queries that the checkpoint does not have, and for"
                        f" changes that need the old query; {start.how!r} ends it with the next micro-batch: leave them"
                        " out, or start the old query first and change it"
                    )
                # The old versions end before they run again, and no answer is taken back: their queries are not needed.
                elements.waiting[place] = replace(start, warm=kind.warm, event=f"{start.how} change")
                continue
        lacking = [
            version["number"] for version, query in zip(saved["versions"], queries, strict=True) if query is None
        ]
        if lacking:
            changelog = HubJoin(name, start.query, start.output).output == "changelog"
            raise SparkJoinError(
                f"query {name!r} changes in the checkpoint, or is to change by {start.how!r}, and version"
                f" {lacking[0]} has {'an answer to take back' if changelog else 'results to come'}: pass its query in"
                " earlier=[…], or change to the new one at once with how="
                + ("'immediate'" if changelog else "'handover' or 'immediate'")
            )
        if differs is None or start.how is None:
            del elements.waiting[place]
        else:
            elements.waiting[place] = ChangeElement(name, start.when, start.query, start.how)
        yield resumed_lineage(host, name, saved, [query for query in queries if query is not None])

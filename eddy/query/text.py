"""A query as JSON values, so that another process can compare its query with it and name the first difference."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import repeat
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from eddy.expressions.computed import ComputedExpression
from eddy.filters.conditions import Predicate
from eddy.query.as_of import AsOfJoin
from eddy.query.branch_nodes import BranchNode
from eddy.query.clock_rule import WatermarkOf
from eddy.query.query import Query
from eddy.streams.keyed import KeyedInput
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from stairs.graph import WindowKind
from stairs.storage.json_form import either, fields, integer, list_of, one_of, optional, row_of, text

Text = dict[str, Any]
"""JSON values: strings, numbers, lists and mappings."""

_CONDITION = fields({"text": text, "arrow": text, "values": text}, others=("function",))
FILTER_FORM = optional(either(list_of(_CONDITION), _CONDITION))
"""The form of the result of `filter_text`."""
QUERY_FORM = fields(
    {
        "streams": list_of(
            fields(
                {
                    "name": text,
                    "columns": list_of(row_of(text, text)),
                    "window": row_of(one_of(WindowKind.__members__), integer(0)),
                    "time": optional(text),
                    "filter": FILTER_FORM,
                },
                others=("key", "source", "unkept", "version"),
            )
        ),
        "classes": list_of(list_of(row_of(text, rest=list_of(text)))),
        "predicates": text,
        "comparisons": list_of(text),
        "where": FILTER_FORM,
        "select": list_of(row_of(text, text, text)),
        "watermark": one_of(get_args(WatermarkOf)),
        "lateness": list_of(integer(0)),
        "idle_after": optional(integer(0)),
        "branches": text,
        "conditions": list_of(FILTER_FORM),
    },
    others=("expiry", "groups", "shown", "top"),
)
"""The form of the result of `query_text`."""


def query_text(query: Query) -> Text:
    """Return a query as JSON values: streams, classes, filters, projection, lateness. Equal queries give equal values.

    Predicates are represented by the classes that they make, windows and lateness by ticks, so that different ways to
    write the same query are equal. A function is represented by its name only.
    """
    streams: list[Text] = []
    for stream, window in zip(query.streams, query.graph.windows, strict=True):
        streams.append(
            {
                "name": stream.name,
                "columns": [[field.name, type_text(field)] for field in stream.schema],
                "window": [WindowKind(window.kind).name, window.size],
                "time": stream.time,
                "filter": filter_text(stream.conditions),
                **({"key": ", ".join(map(repr, stream.keys))} if isinstance(stream, KeyedInput) else {}),
                **_source(stream),
                **_version(stream),
                **({"unkept": "no window"} if query.unretracted and not streams else {}),
            }
        )
    groups, shown = _groups(query), _shown(query)
    return {
        **({"groups": groups} if groups else {}),
        **({"shown": shown} if shown else {}),
        **({"top": _top(query)} if query.top is not None else {}),
        **({"expiry": query.expiry} if query.expiry != "retract" else {}),
        "streams": streams,
        "classes": [
            [[name, *map(list, components)] for name, components in attribute_class.columns.items()]
            for attribute_class in query.classes
        ],
        "predicates": " AND ".join(map(str, query.classes)),
        "comparisons": sorted(comparison.canonical for comparison in query.comparisons),
        "where": filter_text(query.conditions),
        "select": [_output_text(name, output) for name, output in query.outputs.items()],
        "watermark": "slowest" if query.clock_rule.slowest else "fastest",
        "lateness": list(query.clock_rule.lateness),
        "idle_after": query.clock_rule.idle_after,
        "branches": _branches(query),
        "conditions": [filter_text(conditions) for conditions in _conditions(query)],
    }


def _source(stream: Stream) -> Text:
    """Return the query whose rows an input has, as text."""
    source = stream.source
    return {"source": json.dumps(query_text(source), sort_keys=True)} if isinstance(source, Query) else {}


def _version(stream: Stream) -> Text:
    """Return what orders the changes of a key of a table, as text."""
    if not isinstance(stream, Table) or stream.version is None:
        return {}
    lasting = "" if stream.tombstone_ticks is None else f", tombstones of {stream.tombstone_ticks}"
    return {"version": f"{stream.version!r}{lasting}"}


def _output_text(name: str, output: tuple[str, str] | ComputedExpression) -> list[str]:
    """Return an output column: its name, stream and column. Of an expression, the stream is empty."""
    if not isinstance(output, ComputedExpression):
        return [name, *output]
    return [name, "", _expression_text(output.expression)]


def _groups(query: Query) -> str:
    """Return the groups, aggregates and windows of a query as text; empty without aggregates."""
    aggregation = query.aggregation
    if aggregation is None:
        return ""
    names = [
        argument.name if argument.expression is None else _expression_text(argument.expression)
        for argument in aggregation.inputs
    ]
    parts = [f"{names[k]} as {name!r}" for name, k in aggregation.keys]
    for function in aggregation.functions:
        column = "" if function.column is None else names[function.column]
        by = "" if function.by is None else f" by {names[function.by]}"
        parts.append(f"{function.function}({column}{by}) as {function.name!r}")
    if aggregation.window is not None and aggregation.group_window is not None:
        w = aggregation.window
        of = "the greatest" if w.time is None else query.graph.names[w.time]
        span = f"sessions of gap {w.gap}" if w.gap else f"windows of {w.size} every {w.hop}"
        parts.append(
            f"{span} ticks, event time: {of}, columns {aggregation.group_window.start!r},"
            f" {aggregation.group_window.end!r}"
        )
    return "; ".join(parts)


def _top(query: Query) -> str:
    """Return `top` as text."""
    ranking = query.ranking
    assert ranking is not None

    def shown(name: str) -> str:
        if query.group_rows is not None:
            output: Any = query.group_rows.outputs[name]
        else:
            output = {**query.outputs, **query.hidden_outputs}[name]
        return _expression_text(output.expression) if isinstance(output, ComputedExpression) else repr(output)

    order = [
        shown(column.name) + " desc" * column.descending + " nulls first" * column.nulls_first
        for column in ranking.order
    ]
    by, rank = ", ".join(map(shown, ranking.by)), ranking.top.rank
    return f"{ranking.n} rows by {by or 'nothing'}, order {', '.join(order) or 'of arrival'}, rank {rank!r}"


def _shown(query: Query) -> str:
    """Return which rows of groups are emitted, and in which columns: `having` and `select`; empty for all."""
    aggregation, parts = query.aggregation, []
    if aggregation is None:
        return ""
    if aggregation.conditions:
        parts.append("having " + " and ".join(map(_identity, aggregation.conditions)))
    if query.group_outputs is not None:
        for name, output in query.group_outputs.outputs.items():
            shown = _expression_text(output.expression) if isinstance(output, ComputedExpression) else repr(output)
            parts.append(f"select {shown} as {name!r}")
    return "; ".join(parts)


def _expression_text(expression: pc.Expression) -> str:
    return _identity(Predicate(expression))


def _identity(condition: Predicate) -> str:
    """Return the identity of a condition: its text, and a digest of its values, which Arrow may shorten in the text."""
    written = _condition_text(condition)
    return f"{written['text']} [{written['values']}]"


def _branches(query: Query) -> str:
    """Return the core and the branches with their predicates as text, empty without branches."""
    if query.tree is None:
        return ""

    def node(branch: BranchNode) -> str:
        names, join = " ".join(query.graph.names[i] for i in branch.streams), query.inner_joins().get(branch.path)
        on = (
            []
            if join is None
            else [*map(str, join.classes), *sorted(comparison.canonical for comparison in join.comparisons)]
        )
        return f"{branch.how}({'; '.join([f'{names}: ' + ' and '.join(on), *map(node, branch.branches)])})"

    return " ".join([*map(node, query.cores), *map(_as_of, repeat(query), query.as_of_joins)])


def _as_of(query: Query, join: AsOfJoin) -> str:
    """Return an as-of join as text."""
    names = query.graph.names
    on = " and ".join(f"{names[key.stream]}.{key.column} = {key.key} as {key.kind}" for key in join.keys)
    within = "" if join.tolerance is None else f" within {join.tolerance} ticks"
    how = "left" if join.left else "inner"
    at = "its arrival" if join.at is None else names[join.at]
    return f"as_of({how} {names[join.table]}: {on}; {join.direction} at {at}{within})"


def _conditions(query: Query) -> list[tuple[Predicate, ...]]:
    """Return the conditions of each inner join of a query with branches; none for other queries."""
    return [] if query.tree is None else [join.conditions for join in query.inner_joins().values()]


def type_text(field: pa.Field) -> str:
    """Return the type of a column, and whether it has no nulls."""
    return f"{field.type}{'' if field.nullable else ' not null'}"


def filter_text(conditions: Sequence[Predicate]) -> Text | list[Text] | None:
    """Return the conditions of a filter: None for none, a mapping for one, a list in their order for several."""
    texts = [_condition_text(condition) for condition in conditions]
    return None if not texts else texts[0] if len(texts) == 1 else texts


def _condition_text(condition: Predicate) -> Text:
    """Return the identity of a condition. For a function: its name.

    For an expression: its text, in which Arrow shortens long lists of values; a digest of the bytes that this version
    of Arrow serializes it to; a digest of all values in it.
    """
    if not isinstance(condition.function, pc.Expression):
        return {"text": condition.title, "arrow": "", "values": "", "function": condition.title}
    expression: Any = condition.function
    try:
        _, (whole,) = expression.__reduce__()
        # Its literals and options are the columns of one row.
        row = pa.ipc.open_file(whole).get_batch(0)
    except pa.ArrowException:
        # Arrow cannot serialize some options; then only the text is compared.
        return {"text": str(expression), "arrow": "", "values": ""}
    try:
        values = _digest("\n".join(f"{column.type}: {column.to_pylist()!r}" for column in row.columns).encode())
    except ValueError:
        # Python's types cannot hold nanoseconds.
        values = ""
    return {"text": str(expression), "arrow": _digest(whole), "values": values}


def _digest(data: bytes | pa.Buffer) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _listed(text: Text | list[Text] | None) -> list[Text]:
    return [] if text is None else text if isinstance(text, list) else [text]


def same_filter(saved: Text | list[Text] | None, conditions: Sequence[Predicate]) -> bool:
    """Return whether `saved` is the `filter_text` of these conditions; functions are compared by name only."""
    theirs = _listed(saved)
    return len(theirs) == len(conditions) and all(map(_same_condition, theirs, conditions))


def _same_condition(saved: Text, condition: Predicate) -> bool:
    given = _condition_text(condition)
    if saved == given:
        return True
    if not given["arrow"] or "function" in saved:
        return False
    # Another version of Arrow may serialize the same expression to other bytes, or print it as another text. The saved
    # bytes are only compared and never deserialized, because they may be forged.
    if saved["arrow"] == given["arrow"]:
        return True
    return bool(given["values"]) and (saved["text"], saved["values"]) == (given["text"], given["values"])


def filter_shown(text: Text | list[Text] | None) -> str:
    """Return the result of `filter_text` as readable text."""
    return " and ".join(str(condition["text"]) for condition in _listed(text)) or "none"


def _columns(columns: list[list[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _spans(spans: list[int]) -> str:
    shown = [str(span) for span in (spans[:1] if len(set(spans)) == 1 else spans)]
    return f"{', '.join(shown)} ticks"


def _window(window: list[Any]) -> str:
    kind, size = window
    return {"ROWS": f"ROWS {size}", "RANGE": f"RANGE {size} ticks"}.get(kind, kind)


def difference(saved: Text, query: Query, where: str = "the snapshot", results: bool = True) -> str | None:
    """Return the first difference between a query and the `query_text` of a saved one, None if they are equal.

    where    the place of `saved`, for the text
    results  whether to compare also parts that do not affect the state: `where` (without groups), `having`, `select`
    """
    given = query_text(query)

    def differ(what: str, theirs: object, mine: object) -> str:
        return f"{what}: {theirs} in {where}, {mine} in the query"

    names, own_names = ([stream["name"] for stream in text["streams"]] for text in (saved, given))
    if names != own_names:
        return differ("streams", ", ".join(names), ", ".join(own_names))
    for theirs, mine, stream in zip(saved["streams"], given["streams"], query.streams, strict=True):
        place = f"stream {stream.name}"
        if theirs["columns"] != mine["columns"]:
            return _column_difference(place, where, theirs["columns"], mine["columns"])
        if theirs["time"] != mine["time"]:
            return differ(f"{place}, time column", theirs["time"] or "none", mine["time"] or "none")
        if theirs.get("key") != mine.get("key"):
            shown = [side.get("key", "none, a stream") for side in (theirs, mine)]
            return differ(f"{place}, key of a table", *shown)
        if theirs.get("version") != mine.get("version"):
            return differ(f"{place}, version", theirs.get("version", "none"), mine.get("version", "none"))
        if theirs.get("source") != mine.get("source"):
            return differ(
                f"{place}, its query", *("another one" if side.get("source") else "none" for side in (theirs, mine))
            )
        if theirs.get("unkept") != mine.get("unkept"):
            shown = [side.get("unkept") or _window(side["window"]) for side in (theirs, mine)]
            return differ(f"{place}, window", *shown)
        if theirs["window"] != mine["window"]:
            return differ(f"{place}, window", _window(theirs["window"]), _window(mine["window"]))
        if not same_filter(theirs["filter"], stream.conditions):
            return differ(f"{place}, filter", filter_shown(theirs["filter"]), filter_shown(mine["filter"]))
    if saved["classes"] != given["classes"]:
        return differ("predicates", saved["predicates"], given["predicates"])
    if saved["comparisons"] != given["comparisons"]:
        return differ("comparisons", *(" AND ".join(text["comparisons"]) or "none" for text in (saved, given)))
    if saved.get("top") != given.get("top"):
        return differ("top", saved.get("top", "none"), given.get("top", "none"))
    grouped, ranked = query.aggregation is not None, query.top is not None
    if (results or grouped or ranked) and not same_filter(saved["where"], query.conditions):
        why = "; the groups count the rows that it accepted" if grouped else ""
        why = "; top keeps the rows that it accepted" if ranked and not grouped else why
        return differ("where", filter_shown(saved["where"]), filter_shown(given["where"])) + why
    if saved.get("groups") != given.get("groups"):
        return differ("groups", *(text.get("groups", "none") for text in (saved, given)))
    if (results or ranked) and saved.get("shown") != given.get("shown"):
        return differ("rows of groups", *(text.get("shown", "all") for text in (saved, given)))
    if (results or ranked) and not grouped and saved["select"] != given["select"]:
        shown = [
            ", ".join(f"{name} = {s}{'.' * bool(s)}{c}" for name, s, c in text["select"]) for text in (saved, given)
        ]
        return differ("select", *shown)
    if saved["watermark"] != given["watermark"]:
        return differ("watermark", saved["watermark"], given["watermark"])
    if saved["lateness"] != given["lateness"]:
        return differ("lateness", _spans(saved["lateness"]), _spans(given["lateness"]))
    if saved["idle_after"] != given["idle_after"]:
        shown = [text["idle_after"] for text in (saved, given)]
        return differ("idle_after", *("none" if span is None else f"{span} ticks" for span in shown))
    if saved.get("expiry") != given.get("expiry"):
        return differ("expiry", *(text.get("expiry", "retract") for text in (saved, given)))
    if saved["branches"] != given["branches"]:
        return differ("branches", saved["branches"] or "none", given["branches"] or "none")
    joins = _conditions(query)
    if len(saved["conditions"]) != len(joins):
        return differ("conditions of branches", len(saved["conditions"]), len(joins))
    for theirs, conditions in zip(saved["conditions"], joins, strict=True):
        if not same_filter(theirs, conditions):
            return differ("where of a branch", filter_shown(theirs), filter_shown(filter_text(conditions)))
    return None


def _column_difference(place: str, where: str, theirs: list[list[str]], mine: list[list[str]]) -> str:
    saved, given = dict(theirs), dict(mine)
    for name in [*saved, *given]:
        if saved.get(name) != given.get(name):
            there, here = saved.get(name, "absent"), given.get(name, "absent")
            return f"{place}, column {name!r}: {there} in {where}, {here} in the query"
    return f"{place}: columns {_columns(theirs)} in {where}, {_columns(mine)} in the query"

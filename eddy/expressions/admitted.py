"""The parts of a statement that have an effect: all other parts are refused, so that no part is read and ignored.

sqlglot parses the clauses and modifiers of many dialects. `PARTS` lists, for each kind of node, the parts that the
reader of statements uses. A part that is set and not listed is an error with its place, in the statement, a subquery, a
common table expression, EXISTS, IN, or a branch of UNION ALL. The reader handles kinds of nodes without an entry, and
refuses the kinds that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from eddy.expressions.source import StatementText

PARTS: dict[type[exp.Expression], frozenset[str]] = {
    kind: frozenset(parts.split())
    for kind, parts in {
        # Statements
        exp.Select: "expressions from_ joins where group having with_ distinct qualify",
        exp.Qualify: "this",
        exp.Union: "this expression distinct with_",
        exp.Except: "this expression distinct with_",
        exp.Intersect: "this expression distinct with_",
        exp.With: "expressions",
        exp.CTE: "this alias",
        exp.From: "this",
        exp.Table: "this db catalog alias joins",
        exp.Subquery: "this alias joins",
        exp.TableAlias: "this columns",
        exp.Join: "this on using side kind method",
        exp.Version: "this expression kind",
        exp.Where: "this",
        exp.Group: "expressions",
        exp.Having: "this",
        # Expressions
        exp.Alias: "this alias",
        exp.Column: "this table db catalog",
        exp.Identifier: "this quoted",
        exp.Star: "",
        exp.Literal: "this is_string",
        exp.Boolean: "this",
        exp.Null: "",
        exp.Paren: "this",
        exp.Tuple: "expressions",
        exp.Unary: "this",
        exp.Binary: "this expression",
        # The parser sets flags of these nodes by its dialect, never by the text.
        exp.DPipe: "this expression safe",
        exp.Div: "this expression typed safe",
        exp.Like: "this expression negate",
        exp.ILike: "this expression negate",
        exp.Between: "this low high",
        exp.In: "this expressions query",
        exp.Exists: "this",
        exp.Case: "this ifs default",
        exp.If: "this true false",
        exp.Cast: "this to",
        exp.TryCast: "this to safe",
        exp.DataType: "this expressions",
        exp.DataTypeParam: "this",
        exp.Extract: "this expression",
        exp.Substring: "this start length",
        exp.Trim: "this expression position",
        exp.StrPosition: "this substr",
        exp.Floor: "this decimals to",
        exp.Ceil: "this decimals",
        exp.Interval: "this unit",
        exp.Var: "this",
        exp.Anonymous: "this expressions",
        exp.Filter: "this expression",
        exp.Window: "this partition_by order spec alias over",
        exp.Distinct: "expressions",
        exp.Order: "this expressions",
        exp.Ordered: "this desc nulls_first",
    }.items()
}
"""Kind of node -> its parts that have an effect, or are refused where they are read."""

_PUSHED = "a stream has no end; take rows of the table of a push"
_ORDERED = "results come in the order of their last rows; sort the table of a push"
_GROUPED = "write a SELECT for each, with UNION ALL"
_PLAN = "leave it out: policies choose the plan"
_LEAVE = "leave it out"
_SAMPLE = "keep rows out with WHERE"
_NULLS = "rows in which the value or what it goes by is NULL do not count"
_INTERVAL = "write a join with an interval between event times"

REFUSED: dict[str, tuple[str, str]] = {
    # Clauses of SELECT
    "kind": ("a kind of SELECT", "name the columns"),
    "hint": ("a hint", _PLAN),
    "operation_modifiers": ("a modifier of SELECT", _LEAVE),
    "into": ("INTO", "push returns the results"),
    "exclude": ("EXCLUDE", "name the columns"),
    "match": ("MATCH_RECOGNIZE", "write a join with intervals between event times"),
    "laterals": ("LATERAL VIEW", "make its rows a stream of their own"),
    "connect": ("CONNECT BY", "write a join"),
    "pivots": ("PIVOT", "write CASE expressions"),
    "prewhere": ("PREWHERE", "write WHERE"),
    "windows": ("WINDOW", "write GROUP BY with TUMBLE, HOP or SESSION"),
    "distribute": ("DISTRIBUTE BY", "the engine distributes rows"),
    "sort": ("SORT BY", "sort the table of a push"),
    "cluster": ("CLUSTER BY", "the engine distributes rows"),
    "order": ("ORDER", _ORDERED),
    "limit": ("LIMIT", _PUSHED),
    "fetch": ("FETCH", _PUSHED),
    "offset": ("OFFSET", _PUSHED),
    "locks": ("FOR UPDATE", "leave it out: streams have no locks"),
    "sample": ("TABLESAMPLE", _SAMPLE),
    "settings": ("SETTINGS", _LEAVE),
    "format": ("FORMAT", _LEAVE),
    "options": ("OPTION", _LEAVE),
    "for_": ("FOR", _LEAVE),
    "distinct_on": ("DISTINCT ON", "write GROUP BY with FIRST_VALUE(x ORDER BY y) for each column"),
    # Set operations and common table expressions
    "by_name": ("BY NAME", "list the columns of both SELECTs in the same order"),
    "on": ("ON", "list the columns of both SELECTs in the same order"),
    "recursive": ("WITH RECURSIVE", "a query is one join"),
    "materialized": ("MATERIALIZED", "leave it out: a common table expression flattens into the join"),
    "search": ("SEARCH", _LEAVE),
    "cycle": ("CYCLE", _LEAVE),
    # Tables and joins
    "system_time": ("FOR SYSTEM_TIME", _INTERVAL),
    "version": (
        "FOR SYSTEM_TIME AS OF",
        "write it in a join, with the time of a row, or PROCTIME(): FOR SYSTEM_TIME AS OF row.time",
    ),
    "when": ("AT", _INTERVAL),
    "changes": ("CHANGES", "push a changelog's rows as a stream"),
    "hints": ("a hint", _PLAN),
    "indexed": ("INDEXED BY", _PLAN),
    "ordinality": ("WITH ORDINALITY", "make the number a column of the stream"),
    "only": ("ONLY", _LEAVE),
    "partition": ("PARTITION", _SAMPLE),
    "global_": ("GLOBAL", _LEAVE),
    "match_condition": ("MATCH_CONDITION", "write the condition in ON"),
    # Groups
    "rollup": ("GROUP BY ROLLUP", _GROUPED),
    "cube": ("GROUP BY CUBE", _GROUPED),
    "grouping_sets": ("GROUP BY GROUPING SETS", _GROUPED),
    "totals": ("GROUP BY … WITH TOTALS", _GROUPED),
    "all": ("GROUP BY ALL or DISTINCT", "name the columns"),
    # Expressions
    "nulls_first": ("NULLS FIRST", _NULLS),
    "except_": ("* EXCEPT", "name the columns"),
    "replace": ("* REPLACE", "name the columns"),
    "rename": ("* RENAME", "name the columns"),
    "ilike": ("* ILIKE", "name the columns"),
    "join_mark": ("(+)", "write LEFT JOIN"),
    "symmetric": ("BETWEEN SYMMETRIC", "write BETWEEN LEAST(x, y) AND GREATEST(x, y)"),
    "collation": ("COLLATE", "texts are compared by their characters"),
    "collate": ("COLLATE", "texts are compared by their characters"),
    "default": ("DEFAULT … ON CONVERSION ERROR", "keep such values out with a filter of the stream"),
    "nullable": ("NULL in a type", _LEAVE),
    "unnest": ("UNNEST", "list the values"),
    "is_global": ("GLOBAL", _LEAVE),
}
"""Part -> its name in messages, and the remedy."""
_KINDS = ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI")


def check(tree: exp.Expression, source: StatementText) -> None:
    """Raise SqlError for the first part of a statement that would have no effect."""
    for node in tree.dfs():
        admitted = next((PARTS[kind] for kind in type(node).__mro__ if kind in PARTS), None)
        if isinstance(node, exp.Join):
            _check_join(node, source)
        word = _nulls_of(node) if isinstance(node, exp.Ordered) and not _in_window(node) else None
        if word is not None:
            raise source.error(source.keyword(node, None, "NULLS"), f"{word} is not supported; {_NULLS}")
        for name, value in node.args.items():
            if admitted is None or name in admitted or not _is_set(name, value):
                continue
            if name == "version" and isinstance(node.parent, exp.Join) and _is_of_row(value.expression):
                continue
            word, remedy = REFUSED.get(name, (name.strip("_").replace("_", " ").upper(), _LEAVE))
            if isinstance(value, exp.Fetch):
                word, remedy = REFUSED["fetch"]
            if isinstance(node, exp.Distinct):
                word, remedy = REFUSED["distinct_on"]
            part = next(_nodes(value), None)
            raise source.error(source.keyword(node, part, word), f"{word} is not supported; {remedy}")


def is_arrival(node: exp.Expression) -> bool:
    """Return whether a node is PROCTIME(), the arrival of a row."""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == "PROCTIME" and not node.expressions


def _is_of_row(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column) or is_arrival(node)


def _nulls_of(node: exp.Ordered) -> str | None:
    """Return where a term of an order puts nulls, if its text says so."""
    return node.meta.get("nulls") or ("NULLS FIRST" if node.args.get("nulls_first") else None)


def _in_window(node: exp.Ordered) -> bool:
    """Return whether a term orders the rows of OVER (…)."""
    return node.parent is not None and isinstance(node.parent.parent, exp.Window)


def _is_set(name: str, value: object) -> bool:
    """Return whether a part is written. GROUP BY DISTINCT has all=False, and NOT MATERIALIZED materialized=False."""
    return value is not None and value != [] and (value is not False or name in ("all", "materialized"))


def _nodes(value: object) -> Iterator[exp.Expression]:
    for node in value if isinstance(value, list) else [value]:
        if isinstance(node, exp.Expression):
            yield node


def _check_join(node: exp.Join, source: StatementText) -> None:
    side, kind, method = (str(node.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    fault, word = None, method or kind
    if method and method not in ("ASOF", "NATURAL"):
        fault = f"{method} JOIN is not supported; write JOIN … ON with the columns"
    elif kind not in _KINDS or (kind == "OUTER" and not side):
        fault = f"{kind.replace('_JOIN', '')} JOIN is not supported; write JOIN … ON"
    elif kind == "CROSS" and (node.args.get("on") is not None or node.args.get("using")):
        fault = "CROSS JOIN takes no condition; write JOIN … ON"
    if fault is not None:
        raise source.error(source.keyword(node, None, word, before=True), fault)

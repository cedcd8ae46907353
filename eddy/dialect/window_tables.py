"""Window table functions, as in Flink: FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' SECOND)).

The function is taken out of the text before it is parsed: the name of the table stays, at its place. In the SELECT,
`window_start`, `window_end` and `window_time` become the functions of the older form, and GROUP BY gets its window.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sqlglot import exp

from eddy.expressions.source import StatementText, parse

_CALL = re.compile(
    r"""'[^']*' | "[^"]*" | `[^`]*` | --[^\n]* | /\*.*?\*/ |
    \bTABLE\s*\(\s*(?P<function>TUMBLE|HOP|SESSION)\s*\(\s*TABLE\s+(?P<table>[\w."`]+)\s*,
    \s*DESCRIPTOR\s*\(\s*(?P<time>[\w"`]+)\s*\)\s*,(?P<spans>[^()]*)\)\s*\)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""A window table function; or a string, a name in quotes or a comment, in which there is none."""
BOUNDS = {"window_start": "START", "window_end": "END"}


class WindowCall(NamedTuple):
    """A window table function: its name, its time column, its spans as text, and the place of its table."""

    function: str
    time: str
    spans: str
    place: int

    def tree(self, bound: str = "") -> exp.Expression:
        """Return the window as GROUP BY has it, or one of its bounds."""
        text = f"SELECT {self.function}{bound and '_' + bound}({self.time}, {self.spans})"
        window: exp.Expression = parse(StatementText(text)).expressions[0]
        for node in window.walk():
            if "start" in node.meta:
                node.meta["start"] = self.place
        return window


def without_window_tables(text: str) -> tuple[str, dict[int, WindowCall]]:
    """Return a text of the same length without window table functions, and these by the place of their table."""
    calls: dict[int, WindowCall] = {}

    def plain(match: re.Match[str]) -> str:
        if match["table"] is None:
            return match.group()
        begin, end = match.span("table")
        calls[begin] = WindowCall(match["function"].upper(), match["time"], match["spans"].strip(), begin)
        blank = re.sub(r"\S", " ", match.group())
        first, last = begin - match.start(), end - match.start()
        return blank[:first] + match["table"] + blank[last:]

    return _CALL.sub(plain, text), calls


def with_window(select: exp.Select, source: StatementText) -> exp.Select:
    """Return a SELECT over a window table with the window in its GROUP BY. Raises SqlError for other uses."""
    start = select.args.get("from_") or select.args.get("from")
    tables = [table for table in select.find_all(exp.Table) if source.offset(table) in source.windows]
    direct = [table for table in tables if table.find_ancestor(exp.Select) is select]
    if not direct:
        return select
    if len(direct) > 1 or start is None or direct[0] is not start.this or select.args.get("joins"):
        raise source.error(
            direct[-1],
            "a window table is the only relation of its SELECT; write FROM … JOIN … GROUP BY TUMBLE(…) for a join",
        )
    call, changed = source.windows[source.offset(direct[0])], select.copy()
    given = changed.args.get("group")
    named = [key for key in ([] if given is None else given.expressions) if _bound(key) is not None]
    if not named:
        raise source.error(direct[0], "a SELECT over a window table groups by window_start and window_end")
    given.set("expressions", [key for key in given.expressions if _bound(key) is None] + [call.tree()])
    for part in (*changed.expressions, *filter(None, [changed.args.get("having")])):
        for node in list(part.find_all(exp.Column)):
            bound = _bound(node)
            if bound is None:
                continue
            tree = call.tree(BOUNDS[bound])
            if node is part:
                tree = exp.alias_(tree, bound)
            node.replace(tree)
    return changed


def _bound(node: exp.Expression) -> str | None:
    """Return the bound of the window that a column is, None for other trees."""
    name = node.name.lower() if isinstance(node, exp.Column) else ""
    return name if name in BOUNDS else None

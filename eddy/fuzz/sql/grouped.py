"""Random SELECTs with GROUP BY, and the same for DuckDB, which has no TUMBLE and HOP."""

from __future__ import annotations

from random import Random

from eddy.fuzz.sql.expressions import Expressions


def grouped(source: Random, rows: tuple[str, str], made: Expressions, before: str) -> tuple[str, str]:
    """Return a statement with groups, and the same for DuckDB.

    rows     FROM and the condition of WHERE
    before   WITH
    """
    text = rows[0] + (rows[1] and f" WHERE {rows[1]}")
    keys = [
        source.choice((made.column("key", "int", "text", "bool"), f"ABS({made.number(1)})", f"UPPER({made.text(1)})"))
    ]
    keys = [keys[0], made.column("key", "text")][: source.choice((0, 1, 1, 2))]
    items = [f"{key} AS g{i}" for i, key in enumerate(keys)]
    if items and source.random() < 0.1:
        return (f"{before}SELECT DISTINCT {', '.join(items)} {text}",) * 2
    calls = [_aggregate(source, made) for _ in range(source.randint(1, 3))]
    items += [f"{_CALL}{i} AS n{i}" for i in range(len(calls))]
    if source.random() < 0.4:
        items.append(f"SUM({made.column('int', 'key')}) * 2 + COUNT(*) AS m")
    source.shuffle(items)
    having = ""
    if source.random() < 0.3:
        having = source.choice((" HAVING COUNT(*) > 1", " HAVING n0 IS NOT NULL", " HAVING COUNT(*) < 4 OR 1 > 2"))
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    statement = f"{before}SELECT {', '.join(items)} {text}{group}{having}"
    return tuple(_filled(statement, [call[k] for call in calls]) for k in range(2))  # type: ignore[return-value]


_CALL = "\0"
"""Stands before the number of an aggregate, which eddy and DuckDB may write differently."""


def _filled(text: str, calls: list[str]) -> str:
    for i, call in enumerate(calls):
        text = text.replace(f"{_CALL}{i}", call)
    return text


def _aggregate(source: Random, made: Expressions) -> tuple[str, str]:
    """Return an aggregate, and the same for DuckDB."""
    keep = f" FILTER (WHERE {made.condition(1)})" if source.random() < 0.2 else ""
    if source.random() < 0.2:
        return _ordered(source, made, keep)
    call = source.choice(
        (
            "COUNT(*)",
            f"COUNT({made.text(1)})",
            f"COUNT(DISTINCT {made.column('key', 'int', 'text')})",
            f"SUM({made.number(2)})",
            f"SUM({made.column('decimal')})",
            f"AVG({made.number(1)})",
            f"AVG({made.column('float')})",
            f"{source.choice(('MIN', 'MAX'))}({source.choice((made.number(2), made.text(1), made.time(1)))})",
        )
    )
    return call + keep, call + keep


def _ordered(source: Random, made: Expressions, keep: str) -> tuple[str, str]:
    """Return an aggregate that goes by an order. In DuckDB the value decides where that is equal."""
    value, by = source.choice((made.number(1), made.text(1))), source.choice((made.number(1), made.time(1)))
    call, most = source.choice(
        (
            (f"FIRST_VALUE({value} ORDER BY {by})", False),
            (f"FIRST_VALUE({value} ORDER BY {by} DESC)", True),
            (f"LAST_VALUE({value} ORDER BY {by} ASC)", True),
            (f"LAST_VALUE({value} ORDER BY {by} DESC)", False),
            (f"MAX_BY({value}, {by})", True),
            (f"ARG_MIN({value}, {by})", False),
        )
    )
    known = f"({value}) IS NOT NULL AND ({by}) IS NOT NULL"
    kept = keep.replace("(WHERE ", f"(WHERE {known} AND (", 1) + ")" if keep else f" FILTER (WHERE {known})"
    return call + keep, f"{'ARG_MAX' if most else 'ARG_MIN'}({value}, ROW({by}, {value})){kept}"


def windowed(source: Random, rows: tuple[str, str], made: Expressions, before: str) -> tuple[str, str]:
    """Return a statement with a window of event time, and the same for DuckDB. The arguments are those of `grouped`."""
    first, where = rows
    text = first + (where and f" WHERE {where}")
    time = made.column("time")
    key = made.column("key", "text", "bool")
    drawn = [_aggregate(source, made) for _ in range(source.randint(1, 2))]
    calls, own_calls = (", ".join(f"{call[k]} AS n{i}" for i, call in enumerate(drawn)) for k in (1, 0))
    size = source.choice((7, 10, 30, 60))
    ticks = f"CAST(EPOCH({time}) AS BIGINT)"
    if source.random() < 0.6:
        call = f"({time}, INTERVAL '{size}' SECOND)"
        query = f"{before}SELECT TUMBLE_START{call} AS w, {key} AS g, {own_calls} {text} GROUP BY TUMBLE{call}, {key}"
        start = f"{ticks} - {ticks} % {size}"
        return (
            query,
            f"{before}SELECT MAKE_TIMESTAMP(({start}) * 1000000) AS w, {key} AS g, {calls} {text}"
            f" GROUP BY {start}, {key}",
        )
    hop = source.choice((3, 5, 10))
    call = f"({time}, INTERVAL '{hop}' SECOND, INTERVAL '{size}' SECOND)"
    query = f"{before}SELECT HOP_START{call} AS w, {key} AS g, {own_calls} {text} GROUP BY HOP{call}, {key}"
    # Each row is in one window for each multiple of the hop in the size before its time.
    steps = f"CROSS JOIN (SELECT UNNEST(RANGE({-(-size // hop)})) AS step) AS steps"
    start = f"({ticks} - {ticks} % {hop} - steps.step * {hop})"
    kept = f"{start} + {size} > {ticks}" + (f" AND ({where})" if where else "")
    reference = (
        f"{before}SELECT MAKE_TIMESTAMP({start} * 1000000) AS w, {key} AS g, {calls} {first} {steps} WHERE {kept}"
    )
    return query, f"{reference} GROUP BY {start}, {key}"

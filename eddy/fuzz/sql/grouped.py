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
    keys = [source.choice((made.column("key", "int", "text", "bool"), f"ABS({made.number(1)})", f"UPPER({made.text(1)})"))]
    keys = [keys[0], made.column("key", "text")][: source.choice((0, 1, 1, 2))]
    items = [f"{key} AS g{i}" for i, key in enumerate(keys)]
    calls = [_aggregate(source, made) for _ in range(source.randint(1, 3))]
    items += [f"{call} AS n{i}" for i, call in enumerate(calls)]
    if source.random() < 0.4:
        items.append(f"SUM({made.column('int', 'key')}) * 2 + COUNT(*) AS m")
    source.shuffle(items)
    having = ""
    if source.random() < 0.3:
        having = source.choice((" HAVING COUNT(*) > 1", f" HAVING {calls[0]} IS NOT NULL", " HAVING COUNT(*) < 4 OR 1 > 2"))
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    own = f"{before}SELECT {', '.join(items)} {text}{group}{having}"
    return own, own


def _aggregate(source: Random, made: Expressions) -> str:
    keep = f" FILTER (WHERE {made.condition(1)})" if source.random() < 0.2 else ""
    call = source.choice(
        (
            "COUNT(*)",
            f"COUNT({made.text(1)})",
            f"COUNT(DISTINCT {made.column('key', 'int', 'text')})",
            f"SUM({made.number(2)})",
            f"SUM({made.column('decimal')})",
            f"AVG({made.number(1)})",
            f"AVG({made.column('float')})",
            f"{source.choice(('MIN', 'MAX'))}({source.choice((made.number(2), made.text(1), made.time(1), made.exact(1)))})",
        )
    )
    return call + keep


def windowed(source: Random, rows: tuple[str, str], made: Expressions, before: str) -> tuple[str, str]:
    """Return a statement with a window of event time, and the same for DuckDB. The arguments are those of `grouped`."""
    first, where = rows
    text = first + (where and f" WHERE {where}")
    time = made.column("time")
    key = made.column("key", "text", "bool")
    calls = ", ".join(f"{_aggregate(source, made)} AS n{i}" for i in range(source.randint(1, 2)))
    size = source.choice((7, 10, 30, 60))
    ticks = f"CAST(EPOCH({time}) AS BIGINT)"
    if source.random() < 0.6:
        call = f"({time}, INTERVAL '{size}' SECOND)"
        own = f"{before}SELECT TUMBLE_START{call} AS w, {key} AS g, {calls} {text} GROUP BY TUMBLE{call}, {key}"
        start = f"{ticks} - {ticks} % {size}"
        return own, f"{before}SELECT MAKE_TIMESTAMP(({start}) * 1000000) AS w, {key} AS g, {calls} {text} GROUP BY {start}, {key}"
    hop = source.choice((3, 5, 10))
    call = f"({time}, INTERVAL '{hop}' SECOND, INTERVAL '{size}' SECOND)"
    own = f"{before}SELECT HOP_START{call} AS w, {key} AS g, {calls} {text} GROUP BY HOP{call}, {key}"
    # Each row is in one window for each multiple of the hop in the size before its time.
    steps = f"CROSS JOIN (SELECT UNNEST(RANGE({-(-size // hop)})) AS step) AS steps"
    start = f"({ticks} - {ticks} % {hop} - steps.step * {hop})"
    kept = f"{start} + {size} > {ticks}" + (f" AND ({where})" if where else "")
    reference = f"{before}SELECT MAKE_TIMESTAMP({start} * 1000000) AS w, {key} AS g, {calls} {first} {steps} WHERE {kept}"
    return own, f"{reference} GROUP BY {start}, {key}"

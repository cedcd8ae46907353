"""A case of random SQL as a Python script."""

from __future__ import annotations

from eddy.fuzz.sql.case import SqlCase


def script(case: SqlCase, title: str) -> str:
    """Return a script that plays the case; `title` is its first comment."""
    lines = [f"# {title}", "", "from eddy.fuzz.sql.case import SqlCase", "from eddy.fuzz.sql.play import play", "", "tables = {"]
    for name, rows in case.tables.items():
        lines.append(f"    {name!r}: (  # k, v, d in hundredths, x in quarters, s, f, at in seconds")
        lines += [f"        {row!r}," for row in rows]
        lines.append("    ),")
    lines += ["}", f"text = {case.text!r}", f"reference = {case.reference!r}  # for DuckDB"]
    rest = f"kept={case.kept}, pushes={case.pushes}, strategy={case.strategy!r}, printed={case.printed}"
    lines += [f"case = SqlCase(tables, text, reference, {rest})", "print(play(case))", ""]
    return "\n".join(lines)

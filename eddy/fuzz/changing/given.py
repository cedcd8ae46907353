"""Compare the results of a query that changes with those expected; `eddy.fuzz.changing.script` copies this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from eddy.fuzz.compare import compare_rows

Expected = tuple[int, int, tuple[int, ...]]
"""A result: its version, the position of its first component, and the column n of each component."""


def given_rows(table: pa.Table) -> list[tuple[int, tuple[int, ...]]]:
    """Return the version and the components of each row: the columns of all other versions are null."""
    rows = []
    for row in table.to_pylist():
        numbers = {name: n for name, n in row.items() if n is not None}
        (version,) = {name.split("_")[0] for name in numbers}
        rows.append((int(version), tuple(numbers.values())))
    return rows


def compare_given(table: pa.Table, groups: Sequence[Sequence[Expected]], complete_from: Mapping[int, int]) -> None:
    """Raise AssertionError unless a table has the expected results, in the order of the groups.

    complete_from   versions that started warm: a result with an earlier component may be missing
    """
    got = given_rows(table)
    wanted = []
    for group in groups:
        sure = [(version, numbers) for version, first, numbers in group if first >= complete_from.get(version, 0)]
        wanted.append(
            sure
            + [
                (version, numbers)
                for version, first, numbers in group
                if (version, numbers) in got and first < complete_from.get(version, 0)
            ]
        )
    compare_rows(got, [group for group in wanted if group])

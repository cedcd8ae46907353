"""Names of the files of groups, in one directory: each has the groups after a batch, or how they follow.

000000000007        the groups after batch 7
000000000008-rows   the results of batch 8: with them, the groups after batch 8 follow from those after batch 7
"""

from __future__ import annotations

from collections.abc import Iterable

from eddy.spark.streaming.state.batch_names import batch_named

ROWS = "-rows"
"""The ending of a file of results."""


def batch_of_groups(name: str) -> int | None:
    """Return the batch of a file of groups, None for any other name."""
    return batch_named(name.removesuffix(ROWS))


def still_needed(names: Iterable[str], newest: int, before: int | None = None) -> tuple[list[str], list[str]]:
    """Return the files from which the groups of the newest batches follow, and all earlier ones.

    names    of one directory, those of other files as well, which are left out
    newest   number of batches
    before   only batches before this one are counted, and all later ones are needed; None = all
    """
    files = sorted(name for name in names if batch_of_groups(name) is not None)
    counted = [k for k, name in enumerate(files) if before is None or (batch_of_groups(name) or 0) < before]
    begin = max(len(counted) - newest, 0)
    while begin and begin < len(files) and files[begin].endswith(ROWS):
        begin -= 1
    return files[begin:], files[:begin]

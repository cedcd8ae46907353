"""The groups of a query with aggregates in the sections of a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eddy.aggregates.groups import Groups
from eddy.aggregates.storage import names
from eddy.snapshot.checked_sections import CheckedSections
from eddy.storage.arrays import number_bytes
from eddy.storage.sections import FileKind


def groups_names(groups: Groups | None) -> set[str]:
    """Return the names of the sections of groups, none without them."""
    return set() if groups is None else {f"groups {name}" for name in names(groups.state)}


def groups_sections(groups: Groups) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return the header of groups and their sections."""
    header, parts = groups.contents()
    kinds = {name: "<u1" if part.dtype == np.uint8 else "<i8" for name, part in parts.items()}
    return header, {f"groups {name}": number_bytes(part, kinds[name]) for name, part in parts.items()}


def fill_groups(
    groups: Groups, header: dict[str, Any], sections: CheckedSections, watermark: int | None, kind: FileKind
) -> None:
    """Fill the groups of a new engine. Raises the error of the kind for sections that do not fit."""

    def numbers(name: str, width: int | None) -> npt.NDArray[Any]:
        if width is None:
            return sections.numbers(f"groups {name}", "<u1", np.uint8)
        return sections.numbers(f"groups {name}", shape=(-1, width) if width else None)

    groups.fill(header, numbers, watermark, kind.require)

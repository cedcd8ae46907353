"""The state of an engine and its queries before a call, so that a push or an element happens in whole or not at all.

Their attributes are replaced, and the lists and dicts in them are never modified. So a savepoint copies no contents.
"""

from __future__ import annotations

from collections.abc import Iterable


class AttributeSavepoint:
    """The attributes of some objects, the one that has the savepoint first. O(attributes)."""

    def __init__(self, parts: Iterable[object]) -> None:
        self._saved = [(part, dict(vars(part))) for part in parts]

    def restore(self) -> None:
        """Set all attributes to what they were. It may be repeated."""
        # The first part, whose savepoint this is, comes last: with it, the savepoint is forgotten.
        for part, attributes in reversed(self._saved):
            vars(part).update(attributes)

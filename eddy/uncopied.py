"""Objects with live state: a copy would share a part of it, so they refuse to be copied and pickled."""

from __future__ import annotations

from typing import ClassVar, SupportsIndex

from stairs.errors import StateError


class Uncopied:
    """An object that can neither be copied nor pickled."""

    _no_copy: ClassVar[str]
    """The name of the object and a remedy, for the error."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        """Refuse `copy.copy`, `copy.deepcopy` and pickle. Raises StateError."""
        what, instead = self._no_copy.split(": ", 1)
        raise StateError(f"{what} cannot be copied or pickled: {instead}")

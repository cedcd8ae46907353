"""The plan stays as it is until `Runtime.transition` is called."""

from __future__ import annotations

from eddy.routing.policies.base import Decision
from eddy.routing.view import View


class Fixed:
    """Never decides anything."""

    name = "fixed"

    def decide(self, view: View) -> Decision | None:
        """Go on."""
        return None

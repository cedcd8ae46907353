"""Fixed: the plan stays until `Runtime.transition` is called."""

from __future__ import annotations

from eddy.routing.policies.base import Decision
from eddy.routing.view import View


class Fixed:
    """Never changes the plan."""

    name = "fixed"

    def decide(self, view: View) -> Decision | None:
        """Return None."""
        return None

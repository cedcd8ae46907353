"""The description as JSON values, and as JSON text."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from eddy.show.description import Description


def as_values(shown: Any) -> Any:
    """Return a description, or a part of it, as JSON values: a mapping per part, with the names of its attributes.

    Numbers that JSON does not have become null.
    """
    if is_dataclass(shown) and not isinstance(shown, type):
        return {field.name: as_values(getattr(shown, field.name)) for field in fields(shown)}
    if isinstance(shown, tuple | list):
        return [as_values(part) for part in shown]
    if isinstance(shown, float) and not isfinite(shown):
        return None
    return shown


def as_json(shown: Description) -> str:
    """Return the description as JSON text; its keys are the attributes in `eddy.show.description`."""
    return json.dumps(as_values(shown), ensure_ascii=False, allow_nan=False, indent=2)

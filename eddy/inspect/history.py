"""Transitions as a table: the result of `Runtime.history`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pyarrow as pa

from jisc.strategies import Transition

_TYPES = {"int": pa.int64(), "int | None": pa.int64(), "float": pa.float64()}
_FIGURES = [(field.name, _TYPES[str(field.type)]) for field in fields(Transition) if str(field.type) in _TYPES]
_TEXTS = ("reason", "strategy", "old", "new", "stored")
SCHEMA = pa.schema([_FIGURES[0], *((name, pa.string()) for name in _TEXTS), *_FIGURES[1:]])
"""The columns of `Runtime.history()`."""


def history_table(transitions: Sequence[Transition]) -> pa.Table:
    """Return a row per transition; columns are named as the fields and properties of `jisc.strategies.Transition`."""
    rows = [{name: getattr(done, name) for name in SCHEMA.names} for done in transitions]
    return pa.Table.from_pylist(rows, schema=SCHEMA)

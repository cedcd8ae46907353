"""Tables of routes without a route in them."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import E_FIELDS, H_FIELDS, O_FIELDS, P_FIELDS, R_FIELDS
from stairs.memory.arena import Entries, Routes


def no_routes() -> Routes:
    """Return tables that lead nowhere."""
    return Routes(
        np.zeros((0, R_FIELDS), np.int64),
        np.zeros((0, H_FIELDS), np.int64),
        np.zeros((0, O_FIELDS), np.int64),
        np.zeros((0, 3), np.int64),
    )


def no_entries() -> Entries:
    """Return the tables of a store without states."""
    nothing = np.zeros(0, np.int64)
    return Entries(np.zeros((0, E_FIELDS), np.int64), np.zeros((0, P_FIELDS), np.int64), nothing, nothing)

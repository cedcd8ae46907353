"""Tables of routes without a route in them."""

from __future__ import annotations

import numpy as np

from stairs.arena import Entries, Routes
from stairs.fields import E_FIELDS, H_FIELDS, O_FIELDS, P_FIELDS, R_FIELDS


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

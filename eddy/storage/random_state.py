"""The state of a random number generator as plain parts."""

from __future__ import annotations

import numpy as np

from stairs.storage.parts import Parts, Plain

KIND = "PCG64"
"""The kind of generator that `numpy.random.default_rng` returns."""
WORD = (1 << 128) - 1


def random_state(generator: np.random.Generator) -> Plain:
    """Return the state of a generator that `default_rng` returned."""
    state = generator.bit_generator.state
    return {
        "state": int(state["state"]["state"]),
        "inc": int(state["state"]["inc"]),
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def set_random_state(generator: np.random.Generator, parts: Parts) -> None:
    """Set the state of a generator that `default_rng` returned. Raises StateError for other parts."""
    generator.bit_generator.state = {
        "bit_generator": KIND,
        "state": {"state": parts.integer("state", high=WORD), "inc": parts.integer("inc", high=WORD)},
        "has_uint32": parts.integer("has_uint32", high=1),
        "uinteger": parts.integer("uinteger", high=(1 << 32) - 1),
    }

"""Named tuples of arrays as arguments of kernels.

numba passes each number of each array by itself: some hundred arguments for an arena. Unpacking them at each call, and
packing them at the start of each step, took two thirds of all instructions that it produced. A *bundle* is passed as
one value; once steps are inlined there is no difference.
"""

from __future__ import annotations

from typing import Any, TypeVar

from numba.core.datamodel.models import TupleModel
from numba.core.types import Type
from numba.core.types.containers import NamedTuple
from numba.extending import register_model, typeof_impl

from stairs.memory.arena import Arena, Batch, Chunk, Entries, Routes, Walk

__all__ = ["bundled"]

T = TypeVar("T", bound=type)


class Bundle(NamedTuple):
    """The type of a named tuple that is one argument."""

    def __init__(self, fields: tuple[Type, ...], cls: type) -> None:
        super().__init__(fields, cls)
        # It is part of the name of each function that takes it.
        self.name = cls.__name__


@register_model(Bundle)
class BundleModel(TupleModel):
    """The model of a bundle as an argument: the bundle itself."""

    def get_argument_type(self) -> Any:
        """Return the type of the value."""
        return self.get_value_type()

    def as_argument(self, builder: Any, value: Any) -> Any:
        """Return the value."""
        return value

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Return the value."""
        return value


def bundled(cls: T) -> T:
    """Return a class of named tuples of arrays, whose tuples become bundles."""

    def type_of(value: Any, context: Any) -> Bundle:
        return Bundle(tuple(typeof_impl(member, context) for member in value), type(value))

    typeof_impl.register(cls)(type_of)
    return cls


for _class in (Arena, Batch, Chunk, Entries, Routes, Walk):
    bundled(_class)

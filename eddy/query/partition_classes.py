"""The classes of equal columns by which a host deals rows to partitions: with the keys of versioned tables.

A row gets a version in the partition in which it is found, so the version has to be there. The columns of a class are
equal in each result that has them, and a version equals the columns that its key is looked up with:

    core R(a, b) S(a), X by R.b:  R.a = S.a,  R.b = X.k     X is dealt by k, or copied along the first class
    core R(a, b) S(a), X by S.a:  R.a = S.a = X.k           X is dealt like R and S
    R with a branch:              the classes of the branches, as far as X has them; otherwise X is copied
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from eddy.expressions.parser import Column
from eddy.query.as_of import AsOfJoin
from eddy.query.predicates import AttributeClass, attribute_classes
from eddy.streams.key_types import unified
from eddy.streams.stream import Stream


def with_versions(
    streams: Sequence[Stream], classes: Sequence[AttributeClass], joins: Sequence[AsOfJoin], alone: bool
) -> tuple[AttributeClass, ...]:
    """Return classes with the keys of the tables of as-of joins.

    classes  those of the streams without the tables
    alone    whether a table may have a class with one stream. With branches it may not: a row would have copies in the
             partitions along it, and be without a partner in some of them

    A column of a key is left out if its type and those of a class have no common one. Cost: columns of the classes.
    """
    groups = [(places, kind) for attribute_class in classes for places, kind in _components(attribute_class)]
    for join in joins:
        for key in join.keys:
            probed, probing = (streams[join.table].name, key.key), (streams[key.stream].name, key.column)
            kind_of_key = streams[join.table].type_of(key.key)
            for k, (places, kind) in enumerate(groups):
                if probing in places:
                    common = unified([kind, kind_of_key])
                    if common is not None:
                        groups[k] = [*places, probed], common
                    break
            else:
                if alone:
                    groups.append(([probing, probed], key.kind))
    return attribute_classes(streams, [pair for places, _ in groups for pair in pairwise(places)])


def _components(attribute_class: AttributeClass) -> Iterator[tuple[list[Column], pa.DataType]]:
    """Yield the columns of each component of a class, and their type."""
    for k, kind in enumerate(attribute_class.types):
        yield [(name, column) for name, components in attribute_class.columns.items() for column in components[k]], kind

"""The tree of splits: how a cell of the grid becomes several key groups, and a key group several fragments.

A cell whose rows are too many for one engine is split by the next bit of the hash of a key. The coordinate of a row
along a class with share s is the integer part of h * s, with a hash h in [0, 1); the bits of the fraction follow. So a
split along a class divides one cell as a grid with twice the share would divide all cells: floor(h * 2s) is 2 * floor(h
* s) + the first bit. A row of a stream without the class is copied to both children, as it would be in that grid.
Therefore each result is still found in exactly one group.

    4 cells; split 3 along class 0, then 4, then 3 again
                           3                    groups: 0 1 2 and
                    bit 0 / \\ 1                    3  bits 00
                         3   4                      6  bits 01
                     0 / \\1 0/ \\ 1                  4  bits 10
                      3   6 4   5                   5  bits 11

The child with bit 0 keeps the number of its parent, and the other child gets the next free number. So groups are
numbered without gaps, and split i makes group cells + i. Rows that were written when the tree had n splits belong to a
group of the tree with n splits (`origin`). The descendants of this group share the rows, and each descendant reads only
its own rows (`own_rows`).

No bit of a hash divides the rows of one key. A group with a hot key is divided into *fragments* (`fragments.py`): the
group itself is the first fragment, and each further fragment is a group whose number is a *place* of the group. A place
comes from a split along no class (`along` is the number of classes). A place is permanent, and has rows only while the
group is in fragments. The log does not depend on fragments: rows are written for the group, and each fragment reads its
own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.ingest.changes import DELETES, UPSERTS
from eddy.ingest.keys import key_hash
from eddy.placement.shares import Shares
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.fragments import Dealt, keep_part
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.kernels import find_cells, keep_branch
from eddy.streams.keyed import OP_COLUMN

MAX_DEPTH = 16
"""Maximal number of bits of one class for a group. The fraction of a hash has 32 bits, fewer with many shares."""
MAX_SPLITS = 1024


class GroupSplit(NamedTuple):
    """A split of a group along an attribute class; along the number of classes, a place for a fragment of the group."""

    group: int
    along: int


class SplitBranch(NamedTuple):
    """The first bits of the fraction along a class that all rows of a group have, as a number."""

    along: int
    depth: int
    bits: int


@dataclass(frozen=True)
class SplitTree:
    """The splits of the cells of a grid, in their order. Raises SparkJoinError for impossible splits.

    cells    number of cells of the grid
    classes  number of attribute classes
    dealt    groups in fragments, ascending
    """

    cells: int
    classes: int
    splits: tuple[GroupSplit, ...] = ()
    dealt: tuple[Dealt, ...] = ()

    def __post_init__(self) -> None:
        if len(self.splits) > MAX_SPLITS:
            raise SparkJoinError(f"{len(self.splits)} splits of key groups: there may be at most {MAX_SPLITS}")
        depths: dict[int, list[int]] = {}
        for i, (group, along) in enumerate(self.splits):
            if not 0 <= group < self.cells + i:
                raise SparkJoinError(
                    f"key group {group} does not exist; key groups are numbered from 0 to {self.cells + i - 1}"
                )
            if self.is_place(group):
                raise SparkJoinError(
                    f"key group {group} cannot be split: it is kept for a fragment of key group"
                    f" {self.split_group(group)}"
                )
            if along == self.classes:
                continue
            if not 0 <= along < self.classes:
                raise SparkJoinError(
                    f"key group {group} cannot be split along class {along}: the query has {self.classes} classes of"
                    " equal keys"
                )
            group_depths = depths.setdefault(group, [0] * self.classes)
            if group_depths[along] == MAX_DEPTH:
                raise SparkJoinError(
                    f"key group {group} cannot be split again: it was split {MAX_DEPTH} times along the same keys; few"
                    " keys have most of its rows, and they cannot be parted by their hash"
                )
            group_depths[along] += 1
            depths[self.cells + i] = list(group_depths)
        if [deal.group for deal in self.dealt] != sorted({deal.group for deal in self.dealt}):
            raise SparkJoinError(f"key groups in fragments are {[deal.group for deal in self.dealt]}: not ascending")
        for deal in self.dealt:
            known = 0 <= deal.group < self.groups and not self.is_place(deal.group) and deal.stream >= 0
            if not known or not 2 <= deal.parts <= 1 + len(self.places(deal.group)):
                raise SparkJoinError(
                    f"key group {deal.group} cannot have {deal.parts} fragments by stream {deal.stream}"
                )

    @property
    def groups(self) -> int:
        """The number of key groups."""
        return self.cells + len(self.splits)

    def split(self, group: int, along: int) -> SplitTree:
        """Return the tree in which a group is split; its new child is the group with the number `groups`."""
        if self.deal_of(group) is not None:
            raise SparkJoinError(
                f"key group {self.split_group(group)} cannot be split while it is in fragments; gather it"
            )
        return replace(self, splits=(*self.splits, GroupSplit(group, along)))

    # Fragments

    def is_place(self, group: int) -> bool:
        """Return whether a number is the number of a place for a fragment."""
        return self.cells <= group < self.groups and self.splits[group - self.cells].along == self.classes

    def split_group(self, group: int) -> int:
        """Return the group of a place; return any other group itself."""
        return self.splits[group - self.cells].group if self.is_place(group) else group

    def places(self, group: int) -> list[int]:
        """Return the places of a group, ascending. O(splits)."""
        return [self.cells + i for i, split in enumerate(self.splits) if split == (group, self.classes)]

    def most_parts(self, group: int) -> int:
        """Return the maximal number of fragments of a group."""
        return 1 + len(self.places(group)) + MAX_SPLITS - len(self.splits)

    def deal_of(self, group: int) -> Dealt | None:
        """Return how the rows of a group, or of the group of a place, are dealt; None if the group is whole."""
        group = self.split_group(group)
        return next((deal for deal in self.dealt if deal.group == group), None)

    def fragments(self, group: int) -> list[int]:
        """Return the fragments of a group, the group itself first; only the group itself if it is whole."""
        dealt = self.deal_of(group)
        return [group] if dealt is None else [group, *self.places(group)[: dealt.parts - 1]]

    def is_closed(self, group: int) -> bool:
        """Return whether a number is the number of a place without a fragment."""
        return self.is_place(group) and group not in self.fragments(self.split_group(group))

    def fragment(self, group: int, stream: int, parts: int) -> SplitTree:
        """Return the tree in which a group is in `parts` fragments by a stream. Missing places become new groups."""
        if not 0 <= group < self.groups:
            raise SparkJoinError(
                f"key group {group} does not exist; key groups are numbered from 0 to {self.groups - 1}"
            )
        if self.is_place(group):
            raise SparkJoinError(f"key group {group} is kept for a fragment of key group {self.split_group(group)}")
        if self.deal_of(group) is not None:
            raise SparkJoinError(f"key group {group} is in fragments; gather it first")
        more = parts - 1 - len(self.places(group))
        splits = (*self.splits, *[GroupSplit(group, self.classes)] * more)
        return replace(self, splits=splits, dealt=tuple(sorted([*self.dealt, Dealt(group, stream, parts)])))

    def gather(self, group: int) -> SplitTree:
        """Return the tree in which a group is whole again."""
        if not any(deal.group == group for deal in self.dealt):
            raise SparkJoinError(f"key group {group} is not in fragments")
        return replace(self, dealt=tuple(deal for deal in self.dealt if deal.group != group))

    # Splits

    def origin(self, group: int, splits: int) -> int:
        """Return the group that had the rows of `group` when only the first `splits` splits were made. O(splits)."""
        group = self.split_group(group)
        for i in range(len(self.splits) - 1, splits - 1, -1):
            if group == self.cells + i:
                group = self.splits[i].group
        return group

    def descendants(self, group: int, splits: int) -> list[int]:
        """Return the groups that share the rows which `group` had after the first `splits` splits, ascending."""
        groups = [group]
        for i in range(splits, len(self.splits)):
            if self.splits[i].group in groups and self.splits[i].along < self.classes:
                groups.append(self.cells + i)
        return sorted(fragment for member in groups for fragment in self.fragments(member)) if self.dealt else groups

    def branches(self, group: int, since: int = 0) -> list[SplitBranch]:
        """Return the common bits of the rows of a group along each class of a split after the first `since` splits."""
        steps: list[tuple[int, int, int]] = []
        group = self.split_group(group)
        for i in range(len(self.splits) - 1, -1, -1):
            split = self.splits[i]
            if split.along == self.classes:
                continue
            if group == self.cells + i:
                steps.append((i, split.along, 1))
                group = split.group
            elif group == split.group:
                steps.append((i, split.along, 0))
        bits: dict[int, tuple[int, int]] = {}
        for _, along, bit in reversed(steps):
            depth, prefix = bits.get(along, (0, 0))
            bits[along] = depth + 1, 2 * prefix + bit
        newer = {along for i, along, _ in steps if i >= since}
        return [SplitBranch(along, *bits[along]) for along in sorted(newer)]

    def depth(self, group: int, along: int) -> int:
        """Return the number of splits of a group along a class."""
        return next((branch.depth for branch in self.branches(group) if branch.along == along), 0)

    def is_first(self, shares: Shares, stream: int, group: int) -> bool:
        """Return whether a tuple of a stream in a group is the first of its copies."""
        copied = [branch.bits for branch in self.branches(group) if branch.along not in shares.has[stream]]
        dealt = self.deal_of(group)
        copied.append(dealt is not None and dealt.stream != stream and self.is_place(group))
        return shares.is_first(stream, self.origin(group, 0)) and not any(copied)

    def refines(self, shares: Shares, stream: int) -> bool:
        """Return whether each tuple of a stream is in exactly one group, which its keys determine."""
        return shares.copies(stream) == 1 and self.along <= {*shares.has[stream]}

    @property
    def along(self) -> set[int]:
        """The classes along which groups are split."""
        return {split.along for split in self.splits if split.along < self.classes}

    def tables(self, classes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the tree in the form for `kernels.refine_cells`.

        classes  the class of each row of hashes

        roots int64[cells], nodes int64[splits, 4] as (row of hashes, shift of the bit, place for bit 0, place for bit
        1). A place is a node, or -1 - group.
        """
        roots = -1 - np.arange(self.cells, dtype=np.int64)
        nodes = np.zeros((len(self.splits), 4), np.int64)
        places = {group: (roots, group) for group in range(self.cells)}
        shifts = {group: [31] * self.classes for group in range(self.cells)}
        for i, (group, along) in enumerate(self.splits):
            if along == self.classes:
                continue
            table, at = places[group]
            table[at] = i
            child = self.cells + i
            nodes[i] = classes.index(along), shifts[group][along], -1 - group, -1 - child
            places[group], places[child] = (nodes[i], 2), (nodes[i], 3)
            shifts[group][along] -= 1
            shifts[child] = list(shifts[group])
        return roots, nodes


@lru_cache(4096)
def _own_branches(tree: SplitTree, group: int, since: int, has: tuple[int, ...]) -> tuple[SplitBranch, ...]:
    return tuple(branch for branch in tree.branches(group, since) if branch.along in has)


def own_rows(job: Job, tree: SplitTree, group: int, stream: int, splits: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a stream that belong to a group, in their order. O(rows) if some rows may not belong to it.

    Of a table whose rows move, each group gets all changes: those that move a row to another group are deletes here.

    splits  number of splits when the rows were written, for a group of which this group is a descendant
    """
    if job.moving[stream]:
        rows = _with_moves(job, tree, group, stream, rows)
    branches = _own_branches(tree, group, splits, job.shares.has[stream])
    dealt = tree.deal_of(group) if tree.dealt else None
    if dealt is not None and dealt.stream != stream:
        dealt = None
    if (not branches and dealt is None) or not rows.num_rows:
        return rows
    keep = np.ones(rows.num_rows, np.bool_)
    for along, depth, bits in branches:
        hashes, _ = key_hash(job.query, along, job.query.streams[stream].name, rows)
        keep_branch(hashes, job.shares.counts[along], 32 - depth, bits, keep)
    if dealt is not None:
        keep_part(rows, dealt.parts, tree.fragments(dealt.group).index(group), keep)
    return rows if keep.all() else rows.filter(pa.array(keep))


def _with_moves(job: Job, tree: SplitTree, group: int, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the changes of a table for a group: upserts of rows that belong to other groups are deletes."""
    shares, name, cell = job.shares, job.query.streams[stream].name, tree.origin(group, 0)
    bits = {branch.along: branch for branch in tree.branches(group)}
    keep, n = np.ones(rows.num_rows, np.bool_), rows.num_rows
    for c in job.moving[stream]:
        share = shares.counts[c]
        if share == 1 and c not in bits:
            continue
        hashes, _ = key_hash(job.query, c, name, rows)
        coordinates = np.empty(n, np.int32)
        counts, strides = np.array([share], np.int64), np.ones(1, np.int64)
        find_cells(
            hashes.reshape(1, n), np.ones(n, np.bool_), counts, strides, coordinates, np.zeros(share + 1, np.int64)
        )
        keep &= coordinates == cell // shares.strides[c] % share
        if c in bits:
            keep_branch(hashes, share, 32 - bits[c].depth, bits[c].bits, keep)
    if keep.all():
        return rows
    ops = rows.column(OP_COLUMN)
    gone = pc.and_(pa.array(~keep), pc.is_in(ops, pa.array(UPSERTS)))
    return rows.set_column(rows.schema.get_field_index(OP_COLUMN), OP_COLUMN, pc.if_else(gone, DELETES[0], ops))

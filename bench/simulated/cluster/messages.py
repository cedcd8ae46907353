"""The messages of the protocols, with the names of the paper.

Control messages go between the distribution manager and the processors and splits. Rows, and the flags that must keep
their place among rows (`Entry.new`, `Entry.open`, `Entry.end`), go from splits to processors in `RowsMessage`. Packages
of windows and states go from sender to receiver.

The messages do not depend on their carrier. A carrier must deliver the messages of each link (from, to) in the order in
which they were sent, or not at all if the addressee is lost.
Source: Zhu and Rundensteiner, "Adapting partitioned continuous query processing in distributed systems", sec. 3.2, 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from bench.simulated.cluster.positions import Positions
from stairs.graph import FOREVER

MANAGER = "manager"
UNION = "union"

STEPS: dict[str, tuple[str, ...]] = {
    "parallel": (
        "ComputePartitionsToMove",
        "PartitionsToMove",
        "DuplicatePartitions",
        "AllOldPurged",
        "DeletePartitions",
    ),
    "state": (
        "ComputePartitionsToMove",
        "PartitionsToMove",
        "DeactivatePartitions",
        "Deactivated",
        "SendPartitions",
        "ReceivePartitions",
        "Received",
        "ReactivatePartitions",
    ),
    "jit": (
        "ComputePartitionsToMove",
        "PartitionsToMove",
        "CopyPartitions",
        "BaseWindows",
        "Copied",
        "SwitchPartitions",
        "RemainingPartitions",
        "Switched",
    ),
    "fragment": ("ReplicateKey", "Replicated", "RecoverPartitions", "Recovered", "DealKey"),
    "gather": ("GatherKey", "AllOldPurged", "DeletePartitions"),
    "recover": ("FencePartitions", "Fenced", "RecoverPartitions", "Recovered"),
}
"""The steps of each protocol in order; step n of a move has the n-th name. The last four are not from the paper."""
END = "EndOfPartitions"
"""The flag at the end of the rows of a group on a link; it belongs to the step that made the split set it."""


def processor(node: int) -> str:
    """Return the address of the processor of a node."""
    return f"node {node}"


def split(stream: str) -> str:
    """Return the address of the split of a stream."""
    return f"split {stream}"


@dataclass(frozen=True, slots=True)
class Message:
    """A control message, or a package of partitions.

    kind     name of the message; `STEPS` has the names of each protocol
    move     number of the move
    groups   partition groups that the message concerns
    content  other parts, by name
    rows     rows in the message, for its size
    nbytes   bytes of these rows and of stored states
    """

    kind: str
    move: int
    groups: tuple[int, ...] = ()
    content: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    nbytes: int = 0


class Entry(NamedTuple):
    """Rows of one group for one track, and the flags that keep their place among them.

    epoch  number of the track of the group
    rows   the rows with their positions, None = flags only
    start, end_position   positions that the entry covers; rows outside the needed windows may be missing
    new    the rows go to the receiver as well (PTLB); all later rows of the split for this track, too
    open   first entry of the split for this track: "parallel", "state", "jit" or "recover"; "" = a later one
    end    no more rows of the split for this track (EndOfPartitions)
    move   the move to which a flag belongs
    """

    group: int
    epoch: int
    rows: pa.RecordBatch | None
    start: int
    end_position: int
    new: bool = False
    open: str = ""
    end: bool = False
    move: int = -1


class RowsMessage(NamedTuple):
    """Rows from a split to a processor.

    split     position of its stream in the query
    progress  no later row of the split is older, in ticks of the common time type
    """

    split: int
    entries: tuple[Entry, ...]
    progress: int

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(entry.rows.num_rows for entry in self.entries if entry.rows is not None)


Sent = tuple[str, "Message | RowsMessage | ResultCommit"]
"""An address, and the message to it."""


class EmittedResults(NamedTuple):
    """Results that a track has emitted: those with all components in `known`, but not all in one set of `elsewhere`.

    final      whether these are the last results of this track
    watermark  event time below which `known` has all rows
    """

    known: Positions
    elsewhere: tuple[Positions, ...] = ()
    final: bool = False
    watermark: int = -FOREVER


class ResultCommit(NamedTuple):
    """Results of one track, and the rows that they account for: the union takes both or neither."""

    group: int
    epoch: int
    results: pa.Table | None
    given: EmittedResults

"""What goes wrong between Spark and the engine."""

from __future__ import annotations

from stairs.errors import EddyError


class SparkJoinError(EddyError):
    """The join cannot run on Spark as asked: a missing or unfit column, windows that cannot be split, no Java, …"""


class StreamingStateError(SparkJoinError):
    """What a streaming job has on disk is damaged, incomplete, in use, or of another job. Nothing was joined."""

"""A topic of Kafka: where its partitions begin and end, and the messages between two offsets.

A range of offsets always has the same messages, so a micro-batch that comes again reads the same rows. Offsets are
never committed to Kafka: Spark's checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eddy.log import LOG
from eddy.spark.errors import SparkJoinError
from eddy.spark.kafka.client import Offsets, client_of, described
from eddy.spark.kafka.decoding import DECODERS, NotDecodedError


@dataclass(frozen=True)
class Topic:
    """A topic and how it is read.

    name       of the topic
    settings   of librdkafka, `bootstrap.servers` among them; may hold passwords
    encoding   of the messages, one of `DECODERS`
    starting   where a new job starts: "earliest" or "latest"
    max_rows   most messages that a micro-batch takes, None for all
    malformed  "fail": a message that cannot be decoded ends the job; "skip": it is left out, with a warning
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)
    encoding: str = "json"
    starting: str = "earliest"
    max_rows: int | None = None
    malformed: str = "fail"

    def begins(self) -> Offsets:
        """Return where a new job starts."""
        return self.ends() if self.starting == "latest" else client_of(self.settings).offsets(self.name, latest=False)

    def ends(self) -> Offsets:
        """Return where each partition ends now. Messages of transactions that are not committed yet are beyond it."""
        return client_of(self.settings).offsets(self.name, latest=True)

    def take(self, start: Offsets, ends: Offsets, everything: bool = False) -> Offsets:
        """Return where a micro-batch ends that begins at `start`: at most `max_rows` messages, in fair shares.

        everything  whether `max_rows` does not count

        Raises SparkJoinError if a partition ends before `start`: it is not the one that was read.
        """
        for name, at in start.items():
            if ends.get(name, -1) < at:
                raise SparkJoinError(
                    f"{self}: the job has read partition {name} up to offset {at}, and"
                    f" {f'it ends at {ends[name]}' if name in ends else 'it is not there'}: the topic was deleted and"
                    " made again; begin with a new checkpoint"
                )
        left = {name: end - start.get(name, 0) for name, end in ends.items()}
        total = sum(left.values())
        if everything or self.max_rows is None or total <= self.max_rows:
            return ends
        taken = {name: n * self.max_rows // total for name, n in left.items()}
        spare = self.max_rows - sum(taken.values())
        for name, n in left.items():
            more = min(spare, n - taken[name])
            taken[name] += more
            spare -= more
        return {name: start.get(name, 0) + n for name, n in taken.items()}

    def read(self, partition: str, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the messages of a partition from offset `start` up to `end`. Messages without a value have
        none.

        Raises SparkJoinError, which names the place, for messages that are gone or cannot be decoded, and if the broker
        does not answer.
        """
        decode = DECODERS[self.encoding]
        for messages in client_of(self.settings).messages(self.name, partition, start, end):
            kept = [(value, one.offset()) for one in messages if (value := one.value()) is not None]
            while True:
                try:
                    found = decode([value for value, _ in kept], schema)
                    break
                except NotDecodedError as problem:
                    place = f"partition {partition}, offset {kept.pop(problem.message)[1]}"
                    if self.malformed == "fail":
                        raise SparkJoinError(
                            f"{self}: the message at {place} is not {self.encoding} with the columns of the stream"
                            f" ({problem}); pass malformed='skip' to leave such messages out"
                        ) from problem
                    LOG.warning("%s: the message at %s is skipped: %s", self, place, problem)
            yield from found.to_batches()

    def __str__(self) -> str:
        return described(self.name, self.settings)


def topic_of(data: Mapping[str, Any]) -> Topic:
    """Return a topic from its fields, as `dataclasses.asdict` gives them."""
    return Topic(**data)

"""Dead letters: messages that cannot be decoded, sent to another topic with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eddy.spark.errors import SparkJoinError
from eddy.spark.kafka.client import KAFKA_LOG, SILENCE_S, described, other_settings

if TYPE_CHECKING:
    from confluent_kafka import Message


def send_dead_letters(topic: str, settings: Mapping[str, str], letters: Sequence[tuple[Message, str]]) -> None:
    """Send messages with their reasons to a topic. Key, value, headers and timestamp are unchanged.

    Further headers: `eddy-error`, the reason; `eddy-topic`, `eddy-partition` and `eddy-offset`, which identify the
    message. Returns when the servers have all messages. Raises SparkJoinError if a server refuses a message.
    """
    from confluent_kafka import KafkaException, Producer

    failed: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    try:
        producer = Producer({**other_settings(settings), "enable.idempotence": True}, logger=KAFKA_LOG)
        for message, why in letters:
            added = {
                "error": why,
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
            }
            headers = [
                *(message.headers() or []),
                *((f"eddy-{name}", str(value).encode()) for name, value in added.items()),
            ]
            known, at = message.timestamp()
            sent = {"headers": headers, "on_delivery": delivered, "timestamp": at if known else 0}  # 0 = now
            while True:
                try:
                    producer.produce(topic, message.value(), message.key(), **sent)  # type: ignore[arg-type]
                    break
                except BufferError:  # the queue is full
                    producer.poll(1.0)
        if producer.flush(SILENCE_S):
            failed.append(f"the servers said nothing for {SILENCE_S:.0f} s")
    except KafkaException as problem:
        failed.append(problem)
    if failed:
        raise SparkJoinError(
            f"{described(topic, settings)} takes no dead letters: {failed[0]}; check the topic and the job's rights"
        )

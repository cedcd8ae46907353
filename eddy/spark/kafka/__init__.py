"""Kafka topics as streams, read with the package confluent-kafka.

client.py     the clients of a process: ends of partitions, messages between two offsets
topic.py      a topic: the bounds of a micro-batch, and its rows
decoding.py   messages as rows
message_parts.py   their keys, headers, timestamps and places as columns
dead_letters.py    messages that cannot be decoded, sent to another topic
source.py     a topic as a streaming DataFrame of Spark
"""

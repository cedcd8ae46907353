"""Kafka topics as streams, read with the package confluent-kafka.

topic.py      a topic: where its partitions begin and end, and the messages between two offsets
decoding.py   messages as rows
source.py     a topic as a streaming DataFrame of Spark
"""

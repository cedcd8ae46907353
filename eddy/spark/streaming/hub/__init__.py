"""A hub: several queries over the same streams in one streaming query, with one log and one checkpoint.

hub.py          the public face: `Hub`, and the handles of its queries
sources.py      the streams with their keys: the join that determines the form of the log, and the check of queries
queries.py      the queries on the driver: control elements, versions, rows that the log keeps for them
elements.py     control elements that wait for their micro-batch
checks.py       conditions on queries and their changes
saved.py        versions in a manifest
restart.py      the versions of a manifest, and the starts of the new program
batches.py      the micro-batches of a hub
query_sinks.py  the sinks of all queries as one

The position of a row is its micro-batch. The driver decides on versions before each micro-batch; the manifest names
them, and the tasks apply their bounds (`worker/group_queries.py`).
"""

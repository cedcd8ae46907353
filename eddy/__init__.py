"""An adaptive runtime for multi-way joins over streams.

Write a `Query`, give it to a `Runtime`, push Arrow batches, get Arrow results:

>>> import pyarrow as pa
>>> from eddy import Query, Rows, Runtime, Stream
>>> rows = pa.schema([("key", pa.int64()), ("value", pa.string())])
>>> query = Query([Stream("R", rows, window=Rows(1000)), Stream("S", rows, window=Rows(1000))], ["R.key = S.key"])
>>> runtime = Runtime(query)
>>> left = pa.record_batch({"key": [1, 2], "value": ["a", "b"]})
>>> right = pa.record_batch({"key": [2], "value": ["c"]})
>>> runtime.push({"R": left, "S": right}, order=[0, 0, 1]).to_pylist()
[{'R.key': 2, 'R.value': 'b', 'S.key': 2, 'S.value': 'c'}]

`eddy.spark` embeds it in Spark jobs and is imported by name.
"""

import lazy_loader

# A name is imported when it is first used, because the processes of Spark's sources do not use the engine.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"

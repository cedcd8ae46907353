"""Joins and adaptive filters of Spark DataFrames. Importing this package does not import pyspark.

    from eddy.spark import join, session
    spark = session()
    results = join(query, {"R": spark.read.parquet("r"), "S": spark.read.parquet("s")})

The same function joins streaming DataFrames: see `eddy.spark.streaming`. `Sink` is the base class of sinks for results.
"""

import lazy_loader

# A name is imported when it is first used, because the processes of Spark's sources do not use the engine.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

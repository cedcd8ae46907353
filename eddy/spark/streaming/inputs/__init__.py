"""Streams of Parquet files as one source of Spark, which yields only how many files of each stream a batch takes."""

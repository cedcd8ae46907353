"""Other engines on W1 and on NEXMark, in the same run and with the same results.

works       the arrivals; here: the peers of this process, which take turns; microbatch: Polars and DuckDB
apart       peers in separate processes: Spark, Flink, Pathway; scripts/ runs in their environments
comparison  the figures of W1
nexmark_flink  NEXMark in Flink SQL, for the figure of `bench/nexmark.py`
"""

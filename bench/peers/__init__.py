"""Other engines on W1, in the same run and with the same results.

works       the arrivals; here: the peers of this process, which take turns; microbatch: Polars and DuckDB
apart       peers in separate processes: Spark, Flink, Pathway; scripts/ runs in their environments
comparison  the figures
"""

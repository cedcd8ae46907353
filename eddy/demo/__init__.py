"""The demo: real files joined in Spark, in batch, and a streaming join with faults on purpose.

    python -m eddy.demo        or        eddy demo

The batch part has two queries: three-leg flight itineraries (a chain over two attributes, RANGE windows) and ten series
of tweet counts joined on equal times (ten streams, one attribute). `job` defines a job and runs it in Spark and in this
process; `itineraries` and `tweets` are the two jobs; `report` prints their results.

The streaming part joins four streams of files whose data drift (`transfers`), which a thread drops while the job runs
(`feeder`). `scenario` has the settings, the record of a run, and the comparison of its results with an exact count;
`stream` runs the scenario, with a killed worker (`workers`) and a restart; `stream_report` prints. `command` is the
command line.
"""

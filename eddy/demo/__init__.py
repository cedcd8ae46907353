"""The demo: real files joined through Spark in batch, and a stream that is disturbed on purpose.

    python -m eddy.demo        or        eddy demo

In batch, two queries: three-leg flight itineraries (a chain on two attributes, RANGE windows) and ten series of tweet
counts that meet on equal times (ten streams on one attribute), looked at again in this process. `job` says what a job
is and runs it both ways, `itineraries` and `tweets` are the two, `report` prints.

As a stream: four streams of files whose data drift (`transfers`), dropped while the job runs (`feeder`); a worker is
killed (`workers`) and the job restarted (`stream`), and the results are held against an exact count. `stream_report`
prints. `command` is the command.
"""

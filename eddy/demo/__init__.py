"""The main job: real files, read and joined through Spark, and looked at again in this process.

    python -m eddy.demo        or        eddy demo

Two queries: three-leg flight itineraries (a chain on two attributes, RANGE windows) and ten series of tweet counts that
meet on equal times (ten streams on one attribute). `job` says what a job is and runs it both ways, `itineraries` and
`tweets` are the two, `report` prints, `command` is the command.
"""

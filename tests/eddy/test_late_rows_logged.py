"""The runtime logs the first late row of a stream, and the first one that it drops."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import eddy
from tests.eddy.late_streams import Taker, messages, rows, two_streams


@pytest.mark.parametrize(
    ("kind", "lateness", "newest", "late", "words"),
    [
        (
            pa.timestamp("us"),
            0,
            datetime(2024, 3, 1, 12, 0, 1),
            datetime(2024, 3, 1, 12),
            ["1 second older", "lateness is 0;", "Query(…, lateness=timedelta(seconds=1))"],
        ),
        (
            pa.timestamp("ns", "UTC"),
            timedelta(minutes=1),
            datetime(2024, 3, 1, 12),
            datetime(2024, 3, 1, 10, 57, 57),
            ["1 hour 1 minute older", "lateness is 1 minute;", "lateness=timedelta(seconds=3723)"],
        ),
        (
            pa.date32(),
            timedelta(days=2),
            datetime(2024, 3, 9),
            datetime(2024, 3, 1),
            ["6 days older", "2 days", "days=8"],
        ),
        (None, 5, 1000, 990, ["5 ticks older", "lateness is 5 ticks", "Query(…, lateness=10)"]),
    ],
    ids=["microseconds", "nanoseconds", "days", "integers"],
)
def test_the_first_late_row_is_told_with_what_would_have_let_it_in(
    caplog: pytest.LogCaptureFixture, kind: Any, lateness: Any, newest: Any, late: Any, words: list[str]
) -> None:
    query = two_streams(kind, lateness=lateness)
    schema = query.streams[0].schema

    def pushed(query: eddy.Query) -> eddy.Runtime:
        runtime = eddy.Runtime(query)
        runtime.push({"S": rows(newest, schema=schema)})
        assert messages(caplog) == []
        # The message is about the first late row and the watermark with it.
        runtime.push({"R": rows(newest, late, schema=schema)}, [0, 0])
        return runtime

    runtime = pushed(query)
    assert runtime.late_counts == {"R": 1, "S": 0}
    (told,) = messages(caplog)
    for word in ["stream R", "runtime.late()", *words]:
        assert word in told
    runtime.push({"R": rows(late, schema=schema)})
    eddy.Runtime.restore(runtime.snapshot(), query).push({"R": rows(late, schema=schema)})
    assert messages(caplog) == []
    runtime.push({"S": rows(late, schema=schema)})
    assert [message.split(":")[0] for message in messages(caplog)] == ["stream S"]
    # The advised lateness suffices, and is not larger than needed.
    assert pushed(two_streams(kind, lateness=newest - late)).late_counts == {"R": 0, "S": 0}


def test_with_a_watermark_that_is_given_the_message_speaks_of_it(caplog: pytest.LogCaptureFixture) -> None:
    runtime = eddy.Runtime(two_streams(late="count"))
    runtime.push({"R": rows(5, 80)}, [0, 0], watermark=50)
    runtime.push({"R": rows(70, 43)}, [0, 0], watermark=60)
    (told,) = messages(caplog)
    assert "7 ticks older than the watermark before its push" in told
    assert "only counted" in told
    assert "lateness" not in told


def test_dropping_is_told_once_until_rows_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    runtime = eddy.Runtime(two_streams(late_rows=3))
    runtime.push({"R": rows(1000)})
    for _ in range(2):
        for t in range(10):
            runtime.push({"S": rows(t)})
        (told,) = [message for message in messages(caplog) if "dropped" in message]
        assert "stream S" in told
        assert "late_rows=3" in told
        assert runtime.late()["S"]["t"].to_pylist() == [7, 8, 9]
    assert runtime.metrics()["late_dropped"] == 14


def test_a_push_that_fails_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    taker = Taker()
    runtime = eddy.Runtime(two_streams(streams={"R": taker}, late_rows=1))
    runtime.push({"S": rows(100)})
    before = runtime.snapshot()
    with pytest.raises(eddy.InputError):
        runtime.push({"R": rows(1, 2), "S": rows(1, 2, None)}, [0, 1] * 2 + [1])
    assert (taker.taken, messages(caplog), runtime.snapshot()) == ([], [], before)

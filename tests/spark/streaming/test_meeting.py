"""The meeting of tasks: all are answered once all have spoken, and nobody waits in vain."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError
from typing import Any

import pytest

from eddy.spark.streaming.driver import meeting
from eddy.spark.streaming.driver.meeting import Meetings, TooFewTasksError
from eddy.spark.streaming.worker.meeting import MeetingPlace, Seat, TurnedAwayError

KEY = b"a secret of a test"
SOON_S = 10.0


class GaveUp(Exception):
    """Stands for the error of a Spark job that was given up."""


@pytest.fixture
def meetings() -> Iterator[Meetings]:
    opened = Meetings("127.0.0.1", KEY)
    yield opened
    opened.close()
    opened.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def attend(place: MeetingPlace, name: str, task: int, work: Callable[[Seat], Any] | None = None) -> Any:
    with place.seat(name, task) as seat:
        answer = seat.say((task, seat.orders))
        if work is not None:
            work(seat)
        seat.leave()
    return answer


def refused(task: Future[Any]) -> None:
    with pytest.raises(TurnedAwayError):
        task.result(SOON_S)


def doubled(said: Sequence[Any]) -> list[Any]:
    return [(task, orders, len(said)) for task, orders in said]


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_each_task_gets_its_orders_and_its_answer(meetings: Meetings, pool: ThreadPoolExecutor, tasks: int) -> None:
    for round in range(3):
        orders = [f"{round} {task}" for task in range(tasks)]
        with meetings.hold(orders, doubled) as name:
            futures = [pool.submit(attend, meetings.place, name, task) for task in reversed(range(tasks))]
            answers = [future.result(SOON_S) for future in futures]
        assert answers == [(task, orders[task], tasks) for task in reversed(range(tasks))]


def test_messages_do_not_wait_for_acknowledgements(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    """With Nagle's algorithm each round would take 40 ms."""
    began = time.perf_counter()
    for _ in range(50):
        with meetings.hold([None, None], doubled) as name:
            for future in [pool.submit(attend, meetings.place, name, task) for task in range(2)]:
                future.result(SOON_S)
    assert time.perf_counter() - began < 50 * 0.04


def test_a_task_that_ends_before_the_decision_ends_the_meeting(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    with meetings.hold([None] * 3, doubled) as name:
        waiting = [pool.submit(attend, meetings.place, name, task) for task in (0, 2)]
        with pytest.raises(ZeroDivisionError), meetings.place.seat(name, 1):
            raise ZeroDivisionError
        for future in waiting:
            refused(future)
        refused(pool.submit(attend, meetings.place, name, 1))


def test_an_error_of_the_decision_reaches_the_driver(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    def decide(said: Sequence[Any]) -> list[Any]:
        raise ValueError("no such plan")

    def hold() -> None:
        with meetings.hold([None] * 2, decide) as name:
            for future in [pool.submit(attend, meetings.place, name, task) for task in range(2)]:
                refused(future)

    with pytest.raises(ValueError, match="no such plan"):
        hold()


def test_tasks_of_an_earlier_meeting_are_turned_away(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    """At the door, while they wait for the others, and when they have done their work."""
    begun, go_on = threading.Event(), threading.Event()

    def work(seat: Seat) -> None:
        begun.set()
        assert go_on.wait(SOON_S)

    with contextlib.suppress(GaveUp), meetings.hold([None], doubled) as first:
        late = pool.submit(attend, meetings.place, first, 0, work)
        assert begun.wait(SOON_S)
        raise GaveUp
    with contextlib.suppress(GaveUp), meetings.hold([None] * 2, doubled) as second:
        alone = pool.submit(attend, meetings.place, second, 0)
        time.sleep(0.05)
        raise GaveUp
    refused(alone)
    go_on.set()
    refused(late)
    with meetings.hold([None], doubled) as third:
        refused(pool.submit(attend, meetings.place, first, 0))
        assert attend(meetings.place, third, 0) == (0, None, 1)


def test_strangers_learn_nothing_and_disturb_nobody(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    silent = socket.create_connection(meetings.place.address)
    loud = socket.create_connection(meetings.place.address)
    loud.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    with meetings.hold(["orders"], doubled) as name:
        with pytest.raises((AuthenticationError, TurnedAwayError)):
            attend(MeetingPlace(meetings.place.address, b"another secret"), name, 0)
        assert attend(meetings.place, name, 0) == (0, "orders", 1)
    silent.close()
    loud.close()
    assert KEY not in repr(meetings.place).encode()


def test_nobody_listens_after_the_end() -> None:
    meetings = Meetings("127.0.0.1", KEY)
    meetings.close()
    with pytest.raises(TurnedAwayError), meetings.place.seat("any", 0):
        pass


def test_a_task_that_ends_before_its_work_is_done_ends_the_meeting(
    meetings: Meetings, pool: ThreadPoolExecutor
) -> None:
    """Without a barrier stage, Spark would not end the others, which may wait for rows of this task."""
    met = threading.Barrier(2)

    def wait_for_rows(seat: Seat) -> None:
        met.wait()
        until = time.monotonic() + SOON_S
        while time.monotonic() < until:
            seat.check()
            time.sleep(0.01)

    def fail(seat: Seat) -> None:
        met.wait()
        raise GaveUp

    with meetings.hold([None] * 2, doubled) as name:
        waiting = pool.submit(attend, meetings.place, name, 0, wait_for_rows)
        failing = pool.submit(attend, meetings.place, name, 1, fail)
        with pytest.raises(GaveUp):
            failing.result(SOON_S)
        refused(waiting)
        refused(pool.submit(attend, meetings.place, name, 1))  # as Spark repeats it


def test_a_meeting_to_which_not_all_tasks_come_in_time_ends(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    def two_of_three() -> None:
        with meetings.hold([None] * 3, doubled, patience_s=0.2) as name:
            for task in [pool.submit(attend, meetings.place, name, task) for task in (0, 2)]:
                refused(task)
            refused(pool.submit(attend, meetings.place, name, 1))  # it starts when the others have left

    with pytest.raises(TooFewTasksError) as few:
        two_of_three()
    assert few.value.came == 2


def test_tasks_that_came_in_time_may_read_their_rows_for_longer(meetings: Meetings, pool: ThreadPoolExecutor) -> None:
    def read(name: str, task: int) -> Any:
        with meetings.place.seat(name, task) as seat:
            time.sleep(0.3)
            answer = seat.say((task, seat.orders))
            seat.leave()
        return answer

    with meetings.hold([None] * 2, doubled, patience_s=0.1) as name:
        futures = [pool.submit(read, name, task) for task in range(2)]
        assert [future.result(SOON_S)[2] for future in futures] == [2, 2]


@pytest.mark.parametrize("reported", [True, False])
def test_a_copy_of_a_task_waits_until_spark_has_the_report(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    """Spark runs copies of slow tasks with `spark.speculation`, and takes the report that comes first."""
    monkeypatch.setattr(meeting, "COPY_S", SOON_S if reported else 0.1)
    meetings = Meetings("127.0.0.1", KEY, copies=True)
    copied = threading.Event()

    def work(seat: Seat) -> None:
        assert copied.wait(SOON_S)

    with meetings.hold([None], doubled) as name:
        first = pool.submit(attend, meetings.place, name, 0, work)
        until = time.monotonic() + SOON_S
        while not meetings._rounds[name].said and time.monotonic() < until:
            time.sleep(0.01)
        copy = pool.submit(attend, meetings.place, name, 0)
        time.sleep(0.05)
        copied.set()
        assert first.result(SOON_S) == (0, None, 1)
        if reported:
            time.sleep(0.1)
            assert not copy.done()
        else:
            refused(copy)  # the host of the first task was lost with its report
    refused(copy)
    meetings.close()


@pytest.mark.parametrize("lost", ["fails", "is repeated", "is given up"])
def test_a_meeting_in_vain_says_so_once(meetings: Meetings, pool: ThreadPoolExecutor, lost: str) -> None:
    """Its job may have tasks that Spark cannot end by itself: on a lost host, for example."""
    said = []
    worked = threading.Barrier(3)

    def work(seat: Seat) -> None:
        worked.wait(SOON_S)
        until = time.monotonic() + SOON_S
        while time.monotonic() < until:
            seat.check()
            time.sleep(0.01)

    def fail(seat: Seat) -> None:
        worked.wait(SOON_S)
        raise GaveUp

    with meetings.hold([None] * 2, doubled, SOON_S, lambda: said.append(lost)) as name:
        first = pool.submit(attend, meetings.place, name, 0, work)
        second = pool.submit(attend, meetings.place, name, 1, fail if lost == "fails" else work)
        worked.wait(SOON_S)
        if lost == "is repeated":
            refused(pool.submit(attend, meetings.place, name, 1))
        if lost == "is given up":
            meetings.give_up(name)
        refused(first)
        with pytest.raises(GaveUp if lost == "fails" else TurnedAwayError):
            second.result(SOON_S)
        assert said == [lost]
    assert said == [lost]
    with meetings.hold([None], doubled, SOON_S, lambda: said.append("for nothing")) as name:
        attend(meetings.place, name, 0)
    assert said == [lost]

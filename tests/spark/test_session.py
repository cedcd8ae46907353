"""Settings of a session, tested without a session."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from eddy.spark.environment.ending import GIVEN_UP, end_quietly, ending_quietly
from eddy.spark.environment.session import fast_settings, missing_settings, session, with_retries
from eddy.spark.errors import SparkJoinError


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("local", "local[1,4]"),
        ("local[8]", "local[8,4]"),
        ("local[*]", "local[*,4]"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_local_masters_may_retry(given: str, wanted: str) -> None:
    assert with_retries(given) == wanted


def test_a_setting_that_is_none_of_sparks() -> None:
    with pytest.raises(SparkJoinError, match="shuffle_partitions"):
        session(shuffle_partitions=4)


def test_settings_that_a_session_of_the_user_lacks() -> None:
    daemon, sockets, files = fast_settings()

    def lacks(context: dict[str, str], settings: dict[str, str]) -> list[str]:
        spark: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(getConf=lambda: context),
            conf=SimpleNamespace(get=lambda name, default: settings.get(name, default)),
        )
        return list(missing_settings(spark))

    assert lacks({}, {}) == [daemon, sockets, files]
    assert lacks({daemon: "mine", sockets: "true"}, {files: "other"}) == []
    assert lacks(fast_settings(), {}) == []


def test_a_worker_whose_socket_spark_closed_ends_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        with sock.makefile("wb") as out:
            out.write(b"the last rows")
        return 0

    ours, sparks = socket.socketpair()
    assert ending_quietly(worker)(ours, True) == 0
    sparks.close()
    assert ending_quietly(worker)(ours, True) == GIVEN_UP
    ours.close()
    assert capfd.readouterr() == ("", "")


def test_only_workers_of_sparks_own_daemon_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        raise BrokenPipeError

    for name, changed in (("pyspark.daemon", True), ("pytest.__main__", False)):
        program = SimpleNamespace(__spec__=SimpleNamespace(name=name), worker=worker)
        monkeypatch.setitem(sys.modules, "__main__", program)
        end_quietly()
        assert (program.worker is not worker) == changed
        if changed:
            assert program.worker(None, True) == GIVEN_UP

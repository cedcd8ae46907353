"""Errors of Spark whose text is lost with Spark's process."""

from __future__ import annotations

from eddy.spark.errors import error_of_worker, first_line


class Lost(Exception):
    """An error whose text is in another process, as that of an error of Java."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


def test_an_error_without_its_text_is_named() -> None:
    assert first_line(Lost()) == "Lost"
    assert first_line(RuntimeError(" a\nb")) == "a"
    assert error_of_worker(Lost()) is None

"""Settings of a session, tested without a session."""

from __future__ import annotations

import pytest

from eddy.spark.environment.session import session, with_retries
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

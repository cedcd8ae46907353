"""The position of a job in the input of each stream: a number of files, or an offset for each partition of a topic.

    files/starts   where a job began to read its topics, written once

Spark stores the end of each batch, but not the start of the first batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from eddy.spark.errors import StreamingStateError
from eddy.spark.kafka.client import Offsets
from eddy.spark.kafka.topic import Topic
from eddy.storage.durable import make_directories, write_new
from eddy.storage.file_kind import FileKind
from stairs.storage.json_form import fields, integer, mapping_of

Position = int | Offsets
"""A number of files, or partition -> offset."""
END = ""
"""A key of an offset, in addition to the names of the streams, once the input has ended; its value is any text."""
OFFSETS = mapping_of(integer(0))
_KIND = FileKind("starts of topics", b"eddystar", 2, StreamingStateError, "fix_starts()", "go on from")
_FORM = fields({"starts": mapping_of(OFFSETS)})


def position(value: object, place: str) -> None:
    """Check for a `Position`, as a form of `stairs/storage/json_form.py`."""
    (OFFSETS if isinstance(value, dict) else integer(0))(value, place)


def fix_starts(directory: Path, topics: Mapping[str, Topic]) -> dict[str, Offsets]:
    """Return the positions at which the job begins to read its topics, by stream; the first call fixes them."""
    if topics and not (directory / "starts").exists():
        make_directories(directory)
        starts = {name: topic.begins() for name, topic in topics.items()}
        with suppress(FileExistsError):  # an earlier start of the job, which Spark gave up, has written the file first
            write_new(directory / "starts", _KIND.pack({"starts": starts}))
    return read_starts(directory)


def read_starts(directory: Path) -> dict[str, Offsets]:
    """Return the positions that `fix_starts` fixed; none without topics. Raises StreamingStateError for a damaged
    file."""
    path = directory / "starts"
    try:
        content = _KIND.unpack(path.read_bytes()).whole(_FORM)
    except FileNotFoundError:
        return {}
    except (StreamingStateError, OSError) as problem:
        raise StreamingStateError(
            f"{path}: where the job began to read its topics is lost: {problem}; restore the file from a backup, or"
            " start with a new checkpoint"
        ) from problem
    return dict(content["starts"])

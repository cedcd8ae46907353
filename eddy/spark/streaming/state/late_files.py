"""The check of a file of late rows before it is read: the file is whole, and belongs to its name.

Parquet has no digest of a file. So the footer of a file of late rows contains its name: a file in the place of another
file is recognised, even after the manifest that named the file was deleted.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from eddy.spark.errors import StreamingStateError

_NAME = b"eddy.file"


def named_in_footer(schema: pa.Schema, name: str) -> pa.Schema:
    """Return the schema with which a file is written, so that the footer contains the name of the file."""
    return schema.with_metadata({**(schema.metadata or {}), _NAME: name.encode()})


def check_late_file(path: Path) -> None:
    """Raise a StreamingStateError that names the file if it is missing, damaged or another file. Reads the footer."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as problem:
        why = "is missing" if isinstance(problem, FileNotFoundError) else f"cannot be read ({problem})"
        raise StreamingStateError(f"{path}, a file of late rows, {why}; restore it from a backup") from problem
    written = metadata.get(_NAME, b"").decode(errors="replace")
    if written != path.name:
        raise StreamingStateError(
            f"{path}, a file of late rows, has those of {written or 'another program'}; restore it from a backup"
        )

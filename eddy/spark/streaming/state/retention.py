"""Retention: deletes the files of a checkpoint that neither a restart nor a running task can need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.batch_names import batch_of
from eddy.spark.streaming.state.checkpoint import Checkpoint, NamedFiles, manifest_paths
from eddy.spark.streaming.state.copies import COPY
from eddy.storage.durable import TEMPORARY, final_name


def retain(checkpoint: Checkpoint, keep: int = 10, *, in_use: Iterable[str] = ()) -> list[str]:
    """Delete files that are no longer needed; return their paths relative to the root.

    keep    number of newest manifests to keep. An unpublished manifest stays, and so do all manifests after it
    in_use  names of log files that a running compaction reads or writes. The name of the written file may begin with
            an old batch when a manifest names the file

    Deletes manifests; log files that no kept manifest names; and files of late rows that no manifest has named. Named
    files of late rows are for other readers, and stay when their manifest is deleted. Only files of batches older than
    the newest are deleted, by the batch in their names: a task of the newest batch that Spark has given up may still
    write. Files whose names do not begin with a batch stay. No file is deleted while a kept manifest is damaged,
    because the manifest may be restored from a backup. Cost: one listing of each directory, and one read of each
    manifest that `checkpoint` has not read yet.
    """
    if keep < 1:
        raise StreamingStateError(f"keep={keep}: at least the newest manifest must stay; pass 1 or more")
    places = (checkpoint.root, checkpoint.manifests, checkpoint.copies)
    deleted = _unlink(path for place in places for path in place.glob(f"*{TEMPORARY}"))
    numbers = sorted(checkpoint.numbers())
    if numbers:
        oldest = min([*numbers[-keep:], *(batch for batch in numbers[:-keep] if not checkpoint.is_published(batch))])
        named = {batch: checkpoint.named_files(batch) for batch in numbers}
        if all(named[batch] is not None for batch in numbers if batch >= oldest):
            deleted += _retain_files(checkpoint, numbers, oldest, named, in_use)
            if checkpoint.remote is not None:
                kept = [files.log for batch, files in named.items() if files is not None and batch >= oldest]
                checkpoint.remote.sweep(oldest, frozenset(in_use).union(*kept))
    return [str(path.relative_to(checkpoint.root)) for path in deleted]


def _retain_files(
    checkpoint: Checkpoint,
    numbers: list[int],
    oldest: int,
    named: Mapping[int, NamedFiles | None],
    in_use: Iterable[str],
) -> list[Path]:
    """Delete manifests below `oldest`, and files of batches below the newest that no kept manifest names."""
    newest = numbers[-1]
    kept = [files for batch, files in named.items() if files is not None and batch >= oldest]
    deleted = _retain_late(checkpoint, numbers, oldest, named)
    # Manifests are deleted first: after a stop in between, no manifest may name a deleted file.
    deleted += _unlink(path for batch in numbers if batch < oldest for path in manifest_paths(checkpoint.root, batch))
    # The mark is deleted after the manifest: without both, a batch of this age counts as published.
    deleted += _unlink(path for path, _ in _of_batches(checkpoint.published, 0, oldest))
    log = frozenset(in_use).union(*(files.log for files in kept))
    # A file in use may still have its temporary name.
    deleted += _unlink(
        path for path, name in _of_batches(checkpoint.log, 0, newest) if final_name(name).removesuffix(COPY) not in log
    )
    checkpoint.forget_named_files(oldest)
    return deleted


def _retain_late(
    checkpoint: Checkpoint, numbers: list[int], oldest: int, named: Mapping[int, NamedFiles | None]
) -> list[Path]:
    """Delete files of late rows that a failed task left behind.

    Call this before any manifest is deleted: only the manifest of its batch distinguishes such a file from a file that
    counts, and without a manifest every file counts (`Checkpoint.late_files`).
    """
    known = [files for files in named.values() if files is not None]
    since = numbers[0] if len(known) == len(named) else oldest
    late = frozenset[str]().union(*(files.late for files in known))
    return _unlink(path for path, name in _of_batches(checkpoint.late, since, numbers[-1]) if name not in late)


def _of_batches(directory: Path, since: int, before: int) -> Iterator[tuple[Path, str]]:
    """Yield the files at any depth whose names begin with a batch in [since, before), with their relative paths."""
    for place, _, names in os.walk(directory):
        for name in names:
            batch = batch_of(name)
            if batch is not None and since <= batch < before:
                path = Path(place) / name
                yield path, path.relative_to(directory).as_posix()


def _unlink(paths: Iterable[Path]) -> list[Path]:
    """Delete files in the order of their paths; return those that existed."""
    deleted = []
    for path in sorted(paths):
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        deleted.append(path)
    return deleted

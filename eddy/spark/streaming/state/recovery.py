"""The choice of the manifest from which a job resumes after a stop."""

from __future__ import annotations

from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.checkpoint import Checkpoint, manifest_paths
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.state.remote import read_bundle


def read_manifest(locations: Locations, batch: int) -> Manifest:
    """Return the manifest of a batch, for workers. Repairs nothing.

    Raises StreamingStateError if neither the file nor its copy is whole.
    """
    if locations.store is not None and not manifest_paths(locations.root, batch)[0].exists():
        return Manifest.from_bytes(read_bundle(locations.store, batch).manifest)
    problems = []
    for path in manifest_paths(locations.root, batch):
        try:
            return Manifest.from_bytes(path.read_bytes())
        except (OSError, StreamingStateError) as problem:
            problems.append(f"{path}: {problem}")
    raise StreamingStateError(
        f"the state after batch {batch} cannot be read: {'; '.join(problems)}; restore one of the two files from a"
        " backup"
    )


def recover(checkpoint: Checkpoint) -> Manifest | None:
    """Return the manifest from which the job resumes; None for a new job.

    Spark replays every batch that it has not marked complete. So a missing or damaged manifest does no harm as long as
    Spark replays its batch. Raises StreamingStateError

    - if the newest whole manifest is older than the newest batch that Spark has marked complete: the state of that
      batch is lost;
    - if the newest whole manifest is newer than every batch that Spark has planned: Spark's checkpoint was deleted,
      lost its newest files or belongs to another job. Spark would give new rows the numbers of committed batches, and
      these rows would be dropped.
    """
    newest = checkpoint.newest()
    number = checkpoint.newest_number()
    committed, planned = checkpoint.spark_committed(), checkpoint.spark_planned()
    if committed is not None and (newest is None or newest.batch < committed):
        remaining = "none is whole" if newest is None else f"the newest whole one is of batch {newest.batch}"
        damages = [text for batch in sorted(checkpoint.damaged) for text in checkpoint.damaged[batch]]
        missing = "; ".join(damages) or f"{manifest_paths(checkpoint.root, committed)[0]}: it is missing"
        lost = 0 if newest is None else newest.batch + 1
        batches = f"batch {committed}" if lost >= committed else f"batches {lost} to {committed}"
        raise StreamingStateError(
            f"the state after batch {committed}, which Spark has marked complete, is lost: {missing}. Of the manifests"
            f" in {checkpoint.manifests}, {remaining}. Spark does not replay the rows of"
            f" {batches}; restore the file or its"
            " copy from a backup, or start with a new checkpoint"
        )
    if number is not None and (planned is None or planned < number):
        known = "no batch" if planned is None else f"batches up to {planned}"
        raise StreamingStateError(
            f"{checkpoint.manifests} has batch {number}, but Spark's checkpoint {checkpoint.spark} has {known}: it was"
            " deleted, lost its newest files or belongs to another job, and its next batches would be mistaken for"
            " committed ones; restore it, or start with a new checkpoint"
        )
    return newest

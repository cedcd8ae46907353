"""The versions of tables (`eddy.ingest.newest_versions`) as parts of a snapshot or of a live file, and back."""

from __future__ import annotations

from eddy.pipeline.pipeline import Pipeline
from stairs.storage.parts import Parts, Plain


def versions_parts(pipeline: Pipeline) -> Plain:
    """Return the part with the versions of each table that has some, without one if there is no such table."""
    versions = [newest.to_parts() for newest in pipeline.gate.versions.values()]
    return {"versions": versions} if versions else {}


def load_versions(pipeline: Pipeline, parts: Parts) -> None:
    """Fill the versions of a new pipeline. Raises StateError for parts that do not fit."""
    versions = list(pipeline.gate.versions.values())
    for newest, part in zip(versions, parts.items("versions", len(versions)) if versions else [], strict=True):
        newest.load_parts(part)

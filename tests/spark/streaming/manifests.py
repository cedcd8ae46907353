"""Manifests for tests."""

from __future__ import annotations

from typing import Any

from eddy.spark.streaming.state.manifest import GroupState, Manifest, ManifestLink, OutputFile
from eddy.spark.streaming.state.segments import Segment


def make_segment(file: str, group: int = 0, stream: int = 0, rows: int = 5, first: int = 0, last: int = 9) -> Segment:
    return Segment(file, 64, 320, f"{hash((group, stream, rows)) % 2**64:016x}", group, stream, rows, first, last)


def make_manifest(batch: int, **changes: Any) -> Manifest:
    """Return a manifest with two key groups; the second has a chain of two links."""
    name = f"{batch:012d}-0.log"
    given: dict[str, Any] = {
        "watermarks": {"R": {"greatest": batch * 10, "below": None}},
        "partition_map": (0, 1, 0),
        "groups": {
            2: GroupState(batch, "token 2", (ManifestLink(batch, None, (make_segment(name, 2, 1),)),), None),
            0: GroupState(
                batch,
                "token 0",
                (
                    ManifestLink(batch, (3, -(2**62)), (make_segment(name), make_segment(name, stream=1))),
                    ManifestLink(batch, None, (make_segment(name),)),
                ),
                "R S",
            ),
        },
        "results": (OutputFile(f"staging/{name}.parquet", 7, 1000),),
        "late": (OutputFile(f"{name}.parquet", 1, 100, stream=1),),
        "extra": {"asked": ["as", "it", "comes"]},
        **changes,
    }
    return Manifest(batch, **given)

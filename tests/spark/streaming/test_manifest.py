"""Reading a manifest gives exactly what was written, or an error."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddy.spark.errors import StreamingStateError
from eddy.spark.partitioning.split_tree import GroupSplit
from eddy.spark.streaming.state.manifest import KIND, VERSION, GroupState, Manifest, ManifestLink, OutputFile
from eddy.spark.streaming.state.segments import Segment
from tests.spark.streaming.manifests import make_manifest

WORDS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | WORDS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(NAMES, JSON, max_size=3)
COUNTS = st.integers(0, 2**63 - 1)
PLAIN = NAMES.filter(lambda name: name not in ("", ".", "..") and not {"/", "\0"} & set(name))
FILES = st.lists(PLAIN, min_size=1).map("/".join)
SEGMENTS = st.builds(
    lambda times, **others: Segment(first=min(times), last=max(times), **others),
    st.tuples(WORDS, WORDS),
    file=FILES,
    offset=COUNTS,
    length=COUNTS,
    digest=st.binary(min_size=8, max_size=8).map(bytes.hex),
    group=COUNTS,
    stream=COUNTS,
    rows=COUNTS,
    splits=COUNTS,
)
LINKS = st.builds(
    ManifestLink,
    batch=COUNTS,
    late_below=st.none() | st.tuples(WORDS, WORDS),
    segments=st.lists(SEGMENTS, max_size=3).map(tuple),
)
OUTPUTS = st.lists(
    st.builds(OutputFile, file=FILES, rows=COUNTS, bytes=COUNTS, stream=st.none() | st.integers(0, 9)), max_size=3
).map(tuple)
STATES = st.builds(
    GroupState, version=COUNTS, token=NAMES, chain=st.lists(LINKS, max_size=3).map(tuple), plan=st.none() | NAMES
)
MANIFESTS = st.builds(
    Manifest,
    batch=st.integers(0, 10**12 - 1),
    watermarks=TABLES,
    partition_map=st.lists(st.integers(0, 99), max_size=5).map(tuple),
    groups=st.dictionaries(st.integers(0, 99), STATES, max_size=4),
    results=OUTPUTS,
    late=OUTPUTS,
    extra=TABLES,
    splits=st.lists(st.builds(GroupSplit, COUNTS, COUNTS), max_size=3).map(tuple),
)


@settings(max_examples=40)
@given(MANIFESTS)
def test_what_was_written_is_read(manifest: Manifest) -> None:
    data = manifest.to_bytes()
    read_back = Manifest.from_bytes(data)
    assert read_back == manifest
    assert read_back.to_bytes() == data


def test_the_order_of_groups_makes_no_difference() -> None:
    manifest = make_manifest(3)
    turned = make_manifest(3, groups=dict(reversed(manifest.groups.items())))
    assert turned.to_bytes() == manifest.to_bytes()


def test_files_of_the_log() -> None:
    assert make_manifest(3).log_files() == {"000000000003-0.log"}
    assert make_manifest(3, groups={}).log_files() == frozenset()


@pytest.mark.parametrize("flip", [1, 128, 255])
def test_every_byte_counts(flip: int) -> None:
    whole = make_manifest(3).to_bytes()
    for at in range(len(whole)):
        with pytest.raises(StreamingStateError):
            Manifest.from_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])


def test_cut_off_anywhere() -> None:
    whole = make_manifest(3).to_bytes()
    for length in range(len(whole)):
        with pytest.raises(StreamingStateError, match=r"manifest is (cut off|empty)"):
            Manifest.from_bytes(whole[:length])
    for more in (b"\0", whole):
        with pytest.raises(StreamingStateError, match="bytes after its end"):
            Manifest.from_bytes(whole + more)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"eddysnap" + bytes(100), "not a manifest: they begin with b'eddysnap', not with b'eddymani'"),
        (
            KIND.magic + struct.pack("<QQQQ", VERSION + 1, 3, 3, 0) + bytes(100),
            f"the manifest has format version {VERSION + 1}, this version .* reads {VERSION}; go on from it with",
        ),
        (
            KIND.magic + struct.pack("<QQQ", VERSION - 1, 3, 3) + bytes(100),
            f"the manifest has format version {VERSION - 1}, this version .* reads {VERSION}; go on from it with",
        ),
        ("text", "a manifest is the bytes that Manifest.to_bytes\\(\\) returned, not str"),
    ],
)
def test_what_is_no_manifest(data: Any, message: str) -> None:
    with pytest.raises(StreamingStateError, match=message):
        Manifest.from_bytes(data)

"""Which join a checkpoint belongs to, in identity.json, so that no other join goes on from its state.

Part of it is what the rows in the log mean: the streams in order with their kept columns, windows, time columns and
filters, the attribute classes of the predicates, the order of arrival, the grid of key groups, and those settings of
the watermarks that the caller names. Any difference in them is refused and named.

No part of it, and so free to change: plan, policy, strategy, what is stored, `max_bytes`, the number of partitions and
the partition map; `where` and `select`, which make results of combinations, as long as they leave the kept columns as
they are: the rows in the log have the columns that were kept when they were written. The filter of a stream is part of
it, because rows that it kept out are not in the log.

Functions in filters are compared by their names; what they do cannot be, so a function that now does something else
goes unnoticed, and the state holds rows that the old one let through.

    {"format": "eddy streaming join", "version": 2, "digest": BLAKE2b of the rest, "identity": {...}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eddy.query.text import FILTER_FORM, QUERY_FORM, difference, filter_shown, filter_text, query_text, same_filter
from eddy.spark.errors import StreamingStateError
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.state.durable import Found, read_twice, write_twice
from eddy.storage.json_form import FormError, fields, integer, list_of, mapping, optional, parse, text

FORMAT = "eddy streaming join"
VERSION = 2
_FORM = fields(
    {
        "query": QUERY_FORM,
        "filters": list_of(FILTER_FORM),
        "arrival": text,
        "sequence": list_of(optional(text)),
        "sequence_type": optional(text),
        "key_groups": integer(1),
        "classes": list_of(text),
        "shares": list_of(integer(1, 1 << 31)),
        "watermarks": mapping,
    }
)


def write_identity(root: Path, job: Job, key_groups: int, watermarks: Mapping[str, Any] | None = None) -> None:
    """Write which join the checkpoint under `root` belongs to; survives a power cut. For the first start.

    job         its shares are the grid of key groups
    key_groups  how many cells the grid has
    watermarks  what of their settings changes what is late or forgotten, as JSON can say it, by name
    """
    identity = _identity(job, key_groups, watermarks)
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "digest": _digest(identity), "identity": identity}, indent=1
    )
    write_twice(_path(root), _copy(root), text.encode())


def check_identity(
    root: Path, job: Job, key_groups: int, watermarks: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Raise StreamingStateError unless the checkpoint belongs to this join; the error says what differs, old and new.

    Returns what was damaged in one copy of the file and put right from the other, as text.
    """
    found = _read(root)
    if found.value is None:
        raise StreamingStateError(
            f"{root} does not say which join it belongs to: {'; '.join(found.damages) or f'{_path(root)} is missing'};"
            " restore the file or its copy from a backup, or start with a new checkpoint"
        )
    differs = _difference(found.value, job, _identity(job, key_groups, watermarks))
    if differs is not None:
        raise StreamingStateError(
            f"the checkpoint {root} belongs to another join: {differs}; run that one on it, or start with a new"
            " checkpoint"
        )
    return found.mended


def has_identity(root: Path) -> bool:
    """Say whether identity.json or its copy is there, whole or not."""
    return _path(root).exists() or _copy(root).exists()


def saved_shares(root: Path) -> tuple[int, ...] | None:
    """Return the shares per class the checkpoint was begun with, None without a whole identity.json.

    They depend on the sizes the streams were expected to have then; a later start takes these, and not those that it
    would choose now.
    """
    identity = _read(root).value
    return None if identity is None else tuple(identity["shares"])


def _path(root: Path) -> Path:
    return Path(root) / "identity.json"


def _copy(root: Path) -> Path:
    return Path(root) / "identity-copy.json"


def _identity(job: Job, key_groups: int, watermarks: Mapping[str, Any] | None) -> dict[str, Any]:
    identity = {
        "query": query_text(job.query),
        "filters": [filter_text(conditions) for conditions in job.filters],
        "arrival": job.arrival,
        "sequence": job.sequence,
        "sequence_type": None if job.sequence_type is None else str(job.sequence_type),
        "key_groups": key_groups,
        "classes": job.shares.classes,
        "shares": job.shares.counts,
        "watermarks": dict(watermarks or {}),
    }
    # As it is read again: sequences are lists.
    again: dict[str, Any] = json.loads(json.dumps(identity))
    return again


def _digest(identity: Mapping[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read(root: Path) -> Found[dict[str, Any]]:
    return read_twice(_path(root), _copy(root), _parse)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        whole = parse(data)
        found = (whole["format"], whole["version"], whole["digest"], whole["identity"])
    except (FormError, KeyError, TypeError) as problem:
        raise StreamingStateError(f"it is damaged or of something else ({problem!r})") from problem
    written_as, version, digest, identity = found
    if written_as != FORMAT:
        raise StreamingStateError(f"it has format {written_as!r}, not {FORMAT!r}")
    if version != VERSION:
        raise StreamingStateError(
            f"it has format version {version}, this version of the library reads {VERSION}; go on with the version that"
            " wrote it"
        )
    if not isinstance(identity, dict) or _digest(identity) != digest:
        raise StreamingStateError("it is damaged: what it says does not have its digest")
    try:
        _FORM(identity, "identity")
        m, shares = len(identity["query"]["streams"]), len(identity["classes"])
        list_of(FILTER_FORM, m)(identity["filters"], "identity.filters")
        list_of(optional(text), m)(identity["sequence"], "identity.sequence")
        list_of(integer(1), shares)(identity["shares"], "identity.shares")
    except FormError as problem:
        raise StreamingStateError(f"it was not written by this library: {problem}") from problem
    return identity


def _difference(saved: dict[str, Any], job: Job, own: dict[str, Any]) -> str | None:
    """Return the first thing that differs, None for nothing."""
    found = difference(saved["query"], job.query, where="the checkpoint", results=False)
    if found is not None:
        return found

    def differ(what: str, theirs: object, mine: object) -> str:
        return f"{what}: {theirs} in the checkpoint, {mine} now"

    for name, theirs, conditions in zip(job.shares.streams, saved["filters"], job.filters, strict=True):
        if not same_filter(theirs, conditions):
            return differ(f"stream {name}, filter", filter_shown(theirs), filter_shown(filter_text(conditions)))
    for name, theirs, mine in zip(job.shares.streams, saved["sequence"], own["sequence"], strict=True):
        if theirs != mine:
            return differ(f"stream {name}, column of the order of arrival", theirs or "none", mine or "none")
    for key, what in (
        ("arrival", "order of arrival"),
        ("sequence_type", "type of the order of arrival"),
        ("key_groups", "number of key groups"),
        ("classes", "classes of the key groups"),
    ):
        if saved[key] != own[key]:
            return differ(what, saved[key], own[key])
    for label, theirs, mine in zip(own["classes"], saved["shares"], own["shares"], strict=True):
        if theirs != mine:
            return differ(f"shares of the key groups along [{label}]", theirs, mine)
    theirs_set, own_set = saved["watermarks"], own["watermarks"]
    for name in [*theirs_set, *own_set]:
        if theirs_set.get(name) != own_set.get(name):
            return differ(f"watermark setting {name!r}", theirs_set.get(name, "absent"), own_set.get(name, "absent"))
    return None

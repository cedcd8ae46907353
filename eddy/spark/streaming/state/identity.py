"""The identity of a checkpoint: identity.json describes the join, so that no other join resumes from its state.

The identity contains all settings that determine the meaning of the rows in the log: the streams in order with their
kept columns, windows, time columns and filters, the attribute classes of the predicates, the order of arrival, the grid
of key groups, the transport, the kind of output, and the watermark settings that the caller names. A start with any
difference is refused, and the error names the difference.

A start may change the query (`QueryChange`). If the log has the rows that the new query needs, the identity of the new
query replaces the old identity, with the first micro-batch of the new query.

The following may change without a `QueryChange`: plan, policy, strategy, stored combinations, `max_bytes`, the number
of partitions and the partition map. `where` and `select` may change as long as the kept columns stay the same, because
rows in the log have the columns of the time when they were written. The filter of a stream belongs to the identity
because the log lacks the rows that the filter rejected.

The transport belongs to the identity because the form of the progress in Spark's checkpoint depends on the transport.

Functions in filters are compared by name only. So a changed function is not detected, and the state contains rows that
the old function accepted.

    {"format": "eddy streaming join", "version": 8, "digest": BLAKE2b of the rest, "identity": {...}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from eddy.query.text import FILTER_FORM, QUERY_FORM, difference, filter_shown, filter_text, query_text, same_filter
from eddy.spark.errors import StreamingStateError
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.state.copies import ReadOutcome, read_twice, write_twice
from stairs.storage.json_form import FormError, fields, integer, list_of, mapping, one_of, optional, parse, row_of, text

FORMAT = "eddy streaming join"
VERSION = 8
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
        "transport": text,
        "watermarks": mapping,
        "output": one_of(("append", "changelog")),
        "change": optional(row_of(one_of(("handover", "immediate")), integer(0))),
    }
)
How = Literal["handover", "immediate"]
CHANGES: tuple[How, ...] = ("handover", "immediate")


class QueryChange(NamedTuple):
    """A change of the query of a join.

    how    "handover": the new query continues with the rows in the log. "immediate": it starts without rows
    batch  the first micro-batch of the new query, None while it is not fixed
    """

    how: How
    batch: int | None


def write_identity(
    root: Path,
    job: Job,
    key_groups: int,
    transport: str,
    watermarks: Mapping[str, Any] | None = None,
    change: QueryChange | None = None,
) -> None:
    """Write the identity of a new checkpoint under `root`, or of one whose query changes. The file survives a power
    cut.

    job         its shares are the grid of key groups
    key_groups  number of cells of the grid
    transport   name of the transport
    watermarks  settings that change which rows are late or evicted, by name; values that JSON can express
    change      the kind and the first micro-batch of a change of the query
    """
    identity = {**_identity(job, key_groups, transport, watermarks), "change": change and list(change)}
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "digest": _digest(identity), "identity": identity}, indent=1
    )
    write_twice(_path(root), _copy(root), text.encode())


def check_identity(
    root: Path,
    job: Job,
    key_groups: int,
    transport: str,
    watermarks: Mapping[str, Any] | None = None,
    remedy: str = "",
) -> tuple[str, ...]:
    """Raise StreamingStateError unless the checkpoint belongs to this join; the error names the difference.

    remedy   an additional text with a remedy

    Returns texts on damage that was repaired.
    """
    outcome = _read(root)
    if outcome.value is None:
        raise StreamingStateError(
            f"{root} has no whole identity: {'; '.join(outcome.damages) or f'{_path(root)} is missing'};"
            " restore the file or its copy from a backup, or start with a new checkpoint"
        )
    differs = _difference(outcome.value, job, _identity(job, key_groups, transport, watermarks))
    if differs is not None:
        raise StreamingStateError(
            f"the checkpoint {root} belongs to another join: {differs}; run that join on it, or start with a new"
            f" checkpoint{remedy}"
        )
    return outcome.repairs


def changes_of(root: Path, job: Job, key_groups: int, transport: str, how: How | None) -> tuple[QueryChange, ...]:
    """Return the changes of the query of a checkpoint: the last change, and the change of this start.

    how   the kind of the change if this join has another query

    Raises StreamingStateError if the log lacks rows or columns of the new query.
    """
    saved = _read(root).value
    if saved is None:
        return ()
    before = () if saved["change"] is None else (QueryChange(*saved["change"]),)
    identity = _identity(job, key_groups, transport, None)
    if how is None or _difference(saved, job, identity) is None:
        return before
    refused = _unserved(saved, job, identity, how)
    if refused is not None:
        raise StreamingStateError(
            f"the checkpoint {root} belongs to another join, which cannot change to this one by {how!r}: {refused}"
        )
    return (*before, QueryChange(how, None))


def _unserved(saved: dict[str, Any], job: Job, identity: dict[str, Any], how: How) -> str | None:
    """Return why the rows of a checkpoint do not suffice for another query, None if they suffice."""
    hub = "; a hub (eddy.spark.Hub) logs all columns of all rows"
    streams = [(stream["name"], stream["time"]) for stream in saved["query"]["streams"]]
    if streams != [(stream["name"], stream["time"]) for stream in identity["query"]["streams"]]:
        return f"{difference(saved['query'], job.query, where='the checkpoint')}; the streams stay the same"
    form = _form_difference(saved, job, identity)
    if form is not None:
        return f"{form}; the rows are logged in this form, so start with a new checkpoint"
    if how == "immediate":
        return None
    if saved["query"]["branches"] or identity["query"]["branches"]:
        return (
            "a row without a partner needs rows that may have left the log, so with branches the new query starts"
            " without rows: use 'immediate'"
        )
    for theirs, mine in zip(saved["query"]["streams"], identity["query"]["streams"], strict=True):
        if theirs["columns"] != mine["columns"]:
            logged, needed = (", ".join(name for name, _ in stream["columns"]) for stream in (theirs, mine))
            return f"stream {mine['name']}: the log has the columns {logged}, the new query needs {needed}{hub}"
    filters = _filter_difference(saved, job)
    return None if filters is None else f"{filters}: the log has the rows that the old filter accepted{hub}"


def has_identity(root: Path) -> bool:
    """Return whether identity.json or its copy exists, whole or damaged."""
    return _path(root).exists() or _copy(root).exists()


@dataclass(frozen=True)
class SavedChoices:
    """The choices of the first start of a checkpoint, which later starts keep.

    shares     shares per class, which depend on the stream sizes that were expected at the first start
    transport  name of the transport
    """

    shares: tuple[int, ...]
    transport: str


def saved_choices(root: Path) -> SavedChoices | None:
    """Return the choices of the first start, None without a whole identity.json."""
    identity = _read(root).value
    return None if identity is None else SavedChoices(tuple(identity["shares"]), identity["transport"])


def _path(root: Path) -> Path:
    return Path(root) / "identity.json"


def _copy(root: Path) -> Path:
    return Path(root) / "identity-copy.json"


def _identity(job: Job, key_groups: int, transport: str, watermarks: Mapping[str, Any] | None) -> dict[str, Any]:
    identity = {
        "query": query_text(job.query),
        "filters": [filter_text(conditions) for conditions in job.filters],
        "arrival": job.arrival,
        "sequence": job.sequence,
        "sequence_type": None if job.sequence_type is None else str(job.sequence_type),
        "key_groups": key_groups,
        "classes": job.shares.classes,
        "shares": job.shares.counts,
        "transport": transport,
        "watermarks": dict(watermarks or {}),
        "output": "changelog" if job.changing else "append",
    }
    # The identity is converted to the form in which it is read: sequences are lists.
    again: dict[str, Any] = json.loads(json.dumps(identity))
    return again


def _digest(identity: Mapping[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read(root: Path) -> ReadOutcome[dict[str, Any]]:
    return read_twice(_path(root), _copy(root), _parse)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        whole = parse(data)
        entries = (whole["format"], whole["version"], whole["digest"], whole["identity"])
    except (FormError, KeyError, TypeError) as problem:
        raise StreamingStateError(f"it is damaged, or no identity ({problem!r})") from problem
    written_as, version, digest, identity = entries
    if written_as != FORMAT:
        raise StreamingStateError(f"it has format {written_as!r}, not {FORMAT!r}")
    if version != VERSION:
        raise StreamingStateError(
            f"it has format version {version}, and this version of the library reads {VERSION}; run the job with the"
            " version of the library that wrote it"
        )
    if not isinstance(identity, dict) or _digest(identity) != digest:
        raise StreamingStateError("it is damaged: its content does not match its digest")
    try:
        _FORM(identity, "identity")
        m, shares = len(identity["query"]["streams"]), len(identity["classes"])
        list_of(FILTER_FORM, m)(identity["filters"], "identity.filters")
        list_of(optional(text), m)(identity["sequence"], "identity.sequence")
        list_of(integer(1), shares)(identity["shares"], "identity.shares")
    except FormError as problem:
        raise StreamingStateError(f"it was not written by this library: {problem}") from problem
    return identity


def _difference(saved: dict[str, Any], job: Job, identity: dict[str, Any]) -> str | None:
    """Return a text on the first difference, or None if the identities are equal."""
    reason = difference(saved["query"], job.query, where="the checkpoint", results=False)
    if reason is not None:
        return reason
    return _filter_difference(saved, job) or _form_difference(saved, job, identity)


def _filter_difference(saved: dict[str, Any], job: Job) -> str | None:
    """Return a text on the first filter that differs."""
    for name, theirs, conditions in zip(job.shares.streams, saved["filters"], job.filters, strict=True):
        if not same_filter(theirs, conditions):
            mine = filter_shown(filter_text(conditions))
            return f"stream {name}, filter: {filter_shown(theirs)} in the checkpoint, {mine} now"
    return None


def _form_difference(saved: dict[str, Any], job: Job, identity: dict[str, Any]) -> str | None:
    """Return a text on the first difference in the settings that determine the key group of a row, and its path."""

    def differ(what: str, theirs: object, mine: object) -> str:
        return f"{what}: {theirs} in the checkpoint, {mine} now"

    for name, theirs, mine in zip(job.shares.streams, saved["sequence"], identity["sequence"], strict=True):
        if theirs != mine:
            return differ(f"stream {name}, column of the order of arrival", theirs or "none", mine or "none")
    for key, what in (
        ("arrival", "order of arrival"),
        ("sequence_type", "type of the order of arrival"),
        ("key_groups", "number of key groups"),
        ("classes", "classes of the key groups"),
        ("transport", "transport"),
        ("output", "output"),
    ):
        if saved[key] != identity[key]:
            return differ(what, saved[key], identity[key])
    for label, theirs, mine in zip(identity["classes"], saved["shares"], identity["shares"], strict=True):
        if theirs != mine:
            return differ(f"shares of the key groups along [{label}]", theirs, mine)
    theirs_set, own_set = saved["watermarks"], identity["watermarks"]
    for name in [*theirs_set, *own_set]:
        if theirs_set.get(name) != own_set.get(name):
            return differ(f"watermark setting {name!r}", theirs_set.get(name, "absent"), own_set.get(name, "absent"))
    return None

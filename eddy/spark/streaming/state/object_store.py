"""Objects by name below a prefix of an object store: S3, Google Cloud Storage or Azure, by the library `obstore`.

An object store has no rename, no lock and no append. What it has is enough for a checkpoint: an object appears as a
whole or not at all, `put_new` lets one of several writers create an object, and `swap` replaces an object only if
nobody else has replaced it. A request whose answer is lost may have had its effect; `put_new` and `swap` then read the
object to find out.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from eddy.spark.errors import SparkJoinError, StreamingStateError

T = TypeVar("T")

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")
_URL = re.compile(r"([A-Za-z0-9+.-]+)://(.+)")
_SECRET = re.compile("key|secret|token|password|credential|sas|account")
"""In the names of settings whose values no message shows."""
_METADATA = "169.254.169.254"
"""Where machines of clouds ask for credentials if none are given."""
_TRIES = 4
"""Attempts of a conditional write whose outcome is unknown, and of any request that fails beyond the retries of the
library."""


def is_url(place: object) -> bool:
    """Return whether a checkpoint is given as the URL of an object store."""
    match = _URL.fullmatch(place) if isinstance(place, str) else None
    return match is not None and match[1].lower() != "file"


class Tag(NamedTuple):
    """The mark of the contents of an object. S3 and Azure compare `e_tag`, Google Cloud Storage compares `version`."""

    e_tag: str | None
    version: str | None


class ObjectStore:
    """The objects below a prefix. It can be pickled; each process has a client of its own.

    url      such as "s3://bucket/prefix"
    options  settings of the client, as obstore names them: "endpoint", "region", "access_key_id", …; those of the
             environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`) apply to what is not given

    Raises SparkJoinError for a URL or a setting that the library does not know, and without the library. Requests raise
    StreamingStateError with the name of the object. No message contains the value of a
    setting that is a key, a token or a password.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        match = _URL.fullmatch(url)
        if match is None or match[1].lower() not in SCHEMES:
            raise SparkJoinError(
                f"checkpoint: {url!r} is no URL of an object store; pass one that begins with s3://, gs:// or az://, or"
                " a path of a mounted file system"
            )
        # A URL such as abfss://container@account… has no credentials in it.
        if re.search("//[^/]*:[^/]*@", url) or "?" in url or "@" in (options or {}).get("endpoint", ""):
            raise SparkJoinError(
                "checkpoint: a URL or an endpoint must not contain credentials; pass them as settings of their own in"
                " checkpoint_options"
            )
        self.url = url.rstrip("/")
        self._options = {str(name): str(value) for name, value in (options or {}).items()}
        self._made: tuple[int, Any] | None = None
        self._client()

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore, (self.url, self._options)

    # Requests

    def put(self, name: str, data: bytes | Path) -> None:
        """Write an object whose name no other writer uses; a repeated call writes the same bytes."""
        import obstore

        self._run(f"writing {name}", lambda store: obstore.put(store, name, data))

    def put_new(self, name: str, data: bytes) -> bool:
        """Create an object; return whether the object now has these bytes. Bytes of two writers must differ."""
        import obstore

        left = _TRIES
        while True:
            try:
                obstore.put(self._client(), name, data, mode="create")
                return True
            except Exception as problem:
                # An attempt whose answer was lost may have created the object.
                there = self.read(name)
                if there is not None:
                    return there[0] == data
                left -= 1
                self._pause(problem, f"creating {name}", left)

    def swap(self, name: str, data: bytes, tag: Tag) -> Tag | None:
        """Replace an object that still has a tag; return its new tag, None if another writer has replaced it."""
        import obstore

        left = _TRIES
        while True:
            try:
                known = {kind: value for kind, value in tag._asdict().items() if value is not None}
                return self._tag(obstore.put(self._client(), name, data, mode=known))  # type: ignore[arg-type]
            except Exception as problem:
                there = self.read(name)
                if there is None or (there[0] != data and there[1] != tag):
                    return None
                if there[0] == data:
                    return there[1]
                left -= 1
                self._pause(problem, f"replacing {name}", left)

    def read(self, name: str) -> tuple[bytes, Tag] | None:
        """Return the bytes and the tag of an object; None if the object does not exist."""
        import obstore

        def request(store: Any) -> tuple[bytes, Tag] | None:
            try:
                response = obstore.get(store, name)
            except FileNotFoundError as problem:
                if "NoSuchBucket" in str(problem):
                    raise
                return None
            return bytes(response.bytes()), self._tag(response.meta)

        return self._run(f"reading {name}", request)

    def ranges(self, name: str, places: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return the bytes of ranges (first byte, length) of an object; None if there is no object.

        Ranges that are near each other are read together, others in parallel.
        """
        import obstore

        def request(store: Any) -> list[bytes] | None:
            starts, lengths = [start for start, _ in places], [length for _, length in places]
            try:
                return [bytes(part) for part in obstore.get_ranges(store, name, starts=starts, lengths=lengths)]
            except FileNotFoundError:
                return None

        return self._run(f"reading {name}", request)

    def names(self, below: str, after: str | None = None) -> list[str]:
        """Return the names of all objects below a folder, ascending; with the folder.

        after   the names that sort after this one; None = all
        """
        import obstore

        def request(store: Any) -> list[str]:
            return sorted(entry["path"] for entry in obstore.list(store, prefix=below, offset=after).collect())

        return self._run(f"listing {below}/", request)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that do not exist are left out."""
        import obstore

        wanted = list(names)

        def request(store: Any) -> None:
            try:
                obstore.delete(store, wanted)
            except FileNotFoundError:
                for name in wanted if len(wanted) > 1 else ():
                    self.delete([name])

        if wanted:
            self._run(f"deleting {wanted[0]}" + (f" and {len(wanted) - 1} more" if wanted[1:] else ""), request)

    def check_conditions(self) -> None:
        """Raise StreamingStateError if the store ignores the conditions of writes, which keep two drivers apart."""
        first, second, third = (secrets.token_hex(8).encode() for _ in range(3))
        self.put_new("probe", first)
        there = self.read("probe")
        obeyed = there is not None and not self.put_new("probe", second)
        if obeyed and there is not None:
            obeyed = self.swap("probe", second, there[1]) is not None and self.swap("probe", third, there[1]) is None
        if not obeyed:
            raise StreamingStateError(
                f"{self.url}: the store overwrites objects although the request forbids it (If-None-Match), so two"
                " drivers of one job could not be kept apart: use a store that has conditional writes"
            )

    # The client

    def _client(self) -> Any:
        """Return the client of this process: a forked process must not use that of its parent."""
        if self._made is None or self._made[0] != os.getpid():
            self._made = os.getpid(), self._new_client()
        return self._made[1]

    def _new_client(self) -> Any:
        try:
            from obstore.store import from_url
        except ModuleNotFoundError:
            raise SparkJoinError(
                f"checkpoint={self.url!r}: an object store needs a package: pip install 'eddy-join[objects]'"
            ) from None
        options = dict(self._options)
        client = {"allow_http": True} if options.get("endpoint", "").startswith("http://") else {}
        try:
            return from_url(self.url, config=options, client_options=client)  # type: ignore[call-overload]
        except Exception as problem:
            raise SparkJoinError(f"checkpoint={self.url!r}: {self._told(problem)}; see checkpoint_options") from None

    def _run(self, action: str, request: Callable[[Any], T]) -> T:
        left = _TRIES
        while True:
            try:
                return request(self._client())
            except Exception as problem:
                left -= 1
                self._pause(problem, action, left)

    def _pause(self, problem: Exception, action: str, left: int) -> None:
        """Wait before another attempt, or raise the error if none is left or none can help."""
        final = ("PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "InvalidPathError")
        if not left or _is(problem, *final) or "NoSuchBucket" in str(problem):
            raise self._failed(action, problem) from None
        time.sleep(0.1 * 2 ** (_TRIES - 1 - left))

    def _failed(self, action: str, problem: Exception) -> StreamingStateError:
        remedy = "check the network and the state of the store; the job resumes from the checkpoint"
        if "NoSuchBucket" in str(problem) or isinstance(problem, FileNotFoundError):
            remedy = "the bucket does not exist: create it (a container on Azure), or correct the URL"
        elif _is(problem, "PermissionDeniedError", "UnauthenticatedError"):
            remedy = "the credentials do not permit it: the job reads, writes, lists and deletes below the prefix"
        elif "credential" in str(problem).lower() or _METADATA in str(problem):
            remedy = "pass credentials as checkpoint_options, or in the environment"
        return StreamingStateError(f"{self.url}: {action} failed: {self._told(problem)}; {remedy}")

    def _told(self, problem: Exception) -> str:
        """Return the first line of the text of an error, without values of the options."""
        text = str(problem).strip().split("\n", 1)[0].split(": <?xml", 1)[0]
        hidden = [value for name, value in self._options.items() if _SECRET.search(name.lower()) and value]
        for value in sorted(hidden, key=len, reverse=True):
            text = text.replace(value, "…")
        return text

    def _tag(self, meta: Any) -> Tag:
        if meta["e_tag"] is None and meta["version"] is None:
            raise StreamingStateError(f"{self.url}: the store gives objects no tags (ETag); use another store")
        return Tag(meta["e_tag"], meta["version"])


def _is(problem: Exception, *names: str) -> bool:
    return type(problem).__name__ in names

"""The lease of a checkpoint in an object store: one driver runs a job at a time.

    lease    a JSON object: the epoch, the holder, a number that rises with each renewal, whether it was given back

An object store has no locks that end with their process. So a driver renews its lease, and another driver takes the
lease over after it has seen no renewal for `TERM_S`, by its own monotonic clock; no clock of another host counts. Each
change is a compare and swap. The new holder raises the epoch, so the one before, if it still lives, fails at its next
renewal, and it renews before each commit.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eddy.log import LOG
from eddy.spark.errors import StreamingStateError
from eddy.spark.streaming.state.object_store import ObjectStore, Tag
from stairs.storage.json_form import FormError, boolean, fields, integer, parse, text

LEASE = "lease"
TERM_S = 20.0
"""Seconds without a renewal after which another driver takes the lease over."""
_MOST = (1 << 63) - 1
_FORM = fields(
    {
        "epoch": integer(1, _MOST),
        "renewal": integer(0, _MOST),
        "pid": integer(0, _MOST),
        "host": text,
        "machine": text,
        "nonce": text,
        "returned": boolean,
    }
)


@dataclass(frozen=True)
class _LeaseState:
    """The content of the object. `nonce` differs between any two drivers, so equal bytes are of one driver."""

    epoch: int
    renewal: int
    pid: int
    host: str
    machine: str
    nonce: str
    returned: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @property
    def holder(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def has_ended(self) -> bool:
        """Whether the holder is a process of this machine that does not exist any more."""
        if not self.machine or self.machine != _machine() or self.pid == os.getpid():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def _machine() -> str:
    """Return what two processes have in common if one sees the process numbers of the other; "" if it is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


class Lease:
    """The lease of one checkpoint, which this driver takes, renews and gives back.

    term_s   seconds without a renewal after which another driver takes the lease over
    """

    def __init__(self, store: ObjectStore, term_s: float = TERM_S) -> None:
        self._store, self._term_s = store, term_s
        self._held: tuple[_LeaseState, Tag] | None = None
        self._lost: StreamingStateError | None = None
        self._lock = threading.Lock()
        self._renewed_at = 0.0
        self._ends = threading.Event()

    @property
    def epoch(self) -> int | None:
        """The epoch of this driver, None while it does not hold the lease."""
        return None if self._held is None else self._held[0].epoch

    def acquire(self, above: int) -> None:
        """Take the lease.

        above   the greatest epoch in the checkpoint

        If another driver holds it, wait up to `term_s` for a sign of life: its next renewal. Raises a
        StreamingStateError that names the holder if there is one, and for a lease that is older than the checkpoint.
        """
        if self._held is not None:
            raise self._in_use("this process")
        mine = _LeaseState(above + 1, 0, os.getpid(), socket.gethostname(), _machine(), secrets.token_hex(8))
        there = self._store.read(LEASE)
        if there is None:
            if not self._store.put_new(LEASE, mine.to_bytes()):
                raise self._in_use("another driver, which has started at the same time")
            there = self._store.read(LEASE)
            if there is None or there[0] != mine.to_bytes():
                raise self._in_use("another driver, which has started at the same time")
            tag: Tag | None = there[1]
        else:
            before = self._parsed(there[0])
            if before.epoch < above:
                raise StreamingStateError(
                    f"{self._store.url}: the epoch went backwards: the lease has epoch {before.epoch}, and the newest"
                    f" state was written with epoch {above}. The object {LEASE!r} was restored from an older copy;"
                    " delete it if no driver runs this job"
                )
            if not before.returned and not before.has_ended:
                self._watch(there, before)
            mine = replace(mine, epoch=before.epoch + 1)
            tag = self._store.swap(LEASE, mine.to_bytes(), there[1])
            if tag is None:
                raise self._in_use("another driver, which has started at the same time")
        assert tag is not None
        self._held, self._renewed_at, self._lost = (mine, tag), time.monotonic(), None
        self._ends = threading.Event()
        threading.Thread(target=self._renew_often, args=(self._ends,), name="eddy lease", daemon=True).start()

    def _watch(self, there: tuple[bytes, Tag], before: _LeaseState) -> None:
        """Wait until the lease has not been renewed for its term. Raises StreamingStateError if it is renewed."""
        LOG.warning(
            "%s was in use by %s; waiting up to %.0f s for a sign of it", self._store.url, before.holder, self._term_s
        )
        until = time.monotonic() + self._term_s
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self._term_s / 10))
            now = self._store.read(LEASE)
            if now is None or now[1] != there[1]:
                if now is not None and self._parsed(now[0]).returned:
                    raise self._in_use(f"{before.holder}, which has just ended: start the job again")
                raise self._in_use(before.holder)

    def renew(self) -> None:
        """Renew the lease, before a commit. Raises StreamingStateError if another driver has taken it."""
        with self._lock:
            if self._held is None:
                raise self._lost or StreamingStateError(f"{self._store.url}: this driver does not hold the lease")
            held, tag = self._held
            renewed = replace(held, renewal=held.renewal + 1)
            new_tag = self._store.swap(LEASE, renewed.to_bytes(), tag)
            if new_tag is None:
                self._ends.set()
                self._held = None
                there = self._store.read(LEASE)
                by = "nobody: the object was deleted" if there is None else self._parsed(there[0]).holder
                self._lost = StreamingStateError(
                    f"{self._store.url}: this driver has lost its lease (epoch {held.epoch}); it is held by {by}. Only"
                    " one driver can run a checkpoint at a time: the other one goes on from the newest committed batch"
                )
                raise self._lost
            self._held, self._renewed_at = (renewed, new_tag), time.monotonic()

    def confirm(self) -> None:
        """Renew the lease unless that was done a moment ago, before something that other drivers would do as well."""
        if self._held is None or time.monotonic() - self._renewed_at > self._term_s / 4:
            self.renew()

    def _renew_often(self, ends: threading.Event) -> None:
        """Renew the lease while no commit does."""
        step = self._term_s / 3
        while not ends.wait(max(0.05, self._renewed_at + step - time.monotonic())):
            if time.monotonic() - self._renewed_at < step:
                continue
            try:
                self.renew()
            except StreamingStateError as problem:
                # If the lease is lost, the next commit fails with this error.
                LOG.warning("the lease of the checkpoint was not renewed: %s", problem)
                self._renewed_at = time.monotonic()

    def release(self) -> None:
        """Give the lease back, so that the next driver does not wait; without effect if it is not held."""
        self._ends.set()
        with self._lock:
            if self._held is None:
                return
            held, tag = self._held
            self._held = None
            try:
                self._store.swap(LEASE, replace(held, renewal=held.renewal + 1, returned=True).to_bytes(), tag)
            except StreamingStateError as problem:
                LOG.warning("the lease of the checkpoint was not given back: %s", problem)

    def _parsed(self, data: bytes) -> _LeaseState:
        try:
            content = parse(data)
            _FORM(content, LEASE)
        except FormError as problem:
            raise StreamingStateError(
                f"{self._store.url}: the object {LEASE!r} is no lease of a streaming join ({problem}); another program"
                " uses this prefix: choose another one"
            ) from None
        return _LeaseState(**content)

    def _in_use(self, holder: str) -> StreamingStateError:
        return StreamingStateError(
            f"{self._store.url} is in use by {holder}: only one driver can run a checkpoint at a time; stop that"
            " driver, or give this job a checkpoint of its own"
        )

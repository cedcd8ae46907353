"""Objects, their conditions and the lease: one of several writers wins, whatever answers are lost."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eddy.demo.object_server import BUCKET, SECRET, ObjectServer, object_server
from eddy.spark import SparkJoinError
from eddy.spark.errors import StreamingStateError
from eddy.spark.options import StreamingOptions
from eddy.spark.streaming.state import lease as leases
from eddy.spark.streaming.state.lease import LEASE, Lease
from eddy.spark.streaming.state.object_store import ObjectStore, Tag, is_url


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture
def store(server: ObjectServer, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    server.fault = lambda method, path: None
    yield server.store(request.node.name.replace("[", "/").replace("]", ""))
    server.fault = lambda method, path: None


def test_one_of_many_writers_creates_an_object(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: store.put_new("one", str(i).encode()), range(40)))
    assert won.count(True) == 1
    assert store.read("one") is not None
    assert store.read("one")[0] == str(won.index(True)).encode()  # type: ignore[index]


@pytest.mark.campaign(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_conditional_write_knows_whether_it_happened(server: ObjectServer, store: ObjectStore, seed: int) -> None:
    """Two writers create and replace an object in turns; each answer agrees with a model, whatever requests fail."""
    chance = random.Random(seed)
    lock = threading.Lock()

    def fault(method: str, path: str) -> str | None:
        with lock:
            return chance.choice([None] * 8 + ["before", "after"])

    server.fault = fault
    content: bytes | None = None
    tags = [Tag('"none"', None)]
    for step in range(12):
        data = f"{step}".encode()
        if content is None or chance.random() < 0.3:
            created = store.put_new("it", data)
            assert created == (content is None)
            content = data if created else content
        else:
            tag = chance.choice(tags[-2:])
            expected = store.read("it")
            assert expected is not None
            replaced = store.swap("it", data, tag)
            assert (replaced is not None) == (expected[1] == tag)
            content = data if replaced is not None else content
        stored = store.read("it")
        assert stored is not None
        assert stored[0] == content
        tags.append(stored[1])


def test_ranges_names_and_deletions(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(200)))
    store.put("log/a", tmp_path / "file")
    store.put("log/b", b"b")
    store.put("logs/c", b"c")
    assert store.ranges("log/a", [(150, 3), (0, 2)]) == [bytes([150, 151, 152]), bytes([0, 1])]
    assert store.ranges("log/none", [(0, 1)]) is None
    assert store.names("log") == ["log/a", "log/b"]
    store.delete(["log/a", "log/none", "log/b"])
    store.delete([])
    assert store.names("log") == []
    again = pickle.loads(pickle.dumps(store))
    assert again.read("logs/c") == store.read("logs/c")


@pytest.mark.parametrize("ignored", ["HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
def test_a_store_that_ignores_conditions_is_refused(store: ObjectStore, server: ObjectServer, ignored: str) -> None:
    store.check_conditions()
    server.ignored = ignored
    try:
        with pytest.raises(StreamingStateError, match="conditional writes"):
            store.check_conditions()
    finally:
        server.ignored = None


def test_errors_name_the_object_and_a_remedy_and_no_secret(server: ObjectServer) -> None:
    missing = ObjectStore("s3://no-such-bucket/x", server.options)
    for act in (lambda: missing.read("a"), lambda: missing.names("log"), lambda: missing.put("a", b"")):
        with pytest.raises(StreamingStateError, match=r"no-such-bucket/x: .* the bucket does not exist: create it"):
            act()
    server.fault = lambda method, path: "refused"
    try:
        with pytest.raises(StreamingStateError, match="the credentials do not permit it") as refused:
            server.store("x").put_new("a", b"")
    finally:
        server.fault = lambda method, path: None
    shown = [str(refused.value), repr(server.store("x"))]
    shown.append(repr(StreamingOptions(f"s3://{BUCKET}/x", checkpoint_options=server.options)))
    assert not any(SECRET in text for text in shown)
    with pytest.raises(SparkJoinError, match="pass one that begins with s3://") as unknown:
        StreamingOptions("ftp://host/x")
    assert "path of a mounted file system" in str(unknown.value)
    with pytest.raises(SparkJoinError, match="must not contain credentials"):
        StreamingOptions("s3://me:secret@bucket/x")
    key = {"account_key": "a2V5", "account_name": "account"}
    StreamingOptions("abfss://container@account.dfs.core.windows.net/x", checkpoint_options=key)
    with pytest.raises(SparkJoinError, match="checkpoint_options are for a checkpoint in an object store"):
        StreamingOptions("/tmp/state", checkpoint_options={"region": "x"})
    with pytest.raises(SparkJoinError, match="see checkpoint_options"):
        StreamingOptions("s3://bucket/x", checkpoint_options={"no_such_setting": "x"})


def test_what_is_a_url() -> None:
    assert all(map(is_url, ("s3://b/p", "gs://b", "az://c/p", "hdfs://x/y")))
    assert not any(map(is_url, ("/tmp/x", "file:///tmp/x", "file:/tmp/x", Path("/tmp"), None, "s3:/b")))


# The lease


def test_a_lease_that_is_renewed_is_not_taken_and_one_that_is_not_is(store: ObjectStore) -> None:
    first, second = Lease(store, 0.6), Lease(store, 0.6)
    first.acquire(0)
    with pytest.raises(StreamingStateError, match="is in use by this process"):
        first.acquire(0)
    assert first.epoch == 1
    began = time.monotonic()
    with pytest.raises(StreamingStateError, match=r"is in use by process \d+ on "):
        second.acquire(0)
    assert time.monotonic() - began < 0.6  # a sign of life ends the wait
    first._ends.set()  # as if the process were gone
    began = time.monotonic()
    second.acquire(0)
    assert time.monotonic() - began >= 0.6
    assert second.epoch == 2
    with pytest.raises(StreamingStateError, match=r"has lost its lease \(epoch 1\); it is held by process"):
        first.renew()
    second.renew()
    second.release()
    second.release()
    first.acquire(2)
    assert first.epoch == 3
    first.release()


def test_a_lease_of_a_process_of_this_host_that_has_ended_is_taken_at_once(store: ObjectStore) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lease = Lease(store, 60.0)
    lease.acquire(0)
    lease._ends.set()
    held = lease._held
    assert held is not None
    store.put(LEASE, leases.replace(held[0], pid=ended.pid).to_bytes())
    other = Lease(store, 60.0)
    began = time.monotonic()
    other.acquire(0)
    assert time.monotonic() - began < 5
    assert other.epoch == 2
    other.release()


def test_a_lease_that_contradicts_the_checkpoint_is_refused(store: ObjectStore) -> None:
    lease = Lease(store, 0.3)
    lease.acquire(4)
    assert lease.epoch == 5
    lease.release()
    with pytest.raises(StreamingStateError, match=r"the epoch went backwards: the lease has epoch 5, .* epoch 7"):
        Lease(store, 0.3).acquire(7)
    store.put(LEASE, b"{}")
    with pytest.raises(StreamingStateError, match=r"is no lease of a streaming join .* another program"):
        Lease(store, 0.3).acquire(0)
    store.delete([LEASE])
    with pytest.raises(StreamingStateError, match="does not hold the lease"):
        lease.renew()
    away = lease_elsewhere(store)
    assert not away.has_ended  # another machine, or one that shares no process numbers


def lease_elsewhere(store: ObjectStore) -> leases._LeaseState:
    """Return the lease of a process of another container, whose number no process has here."""
    lease = Lease(store, 60.0)
    lease.acquire(0)
    assert lease._held is not None
    held = lease._held[0]
    lease.release()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert leases.replace(held, pid=ended.pid).has_ended
    return leases.replace(held, pid=ended.pid, machine=f"{held.machine}1")


@pytest.mark.campaign(1)
@pytest.mark.parametrize("seed", range(3))
def test_of_many_drivers_one_holds_the_lease(server: ObjectServer, store: ObjectStore, seed: int) -> None:
    """Drivers take, renew and give back the lease at random moments, while requests fail; commits never overlap."""
    chance, lock = random.Random(seed), threading.Lock()
    epochs: list[int] = []

    def fault(method: str, path: str) -> str | None:
        with lock:
            return chance.choice([None] * 18 + ["before", "after"])

    server.fault = fault

    def driver(number: int) -> None:
        for _ in range(3):
            lease = Lease(server.store(store.url.split("/", 3)[3]), 0.5)
            try:
                lease.acquire(0)
                for _ in range(3):
                    lease.renew()
                    assert lease.epoch is not None
                    epochs.append(lease.epoch)
                    time.sleep(0.02)
            except StreamingStateError:
                continue
            finally:
                lease.release()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(driver, range(4)))
    assert epochs == sorted(epochs)
    assert len(set(epochs)) >= 2

"""An engine is woken from a file that was left whole, by one process at a time, or not at all."""

from __future__ import annotations

import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eddy import InputError, Query, Rows, Runtime, StateError
from eddy.live import engines as live
from eddy.live.engines import Arena
from eddy.live.file import HEADER_BYTES, LiveFile
from eddy.routing.policies import Decision, View
from tests.eddy.lives import KEY, Life, in_child, long_query, long_rows
from tests.eddy.snapshots import filled, make_query


def kept_file(path: Path) -> Path:
    with Arena(path, KEY) as arena:
        arena.keep(filled(), b"token")
    return path


def wakes(path: Path, token: bytes = b"token", query: Query | None = None) -> bool:
    with Arena(path, KEY) as arena:
        return arena.wake(token, query or make_query()) is not None


def test_only_the_engine_kept_under_the_token_is_woken_and_only_once(path: Path) -> None:
    assert not wakes(path)
    assert wakes(kept_file(path))
    assert not wakes(path)
    assert not wakes(kept_file(path), b"another")
    assert not wakes(path)
    assert not wakes(kept_file(path), query=make_query(window=Rows(3)))
    assert not wakes(kept_file(path), b"")
    assert wakes(kept_file(path))


def test_a_file_that_is_cut_off_or_of_other_times_is_not_woken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (0, 7, 100, HEADER_BYTES, kept_file(path).stat().st_size - 1):
        os.truncate(kept_file(path), length)
        assert not wakes(path)
    for name in ("_boot", "_library"):
        kept_file(path)
        with monkeypatch.context() as patch:
            patch.setattr(live, name, lambda: b"another time....")
            assert not wakes(path)
    kept_file(path)
    with monkeypatch.context() as patch:
        # A machine that does not say when it was started.
        patch.setattr(live, "_boot", lambda: None)
        assert not wakes(kept_file(path))
    path.write_bytes(b"something else" * 1000)
    assert not wakes(path)


def test_a_process_killed_at_any_moment_leaves_nothing_to_wake(path: Path) -> None:
    query = long_query()
    for moment in count():
        with Arena(path, KEY) as arena:
            runtime = Runtime(query, policy="fixed")
            runtime.push(long_rows(0), watermark=0)
            arena.keep(runtime, b"before")

        def work(moment: int = moment) -> None:
            written = count()
            write = LiveFile._write

            def killed(self: LiveFile, memory: Any, at: int) -> None:
                if next(written) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                write(self, memory, at)

            LiveFile._write = killed  # type: ignore[method-assign]
            with Arena(path, KEY) as arena:
                runtime = arena.wake(b"before", query)
                assert runtime is not None
                runtime.push(long_rows(40, 200), watermark=40)
                arena.keep(runtime, b"after")

        if in_child(work) == 0:
            break
        for token in (b"after", b"before"):
            assert not wakes(path, token, query)
    assert moment > 3
    assert wakes(path, b"after", query)


def test_one_process_at_a_time(path: Path) -> None:
    kept_file(path)
    with Arena(path, KEY) as mine:
        runtime = mine.wake(b"token", make_query())
        assert runtime is not None
        with Arena(path, KEY) as other:
            assert mine.held
            assert not other.held
            for use in (
                lambda: other.wake(b"token", make_query()),
                lambda: other.keep(filled(), b"x"),
                lambda: other.nbytes,
            ):
                with pytest.raises(StateError, match="not locked by this process"):
                    use()

        def work() -> None:
            with Arena(path, KEY) as arena:
                assert not arena.held

        assert in_child(work) == 0
        mine.keep(runtime, b"token")
        assert mine.nbytes == path.stat().st_size
    with pytest.raises(StateError, match="not locked by this process"):
        mine.wake(b"token", make_query())
    assert wakes(path)
    with Arena(path, KEY) as mine:
        path.unlink()
        # The file that is locked is nobody's any more; this is another one.
        with Arena(path, KEY) as other:
            assert mine.held
            assert other.held


def test_a_runtime_is_kept_where_it_was_woken(path: Path) -> None:
    other = path.with_name("other")
    with Arena(kept_file(path), KEY) as arena:
        runtime = arena.wake(b"token", make_query())
        assert runtime is not None
        with Arena(other, KEY) as elsewhere, pytest.raises(StateError, match="woken from another file"):
            elsewhere.keep(runtime, b"token")
    with Arena(path, KEY) as arena, pytest.raises(StateError, match="before this one was entered"):
        arena.keep(runtime, b"token")


def test_a_runtime_that_was_kept_holds_no_memory(path: Path) -> None:
    runtime = Runtime(long_query(), policy="fixed")
    life = Life(path, runtime)
    for _ in range(12):
        runtime.push(long_rows(0), watermark=0)
        runtime = life.again(runtime.query)
    # Without a collection of cycles: one mapping is that of the engine just woken.
    assert Path("/proc/self/maps").read_text().count(str(path)) == 1
    life.leave()


def test_a_push_under_way_is_not_kept(path: Path) -> None:
    class Peeking:
        name = "peeking"

        def decide(self, view: View) -> Decision | None:
            with Arena(path, KEY) as arena:
                arena.keep(runtime, b"token")
            return None

    runtime = Runtime(long_query(), policy=Peeking(), decide_every=10)
    with pytest.raises(StateError, match="kept: this runtime is in the middle of another call"):
        runtime.push(long_rows(0), watermark=0)
    assert not wakes(path, query=long_query())


class Recording:
    """A policy of a user's: it counts how often it was asked."""

    name = "recording"

    def __init__(self) -> None:
        self.asked = 0
        self.resumed: object = None

    def decide(self, view: View) -> Decision | None:
        self.asked += 1
        return None


class Remembering(Recording):
    """The same, and it can tell."""

    def learnt(self) -> Any:
        return {"asked": self.asked}

    def resume(self, learnt: Any) -> None:
        self.resumed = learnt
        self.asked = learnt["asked"]


def test_a_policy_of_a_user_is_handed_in_and_resumes_if_it_can(path: Path) -> None:
    for kind, remembers in ((Recording, False), (Remembering, True)):
        policy = kind()
        runtime = Runtime(long_query(), policy=policy, decide_every=20)
        runtime.push(long_rows(0), watermark=0)
        assert policy.asked
        with Arena(path, KEY) as arena:
            arena.keep(runtime, b"token")
        with Arena(path, KEY) as arena:
            with pytest.raises(InputError, match=r"policy 'recording', which is yours: hand it to wake"):
                arena.wake(b"token", long_query())
            again = kind()
            woken = arena.wake(b"token", long_query(), again)
            assert woken is not None
            left = policy.asked if remembers else 0
            assert (again.asked, again.resumed) == (left, {"asked": left} if remembers else None)
            woken.push(long_rows(40), watermark=0)
            assert again.asked > left
            arena.keep(woken, b"token")


def test_what_a_policy_has_learnt_is_json(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime(long_query(), policy=Remembering())
    runtime._router.policy.learnt = lambda: {"asked": Remembering}  # type: ignore[attr-defined]
    with Arena(path, KEY) as arena, pytest.raises(InputError, match=r"policy 'recording'.*learnt\(\).*not JSON"):
        arena.keep(runtime, b"token")
    assert not wakes(path, query=long_query())
    # It is still of use.
    assert runtime.push(long_rows(0), watermark=0).num_rows
    runtime._router.policy.learnt = lambda: [1]  # type: ignore[attr-defined]
    with Arena(path, KEY) as arena:
        arena.keep(runtime, b"token")
        assert arena.wake(b"token", long_query(), Remembering()) is None
    assert "policy 'recording' cannot resume" in caplog.text

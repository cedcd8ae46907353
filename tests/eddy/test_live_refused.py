"""An engine is loaded from a complete file, by one process at a time, or not at all."""

from __future__ import annotations

import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eddy import InputError, Query, Rows, Runtime, StateError
from eddy.live import engine_file
from eddy.live.engine_file import EngineFile
from eddy.live.file import HEADER_BYTES, LiveFile
from eddy.routing.policies import Decision, View
from tests.eddy.live_engines import KEY, SavedRuntime, in_child, long_query, long_rows
from tests.eddy.snapshots import filled, make_query


def saved_file(path: Path) -> Path:
    with EngineFile(path, KEY) as live:
        live.save(filled(), b"token")
    return path


def loads(path: Path, token: bytes = b"token", query: Query | None = None) -> bool:
    with EngineFile(path, KEY) as live:
        return live.load(token, query or make_query()) is not None


def test_only_the_engine_saved_under_the_token_is_loaded_and_only_once(path: Path) -> None:
    assert not loads(path)
    assert loads(saved_file(path))
    assert not loads(path)
    assert not loads(saved_file(path), b"another")
    assert not loads(path)
    assert not loads(saved_file(path), query=make_query(window=Rows(3)))
    assert not loads(saved_file(path), b"")
    assert loads(saved_file(path))


def test_a_file_that_is_cut_off_or_of_other_times_is_not_loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cut in (0, 7, 100, HEADER_BYTES, -1):
        # The size is that of this very file: the text of measured times in it is longer or shorter each time.
        size = saved_file(path).stat().st_size
        os.truncate(path, cut % size)
        assert not loads(path)
        assert path.stat().st_size == 0
    for name in ("_boot", "_library"):
        saved_file(path)
        with monkeypatch.context() as patch:
            patch.setattr(engine_file, name, lambda: b"another time....")
            assert not loads(path)
    saved_file(path)
    with monkeypatch.context() as patch:
        # A machine that does not identify its boot.
        patch.setattr(engine_file, "_boot", lambda: None)
        assert not loads(saved_file(path))
    path.write_bytes(b"something else" * 1000)
    assert not loads(path)


def test_a_change_of_any_module_of_the_engine_is_another_library() -> None:
    names = {path.as_posix() for path in engine_file._sources()}
    for module in ("stairs/stems.py", "jisc/strategies/base.py", "eddy/runtime.py", "eddy/routing/router.py"):
        assert any(name.endswith(module) for name in names), module
    assert not any("/eddy/spark/" in name for name in names)


def test_a_process_killed_at_any_moment_leaves_nothing_to_load(path: Path) -> None:
    query = long_query()
    for moment in count():
        with EngineFile(path, KEY) as live:
            runtime = Runtime(query, policy="fixed")
            runtime.push(long_rows(0), watermark=0)
            live.save(runtime, b"before")

        def work(moment: int = moment) -> None:
            written = count()
            write = LiveFile._write

            def killed(self: LiveFile, memory: Any, at: int) -> None:
                if next(written) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                write(self, memory, at)

            LiveFile._write = killed  # type: ignore[method-assign]
            with EngineFile(path, KEY) as live:
                runtime = live.load(b"before", query)
                assert runtime is not None
                runtime.push(long_rows(40, 200), watermark=40)
                live.save(runtime, b"after")

        if in_child(work) == 0:
            break
        for token in (b"after", b"before"):
            assert not loads(path, token, query)
    assert moment > 3
    assert loads(path, b"after", query)


def test_one_process_at_a_time(path: Path) -> None:
    saved_file(path)
    with EngineFile(path, KEY) as mine:
        runtime = mine.load(b"token", make_query())
        assert runtime is not None
        with EngineFile(path, KEY) as other:
            assert mine.locked
            assert not other.locked
            for use in (
                lambda: other.load(b"token", make_query()),
                lambda: other.save(filled(), b"x"),
                lambda: other.nbytes,
            ):
                with pytest.raises(StateError, match="not locked by this process"):
                    use()

        def work() -> None:
            with EngineFile(path, KEY) as live:
                assert not live.locked

        assert in_child(work) == 0
        mine.save(runtime, b"token")
        assert mine.nbytes == path.stat().st_size
    with pytest.raises(StateError, match="not locked by this process"):
        mine.load(b"token", make_query())
    assert loads(path)
    with EngineFile(path, KEY) as mine:
        path.unlink()
        # The locked file was removed; this is another one.
        with EngineFile(path, KEY) as other:
            assert mine.locked
            assert other.locked


def test_a_runtime_is_saved_where_it_was_loaded(path: Path) -> None:
    other = path.with_name("other")
    with EngineFile(saved_file(path), KEY) as live:
        runtime = live.load(b"token", make_query())
        assert runtime is not None
        with EngineFile(other, KEY) as elsewhere, pytest.raises(StateError, match="loaded from another file"):
            elsewhere.save(runtime, b"token")
    with EngineFile(path, KEY) as live, pytest.raises(StateError, match="before this context was entered"):
        live.save(runtime, b"token")


def test_a_runtime_that_was_kept_holds_no_memory(path: Path) -> None:
    runtime = Runtime(long_query(), policy="fixed")
    saved = SavedRuntime(path, runtime)
    for _ in range(12):
        runtime.push(long_rows(0), watermark=0)
        runtime = saved.again(runtime.query)
    # Without a collection of cycles: one mapping is that of the engine just loaded.
    assert Path("/proc/self/maps").read_text().count(str(path)) == 1
    saved.leave()


def test_a_push_under_way_is_not_kept(path: Path) -> None:
    class Peeking:
        name = "peeking"

        def decide(self, view: View) -> Decision | None:
            with EngineFile(path, KEY) as live:
                live.save(runtime, b"token")
            return None

    runtime = Runtime(long_query(), policy=Peeking(), decide_every=10)
    with pytest.raises(StateError, match="to_parts: this runtime is in the middle of another call"):
        runtime.push(long_rows(0), watermark=0)
    assert not loads(path, query=long_query())


class Recording:
    """A policy of a user, which counts its calls."""

    name = "recording"

    def __init__(self) -> None:
        self.asked = 0
        self.resumed: object = None

    def decide(self, view: View) -> Decision | None:
        self.asked += 1
        return None


class Remembering(Recording):
    """The same policy, which can also save its count."""

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
        with EngineFile(path, KEY) as live:
            live.save(runtime, b"token")
        with EngineFile(path, KEY) as live:
            with pytest.raises(InputError, match=r"policy 'recording', which is not built in: pass it to load"):
                live.load(b"token", long_query())
            again = kind()
            loaded = live.load(b"token", long_query(), again)
            assert loaded is not None
            left = policy.asked if remembers else 0
            assert (again.asked, again.resumed) == (left, {"asked": left} if remembers else None)
            loaded.push(long_rows(40), watermark=0)
            assert again.asked > left
            live.save(loaded, b"token")


def test_what_a_policy_has_learnt_is_json(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runtime = Runtime(long_query(), policy=Remembering())
    runtime._pipeline.join.router.policy.learnt = lambda: {"asked": Remembering}  # type: ignore[attr-defined]
    with EngineFile(path, KEY) as live, pytest.raises(InputError, match=r"policy 'recording'.*learnt\(\).*not JSON"):
        live.save(runtime, b"token")
    assert not loads(path, query=long_query())
    # The runtime can still be used.
    assert runtime.push(long_rows(0), watermark=0).num_rows
    runtime._pipeline.join.router.policy.learnt = lambda: [1]  # type: ignore[attr-defined]
    with EngineFile(path, KEY) as live:
        live.save(runtime, b"token")
        assert live.load(b"token", long_query(), Remembering()) is None
    assert "policy 'recording' cannot resume" in caplog.text

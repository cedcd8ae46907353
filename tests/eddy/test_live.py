"""Engines kept in files between processes: woken they go on as if they had never been kept; what is not whole is not
woken.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from eddy import InputError, Predicate, Query, Range, Rows, Runtime, StateError, Stream, live, live_file
from eddy.live import Arena
from eddy.live_file import HEADER_BYTES, Block, LiveFile
from eddy.policies import Decision, View
from jisc.strategies import STRATEGIES
from jisc.strategies.base import CHAPTER
from tests.cases import Case, text_rows
from tests.eddy.snapshots import filled, make_query
from tests.strategies import arrivals, cases, neighbours_by_predicate, plans, splits

ROOT = Path(__file__).parent.parent.parent
CASES = cases(max_streams=4)
CHANGING = [name for name, strategy in STRATEGIES.items() if strategy.changes]
MODES: tuple[dict[str, Any], ...] = (
    {},
    {"ids_only": True},
    {"count_only": True},
    {"output": "changelog"},
    {"renumber_at": 8},
    {"background": 2},
)
BY_ARRIVALS = ("fixed", "lottery", "rank", "a-greedy")
"""Policies that decide the same whenever a run is repeated."""


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "engine"


def looks(runtime: Runtime) -> dict[str, Any]:
    """Give all that can be seen of a runtime but bytes and times."""
    metrics = runtime.metrics()
    metrics.pop("bytes")
    states = {name: {k: v for k, v in own.items() if k != "bytes"} for name, own in metrics.pop("states").items()}
    history = [
        {name: value for name, value in one.items() if isinstance(value, int | str) or name in ("ended", "at")}
        for one in runtime.history().to_pylist()
    ]
    return {
        "metrics": {k: v for k, v in metrics.items() if k not in ("seconds", "classes")},
        "states": states,
        "history": history,
        "scheduled": runtime.scheduled(),
        "plan": runtime.plan,
        "snapshot": runtime.snapshot(),
        "filters": runtime.filters().select(["where", "predicate", "rows", "accepted"]).to_pylist(),
    }


class Life:
    """A runtime that lives in a file from the first `again` on."""

    def __init__(self, path: Path, runtime: Runtime) -> None:
        self.path, self.runtime = path, runtime
        self._arena = Arena(path).__enter__()
        assert self._arena.held

    def again(self, query: Query, token: bytes = b"t") -> Runtime:
        """Keep the runtime, leave, come back and wake it."""
        self._arena.keep(self.runtime, token)
        self.leave()
        self._arena.__enter__()
        woken = self._arena.wake(token, query)
        assert woken is not None
        self.runtime = woken
        return woken

    def leave(self) -> None:
        self._arena.__exit__(None, None, None)


# --- going on --------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.data())
def test_what_is_kept_goes_on_as_if_it_had_not_been(data: st.DataObject) -> None:
    case: Case = data.draw(CASES)
    strategy = data.draw(st.sampled_from(sorted(STRATEGIES)))
    options: dict[str, Any] = {"strategy": strategy, **data.draw(st.sampled_from(MODES))}
    if strategy not in ("jisc", "eddy"):
        options.pop("background", None)
    if strategy in CHANGING:
        options |= {"policy": data.draw(st.sampled_from(BY_ARRIVALS)), "decide_every": data.draw(st.integers(2, 9))}
    pushes = data.draw(splits(data.draw(arrivals(case))))
    whole, kept = (Runtime(case.query(), **options) for _ in range(2))
    times = 0
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder) / "engine", kept)
        for one in pushes:
            for _ in range(data.draw(st.sampled_from((0, 1, 1, 2)))):
                # A query written anew, as in another process.
                kept = life.again(case.query())
                kept.check()
                times += 1
            assert looks(kept) == looks(whole)
            if strategy in CHANGING and data.draw(st.integers(0, 3)) == 0:
                plan, at = (
                    data.draw(plans(case, neighbours_by_predicate(case))),
                    whole.position + len(one.arrivals) // 2,
                )
                for runtime in (whole, kept):
                    runtime.transition(plan, at)
            if one.arrivals and data.draw(st.integers(0, 4)) == 0:
                for runtime in (whole, kept):
                    with pytest.raises(InputError):
                        runtime.push(one.batches(case), [0] * (len(one.arrivals) + 1))
            tables = [runtime.push(one.batches(case), one.order()) for runtime in (whole, kept)]
            assert text_rows(tables[1]) == text_rows(tables[0])
            assert tables[1].schema == tables[0].schema
            if data.draw(st.booleans()):
                late = [{name: text_rows(rows) for name, rows in runtime.late().items()} for runtime in (whole, kept)]
                assert late[1] == late[0]
        kept.check()
        assert looks(kept) == looks(whole)
        life.leave()
    event(f"kept: {'never' if not times else 'some times'}")


SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(20, 3)),
        ("b", pa.bool_()),
        ("t", pa.int64()),
        ("text", pa.string()),
        ("list", pa.list_(pa.int16())),
    ]
)


def odd(batch: pa.RecordBatch) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(batch["k"], 31), 31)


def long_query() -> Query:
    keep = [Predicate(odd, ["k"]), pc.field("t") >= 0, lambda batch: pc.is_valid(batch["t"])]
    streams = [Stream(name, SCHEMA, window=Range(60), time="t", filter=keep) for name in "RST"]
    return Query(streams, ["R.k = S.k", "S.s = T.s", "S.d = T.d"], where=pc.field("R.t") >= 0)


def long_rows(start: int, n: int = 40) -> dict[str, pa.RecordBatch]:
    """Give rows of each stream with keys that drift, strings, decimals, and nulls in some pushes only."""
    rows = np.arange(start, start + n)
    columns = {
        "k": rows % 13 + start // 100,
        "s": [f"key {r % 7 + start // 200}" for r in rows],
        "d": pa.array([Decimal(int(r) % 3) for r in rows], pa.decimal128(20, 3)),
        "b": [None if start > 300 and r % 5 == 0 else bool(r % 2) for r in rows],
        "t": rows,
        "text": [f"row {r}" * (r % 4) for r in rows],
        "list": [[int(r) % 9] * (r % 3) for r in rows],
    }
    return {name: pa.record_batch(columns, schema=SCHEMA) for name in "RST"}


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_long_streams_with_strings_and_states_are_kept_at_every_push(strategy: str, path: Path) -> None:
    options: dict[str, Any] = {
        "strategy": strategy,
        "policy": "fixed",
        "store": ["R S"] if strategy == "eddy" else None,
    }
    whole, kept = (Runtime(long_query(), "(R S) T", **options) for _ in range(2))
    life = Life(path, kept)
    for step in range(24):
        start = 40 * step
        if strategy in CHANGING and step % 5 == 3:
            for runtime in (whole, kept):
                runtime.transition(("(R S) T", "R (S T)")[step % 2], at=runtime.position + 17)
        tables = [runtime.push(long_rows(start), watermark=start + 30) for runtime in (whole, kept)]
        assert tables[1].equals(tables[0])
        assert tables[0].num_rows or step < 1
        kept = life.again(long_query(), b"%d" % step)
        if step % 8 == 0:
            kept.check()
        # Old room is used again: a file holds about what the engine does.
        assert path.stat().st_size < 3 * kept.nbytes + live_file.SPARE
    assert looks(kept) == looks(whole)
    life.leave()


def test_a_long_history_is_kept_and_is_not_written_each_time(path: Path) -> None:
    options: dict[str, Any] = {"policy": "lottery", "decide_every": 30}
    whole, kept = (Runtime(long_query(), **options) for _ in range(2))
    life, sizes = Life(path, kept), []
    for step in range(100):
        for runtime in (whole, kept):
            runtime.push(long_rows(10 * step, 10), watermark=10 * step)
        kept = life.again(long_query())
        sizes.append(len(kept._strategy._transitions))
        # Asked after each wake: what was written down is not read for it.
        assert (kept.changes, kept.reason) == (whole.changes, whole.reason)
        assert len(kept._strategy._transitions) == sizes[-1]
        if step == 50:
            assert looks(kept) == looks(whole)
    # Those that are still looked at, of the last 16 pushes, and less than a chapter of others.
    assert max(sizes) < 16 + CHAPTER < len(whole.history())
    assert looks(kept) == looks(whole)
    life.leave()


def in_child(work: Callable[[], None]) -> int | None:
    """Run something in a forked process and return its exit code."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    return child.exitcode


def test_an_engine_goes_from_process_to_process(path: Path) -> None:
    whole, kept = Runtime(long_query(), policy="fixed"), Runtime(long_query(), policy="fixed")
    with Arena(path) as arena:
        arena.keep(kept, b"0")
    for step in range(4):

        def work(step: int = step) -> None:
            with Arena(path) as arena:
                runtime = arena.wake(b"%d" % step, long_query())
                assert runtime is not None
                runtime.push(long_rows(40 * step), watermark=40 * step)
                arena.keep(runtime, b"%d" % (step + 1))

        assert in_child(work) == 0
        whole.push(long_rows(40 * step), watermark=40 * step)
    with Arena(path) as arena:
        woken = arena.wake(b"4", long_query())
        assert woken is not None
        woken.check()
        assert looks(woken) == looks(whole)


PROGRAM = """
import sys
from pathlib import Path
from eddy.live import Arena
from tests.eddy.test_live import long_query, long_rows

with Arena(Path(sys.argv[1])) as arena:
    runtime = arena.wake(b"here", long_query())
    runtime.check()
    runtime.transition("(R S) T", store=["R S"])
    runtime.push(long_rows(160), watermark=160)
    arena.keep(runtime, b"there")
"""


def test_a_process_with_another_layout_of_memory_finds_it(path: Path) -> None:
    query = long_query()
    whole, kept = (Runtime(query, "R (S T)", policy="lottery", decide_every=50, store=["S T"]) for _ in range(2))
    for step in range(4):
        for runtime in (whole, kept):
            runtime.push(long_rows(40 * step), watermark=40 * step)
    with Arena(path) as arena:
        arena.keep(kept, b"here")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    whole.transition("(R S) T", store=["R S"])
    whole.push(long_rows(160), watermark=160)
    with Arena(path) as arena:
        woken = arena.wake(b"there", query)
        assert woken is not None
        woken.check()
        tables = [runtime.push(long_rows(200), watermark=200) for runtime in (whole, woken)]
        assert tables[1].equals(tables[0])
        assert looks(woken) == looks(whole)


def test_what_an_engine_gave_away_does_not_change_with_it(path: Path) -> None:
    query = long_query()
    runtime = Runtime(query, policy="fixed")
    runtime.push(long_rows(0), watermark=39)
    runtime.push(long_rows(20), watermark=39)
    life = Life(path, runtime)
    runtime = life.again(query)
    late, table = runtime.late(), runtime.push(long_rows(60), watermark=99)
    before = [text_rows(rows) for rows in (*late.values(), table)]
    for step in range(3, 9):
        runtime = life.again(query)
        runtime.push(long_rows(40 * step), watermark=40 * step)
    assert [text_rows(rows) for rows in (*late.values(), table)] == before
    assert late["R"].num_rows == 19
    life.leave()


# --- what is not woken -----------------------------------------------------------------------------------------------


def kept_file(path: Path) -> Path:
    with Arena(path) as arena:
        arena.keep(filled(), b"token")
    return path


def wakes(path: Path, token: bytes = b"token", query: Query | None = None) -> bool:
    with Arena(path) as arena:
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
        with Arena(path) as arena:
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
            with Arena(path) as arena:
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
    with Arena(path) as mine:
        runtime = mine.wake(b"token", make_query())
        assert runtime is not None
        with Arena(path) as other:
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
            with Arena(path) as arena:
                assert not arena.held

        assert in_child(work) == 0
        mine.keep(runtime, b"token")
        assert mine.nbytes == path.stat().st_size
    with pytest.raises(StateError, match="not locked by this process"):
        mine.wake(b"token", make_query())
    assert wakes(path)
    with Arena(path) as mine:
        path.unlink()
        # The file that is locked is nobody's any more; this is another one.
        with Arena(path) as other:
            assert mine.held
            assert other.held


def test_a_runtime_is_kept_where_it_was_woken(path: Path) -> None:
    other = path.with_name("other")
    with Arena(kept_file(path)) as arena:
        runtime = arena.wake(b"token", make_query())
        assert runtime is not None
        with Arena(other) as elsewhere, pytest.raises(StateError, match="woken from another file"):
            elsewhere.keep(runtime, b"token")
    with Arena(path) as arena, pytest.raises(StateError, match="before this one was entered"):
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
            with Arena(path) as arena:
                arena.keep(runtime, b"token")
            return None

    runtime = Runtime(long_query(), policy=Peeking(), decide_every=10)
    with pytest.raises(StateError, match="push is under way"):
        runtime.push(long_rows(0), watermark=0)
    assert not wakes(path, query=long_query())


def test_a_policy_that_cannot_be_kept(path: Path) -> None:
    class Local:
        name = "local"

        def decide(self, view: View) -> Decision | None:
            return None

    runtime = Runtime(long_query(), policy=Local())
    with Arena(path) as arena, pytest.raises(InputError, match="policy 'local' cannot be kept"):
        arena.keep(runtime, b"token")
    assert not wakes(path, query=long_query())
    # It is still of use.
    assert runtime.push(long_rows(0), watermark=0).num_rows


# --- room ------------------------------------------------------------------------------------------------------------


@given(st.data())
def test_blocks_never_overlap_and_gaps_are_used_again(data: st.DataObject) -> None:
    with tempfile.TemporaryFile() as handle:
        file, contents = LiveFile(handle.fileno()), dict[int, bytes]()
        for step in range(data.draw(st.integers(1, 8))):
            kept = [k for k in range(len(file.blocks)) if data.draw(st.booleans())]
            sizes = data.draw(st.lists(st.sampled_from((1, 64, 100, 5000, 300_000)), max_size=6))
            texts = [bytes([65 + step]) * size for size in sizes]
            had = [contents[file.blocks[k].start] for k in kept]
            old, new, end = file.lay_out(kept, sizes)
            for text, at in zip(texts, new, strict=True):
                file.write(text, at)
            contents = {old[k]: text for k, text in zip(kept, had, strict=True)} | dict(zip(new, texts, strict=True))
            blocks = sorted(Block(at, len(text)) for at, text in contents.items())
            assert all(block.start % 64 == 0 for block in blocks)
            assert [HEADER_BYTES, *(block.start + block.size for block in blocks)] == sorted(
                [HEADER_BYTES, *(block.start + block.size for block in blocks)]
            )
            assert all(a.start + a.size <= b.start for a, b in pairwise(blocks))
            assert end <= 2 * sum(-(-block.size // 64) * 64 for block in blocks) + live_file.SPARE + HEADER_BYTES
            os.ftruncate(handle.fileno(), end)
            for block in blocks:
                assert os.pread(handle.fileno(), block.size, block.start) == contents[block.start]
            header = live_file.Header(live_file.MAGIC, 1, b"", b"", b"", b"", 0, 0, end)
            file.close()
            file.open(header, blocks)


def test_kernels_take_mapped_memory_as_they_take_any(path: Path) -> None:
    from tests.varied_use import compiled

    query = long_query()
    runtime = Runtime(query, strategy="jisc")
    runtime.push(long_rows(0), watermark=0)
    runtime.push(long_rows(40), watermark=40)
    before = compiled()
    life = Life(path, runtime)
    for step in range(2, 5):
        runtime = life.again(query)
        runtime.push(long_rows(40 * step), watermark=40 * step)
        for array in runtime._modules.arena:
            assert array.flags.writeable
            assert array.flags.c_contiguous
            assert array.flags.aligned
    assert {name: n for name, n in compiled().items() if n > max(before[name], 1)} == {}
    life.leave()

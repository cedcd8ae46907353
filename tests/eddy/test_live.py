"""Live engines: a loaded engine continues as if it had never been saved."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import stairs.key_room
import stairs.memory.segments
from eddy import InputError, Runtime
from eddy.live import file as live_file
from eddy.live.engine_file import EngineFile
from jisc.strategies import STRATEGIES
from jisc.strategies.history import CHAPTER
from tests.cases import JoinCase, text_rows
from tests.draws import arrivals, cases, neighbours_by_predicate, plans, splits
from tests.eddy.live_engines import KEY, SavedRuntime, in_child, long_query, long_rows, looks

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
"""Policies whose decisions are the same in each run."""


@pytest.mark.campaign(0)
@settings(max_examples=50)
@given(st.data())
def test_what_is_kept_goes_on_as_if_it_had_not_been(data: st.DataObject) -> None:
    case: JoinCase = data.draw(CASES)
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
        saved = SavedRuntime(Path(folder) / "engine", kept)
        for push in pushes:
            for _ in range(data.draw(st.sampled_from((0, 1, 1, 2)))):
                # A new Query object, as in another process.
                kept = saved.again(case.query())
                kept.check()
                times += 1
            assert looks(kept) == looks(whole)
            if strategy in CHANGING and data.draw(st.integers(0, 3)) == 0:
                plan, at = (
                    data.draw(plans(case, neighbours_by_predicate(case))),
                    whole.position + len(push.arrivals) // 2,
                )
                for runtime in (whole, kept):
                    runtime.transition(plan, at)
            if push.arrivals and data.draw(st.integers(0, 4)) == 0:
                for runtime in (whole, kept):
                    with pytest.raises(InputError):
                        runtime.push(push.batches(case), [0] * (len(push.arrivals) + 1))
            batches, order = push.batches(case), push.order()
            tables = [runtime.push(batches, order) for runtime in (whole, kept)]
            assert text_rows(tables[1]) == text_rows(tables[0])
            assert tables[1].schema == tables[0].schema
            if data.draw(st.booleans()):
                late = [{name: text_rows(rows) for name, rows in runtime.late().items()} for runtime in (whole, kept)]
                assert late[1] == late[0]
        kept.check()
        assert looks(kept) == looks(whole)
        saved.leave()
    event(f"kept: {'never' if not times else 'some times'}")


@pytest.mark.campaign(3)
@pytest.mark.parametrize("roomy", [False, True])
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_long_streams_with_strings_and_states_are_kept_at_every_push(
    strategy: str, roomy: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if roomy:
        # Small arrays grow in place as well, and the file has no room for that.
        monkeypatch.setattr(stairs.key_room, "MANY_KEYS", 96)
        monkeypatch.setattr(stairs.memory.segments, "LEAST_RESERVED", 64)
    options: dict[str, Any] = {
        "strategy": strategy,
        "policy": "fixed",
        "store": ["R S"] if strategy == "eddy" else None,
    }
    whole, kept = (Runtime(long_query(), "(R S) T", **options) for _ in range(2))
    saved = SavedRuntime(path, kept)
    for step in range(24):
        start = 40 * step
        if strategy in CHANGING and step % 5 == 3:
            for runtime in (whole, kept):
                runtime.transition(("(R S) T", "R (S T)")[step % 2], at=runtime.position + 17)
        tables = [runtime.push(long_rows(start), watermark=start + 30) for runtime in (whole, kept)]
        assert tables[1].equals(tables[0])
        assert tables[0].num_rows or step < 1
        kept = saved.again(long_query(), b"%d" % step)
        if step % 8 == 0:
            kept.check()
        # Freed space is reused: the file is about as large as the engine.
        assert path.stat().st_size < 3 * kept.nbytes + live_file.SPARE
    assert looks(kept) == looks(whole)
    saved.leave()


def test_a_long_history_is_kept_and_is_not_written_each_time(path: Path) -> None:
    options: dict[str, Any] = {"policy": "lottery", "decide_every": 30}
    whole, kept = (Runtime(long_query(), **options) for _ in range(2))
    saved, sizes = SavedRuntime(path, kept), []
    for step in range(100):
        for runtime in (whole, kept):
            runtime.push(long_rows(10 * step, 10), watermark=10 * step)
        kept = saved.again(long_query())
        sizes.append(len(kept._pipeline.join.strategy.history._newer))
        # Called after each load: it does not read the saved chapters.
        assert (kept.changes, kept.reason) == (whole.changes, whole.reason)
        assert len(kept._pipeline.join.strategy.history._newer) == sizes[-1]
        if step == 50:
            assert looks(kept) == looks(whole)
    # The changes that are still needed, of the last 16 pushes, and less than a chapter of others.
    assert max(sizes) < 16 + CHAPTER < len(whole.history())
    assert looks(kept) == looks(whole)
    saved.leave()


def test_an_engine_goes_from_process_to_process(path: Path) -> None:
    whole, kept = Runtime(long_query(), policy="fixed"), Runtime(long_query(), policy="fixed")
    with EngineFile(path, KEY) as live:
        live.save(kept, b"0")
    for step in range(4):

        def work(step: int = step) -> None:
            with EngineFile(path, KEY) as live:
                runtime = live.load(b"%d" % step, long_query())
                assert runtime is not None
                runtime.push(long_rows(40 * step), watermark=40 * step)
                live.save(runtime, b"%d" % (step + 1))

        assert in_child(work) == 0
        whole.push(long_rows(40 * step), watermark=40 * step)
    with EngineFile(path, KEY) as live:
        loaded = live.load(b"4", long_query())
        assert loaded is not None
        loaded.check()
        assert looks(loaded) == looks(whole)


PROGRAM = """
import sys
from pathlib import Path
from eddy.live.engine_file import EngineFile
from tests.eddy.live_engines import KEY, long_query, long_rows

with EngineFile(Path(sys.argv[1]), KEY) as live:
    runtime = live.load(b"here", long_query())
    runtime.check()
    runtime.transition("(R S) T", store=["R S"])
    runtime.push(long_rows(160), watermark=160)
    live.save(runtime, b"there")
"""


def test_a_process_with_another_layout_of_memory_finds_it(path: Path) -> None:
    query = long_query()
    whole, kept = (Runtime(query, "R (S T)", policy="lottery", decide_every=50, store=["S T"]) for _ in range(2))
    for step in range(4):
        for runtime in (whole, kept):
            runtime.push(long_rows(40 * step), watermark=40 * step)
    with EngineFile(path, KEY) as live:
        live.save(kept, b"here")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    whole.transition("(R S) T", store=["R S"])
    whole.push(long_rows(160), watermark=160)
    with EngineFile(path, KEY) as live:
        loaded = live.load(b"there", query)
        assert loaded is not None
        loaded.check()
        tables = [runtime.push(long_rows(200), watermark=200) for runtime in (whole, loaded)]
        assert tables[1].equals(tables[0])
        assert looks(loaded) == looks(whole)


def test_what_an_engine_gave_away_does_not_change_with_it(path: Path) -> None:
    query = long_query()
    runtime = Runtime(query, policy="fixed")
    runtime.push(long_rows(0), watermark=39)
    runtime.push(long_rows(20), watermark=39)
    saved = SavedRuntime(path, runtime)
    runtime = saved.again(query)
    late, table = runtime.late(), runtime.push(long_rows(60), watermark=99)
    before = [text_rows(rows) for rows in (*late.values(), table)]
    for step in range(3, 9):
        runtime = saved.again(query)
        runtime.push(long_rows(40 * step), watermark=40 * step)
    assert [text_rows(rows) for rows in (*late.values(), table)] == before
    assert late["R"].num_rows == 19
    saved.leave()

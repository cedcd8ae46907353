"""Planted and damaged files: nothing in them is executed, and no engine is loaded from them."""

from __future__ import annotations

import hmac
import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eddy import InputError, Runtime
from eddy.live import engine_file
from eddy.live.engine_file import EngineFile
from eddy.live.file import HEADER_BYTES, FileHeader, LiveFile
from eddy.storage.seal import Seal
from tests.eddy.live_engines import KEY, long_query, long_rows
from tests.stairs.test_private import give_away

WRONG = "no engine is loaded: the seal of its"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with an engine that has rings, strings, chunks, stored states, a history and late rows."""
    path = tmp_path_factory.mktemp("kept") / "engine"
    runtime = Runtime(long_query(), "(R S) T", strategy="jisc", policy="bandit", decide_every=50)
    for step in range(6):
        runtime.push(long_rows(40 * step - 20), watermark=40 * step)
    runtime.transition("R (S T)")
    runtime.push(long_rows(220), watermark=240)
    with EngineFile(path, KEY) as live:
        live.save(runtime, b"token")
    return path


def loaded(path: Path, key: bytes = KEY) -> Runtime | None:
    with EngineFile(path, key) as live:
        return live.load(b"token", long_query())


class Command:
    """A pickle that runs a command."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def test_a_planted_pickle_is_not_run(kept: Path, path: Path) -> None:
    target = path.with_name("ran")
    command = pickle.dumps(Command(target))
    pickle.loads(command)
    assert target.exists()
    target.unlink()
    path.write_bytes(command)
    path.chmod(0o600)
    assert loaded(path) is None
    # In place of the index, under a valid header.
    shutil.copy(kept, path)
    handle = os.open(path, os.O_RDWR)
    header = LiveFile(handle).header()
    assert header is not None
    os.pwrite(handle, command, header.index_start)
    os.close(handle)
    assert loaded(path) is None
    assert not target.exists()


def test_a_file_with_other_bytes_anywhere_is_not_loaded(
    kept: Path, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(kept, path)
    assert loaded(path) is not None
    whole, chance = kept.read_bytes(), random.Random(7)
    handle = os.open(kept, os.O_RDONLY)
    header = LiveFile(handle).header()
    assert header is not None
    places = np.frombuffer(LiveFile(handle).index(header), np.int64, 2 * header.n_blocks).reshape(-1, 2).tolist()
    os.close(handle)
    places += [[8, 200], [header.index_start, header.index_bytes]]
    for start, size in [*places, *(chance.choice(places) for _ in range(60))]:
        at = start + chance.randrange(size)
        data = bytearray(whole)
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        caplog.clear()
        assert loaded(path) is None, at
        assert at < HEADER_BYTES or WRONG in caplog.text, at
        # The file is empty afterwards.
        assert not path.stat().st_size


def test_the_seals_are_hmacs_of_all_bytes() -> None:
    seal, memory = Seal(KEY), np.arange(256, dtype=np.uint8)
    sealed = b"first" + memory[:64].tobytes() + memory[128:192].tobytes()
    block_seal = seal.of_blocks(b"first", memory, np.array([[0, 64], [128, 64]]))
    assert block_seal == hmac.digest(seal._block_key, sealed, "sha256")
    assert seal.of_index(b"head", b"index") == hmac.digest(
        seal._index_key, (4).to_bytes(8, "little") + b"headindex", "sha256"
    )
    assert len({seal.name, seal._index_key, seal._block_key}) == 3


def test_without_the_key_no_engine_is_found(kept: Path, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copy(kept, path)
    # This happens after each start of a driver and is no error.
    assert loaded(path, b"another secret of the tests") is None
    assert not caplog.text
    # An attacker who knows everything but the key.
    for part in ("_index_key", "_block_key"):
        with EngineFile(path, KEY) as live:
            other = engine_file.Seal(b"another secret of the tests")
            setattr(live._seal, part, getattr(other, part))
            live.save(Runtime(long_query(), policy="fixed"), b"token")
        caplog.clear()
        assert loaded(path) is None
        assert WRONG in caplog.text
    for key in (b"", b"too short", "a secret of all tests"):
        with pytest.raises(InputError, match="16 secret bytes or more"):
            EngineFile(path, key)  # type: ignore[arg-type]


def test_links_strangers_and_open_directories_are_refused(
    kept: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = path.with_name("precious")
    precious.write_bytes(b"not to be lost")
    precious.chmod(0o600)
    path.symlink_to(precious)
    with pytest.raises(InputError, match="is a link"), EngineFile(path, KEY):
        pass
    assert precious.read_bytes() == b"not to be lost"
    path.unlink()
    shutil.copy(kept, path)
    path.parent.chmod(0o770)
    with pytest.raises(InputError, match="has mode 0770"), EngineFile(path, KEY):
        pass
    path.parent.chmod(0o700)
    path.chmod(0o606)
    with pytest.raises(InputError, match="has mode 0606"), EngineFile(path, KEY):
        pass
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        give_away(path, patch)
        with pytest.raises(InputError, match="another user may have written it"), EngineFile(path, KEY):
            pass


def altered(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with one nested value replaced."""
    if isinstance(value, dict) and value and chance.random() < 0.95:
        name = chance.choice(list(value))
        if chance.random() < 0.05:
            return {k: v for k, v in value.items() if k != name}
        return {**value, name: altered(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.95:
        k = chance.randrange(len(value))
        return [*value[:k], altered(value[k], chance), *value[k + 1 :]]
    if type(value) is int and chance.random() < 0.7:
        return value + chance.choice((-1, 1, 7, -1000, 1 << 20, 1 << 40))
    return chance.choice((None, True, -1, 0, 3, 1 << 62, 1 << 70, 0.5, float("nan"), "x", [], {}, [0], {"x": 0}))


def test_an_index_that_was_altered_under_the_right_key_breaks_nothing_at_once(kept: Path, path: Path) -> None:
    """Only a defect could write such an index. It is refused, or its engine has arrays within the file only."""
    chance, outcomes = random.Random(11), set[bool]()
    handle = os.open(kept, os.O_RDONLY)
    header = LiveFile(handle).header()
    assert header is not None
    index = LiveFile(handle).index(header)
    os.close(handle)
    tables, values = index[: 16 * header.n_blocks], json.loads(index[16 * header.n_blocks :])
    for _ in range(300):
        shutil.copy(kept, path)
        write_index(path, header, tables + json.dumps(altered(values, chance)).encode())
        try:
            outcomes.add(loaded(path) is None)
        except InputError as fault:
            # Another policy name in the index stands for a policy of the user's own, which was not passed.
            if "which is not built in" not in str(fault):
                raise
            outcomes.add(True)
    assert outcomes == {False, True}


def write_index(path: Path, header: FileHeader, index: bytes) -> None:
    """Write another index after the last block, and seal the file."""
    with EngineFile(path, KEY) as live:
        file = live._locked_file()
        end = -(-(header.end + len(index)) // 64) * 64
        file.write(index, header.end)
        file.fill(end)
        header = header._replace(index_start=header.end, index_bytes=len(index), end=end)
        places = np.frombuffer(index, np.int64, 2 * header.n_blocks).reshape(-1, 2)
        index_seal = live._seal.of_index(header.sealed, index)
        memory = file.mapped(end)
        file.seal(header._replace(index_seal=index_seal, block_seal=live._block_seal(memory, index_seal, places)))


def test_no_file_of_ours_is_unpickled() -> None:
    """No module imports pickle; only Spark reads what Spark sends to its workers."""
    root = Path(engine_file.__file__).parents[2]
    for package in ("stairs", "jisc", "eddy"):
        sources = sorted((root / package).rglob("*.py"))
        assert sources
        for source in sources:
            assert "import pickle" not in source.read_text(), source

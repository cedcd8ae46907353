"""Hashes of keys: whatever keys somebody chooses, they do not crowd in a hash table. Counts of slots, not times."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numba
import numpy as np
import pytest

from eddy.aggregates.directory import SlotDirectory
from eddy.aggregates.kernels import hash_of
from stairs import seeds
from stairs.bytes_directory import BytesDirectory
from stairs.descriptors import C_CROWDED, C_FACTOR, C_MAY_PASS, C_SHIFT, C_TABLE
from stairs.kernels.bits import folded_plain, folded_product
from stairs.kernels.hashes import MIXED, MOST_SPARE, SPACED, SPARE
from stairs.kernels.keys import home_of, passed
from stairs.memory.segments import Segments
from stairs.modules import Modules
from stairs.snapshot import fill, live_windows
from tests.stairs.driver import DriverRow, PlanDriver, key_ids, live_parts, one_class, rows_window
from tests.stairs.steps import callable_step

MANY = 3_000
WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15
"""The factor of a hash that this library had, and many have."""
INVERSE = pow(GOLDEN, -1, WORD)


def _unfolded(x: int) -> int:
    return x ^ (x >> 32)


def _families() -> dict[str, Callable[[int], int]]:
    drawn = Random(1)
    return {
        "sequential": lambda k: k,
        "from the end": lambda k: -1 - k,
        "random": lambda k: drawn.getrandbits(64),
        "top bit of the golden product 0": lambda k: _unfolded(drawn.getrandbits(63) * INVERSE % WORD),
        "one home under the golden ratio": lambda k: _unfolded(k * INVERSE % WORD),
        "multiples of a Fibonacci number": lambda k: k * 10_946,
        "multiples of the inverse": lambda k: k * INVERSE % WORD,
        "multiples of 1000": lambda k: k * 1000,
        "multiples of a power of two": lambda k: k << 20,
        "bits reversed": lambda k: int(f"{k:064b}"[::-1], 2),
        "high bits only": lambda k: k << 48,
        "upper half only": lambda k: k << 32,
        "both halves equal": lambda k: k << 32 | k,
        "floats": lambda k: int(np.float64(k).view(np.int64)),
        "seconds in microseconds": lambda k: 1_700_000_000_000_000 + k * 1_000_000,
    }


FAMILIES = _families()


def _keys(family: str, n: int = MANY) -> list[int]:
    keys = dict.fromkeys(FAMILIES[family](k) % WORD for k in range(n))
    return [key - WORD if key >> 63 else key for key in keys]


@pytest.fixture(params=range(5))
def drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Several seeds of all hashes."""
    monkeypatch.setattr(seeds, "SOURCE", Random(request.param).randbytes)
    return int(request.param)


def required(holds: bool, what: str) -> None:
    assert holds, what


def _passed_in_all(arena: Any, c: int) -> int:
    """Return the slots that look-ups of all keys of a class pass."""
    base, slots = arena.classes[c, C_TABLE], np.int64(1) << (64 - arena.classes[c, C_SHIFT])
    total = 0
    for p in range(base, base + 2 * slots, 2):
        if arena.table[p + 1] >= 0:
            total += passed(arena, c, home_of(arena, c, arena.table[p]), p)
    return total


passed_in_all = callable_step(numba.njit(_passed_in_all))


def slots_passed(modules: Modules) -> int:
    """Return the slots that look-ups of all keys of class 0 pass."""
    return int(passed_in_all(modules.arena, 0))


def most(modules: Modules) -> int:
    """Return the most slots that they may pass."""
    slots = 1 << (64 - int(modules.classes[0, C_SHIFT]))
    return int(modules.classes[0, C_MAY_PASS]) * modules.keys(0) + SPARE + min(slots // 64, MOST_SPARE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_no_keys_crowd(family: str, width: int, drawn: int) -> None:
    # The directory doubles five times on the way.
    keys = [(7, key, key >> 3)[3 - width :] if drawn % 2 else (key, 7, 1)[:width] for key in _keys(family)]
    keys = list(dict.fromkeys(keys))
    driver = PlanDriver(one_class([rows_window(MANY)] * 2, width))
    modules, at = driver.modules, 0
    for size in (1, 30, 400, MANY):
        driver.push([DriverRow(0, (key,)) for key in keys[at : at + size]])
        at += size
        assert slots_passed(modules) <= most(modules)
        assert not modules.classes[0, C_CROWDED]
    assert modules.keys(0) == len(keys)
    modules.check()


@pytest.mark.parametrize("family", ["sequential", "from the end"])
def test_sequential_keys_hardly_meet(family: str, drawn: int) -> None:
    driver = PlanDriver(one_class([rows_window(MANY)] * 2))
    driver.push([DriverRow(0, ((key,),)) for key in _keys(family)])
    assert driver.modules.classes[0, C_MAY_PASS] == SPACED
    assert slots_passed(driver.modules) <= MANY // 3


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let every directory draw the same seeds; return a number whose multiples then have one home."""
    monkeypatch.setattr(seeds, "SOURCE", lambda n: Random(n).randbytes(n))
    # The denominators of the continued fraction of factor / 2^64.
    left, right, before, denominator = seeds.spacing() % WORD, WORD, 1, 0
    while denominator < 1 << 28:
        quotient, rest = divmod(left, right)
        left, right, before, denominator = right, rest, denominator, quotient * denominator + before
    return denominator


def test_keys_chosen_by_somebody_who_knows_the_seeds_get_other_homes(known: int) -> None:
    driver, other = (PlanDriver(one_class([rows_window(MANY)] * 2)) for _ in range(2))
    results = [
        plan_driver.push([DriverRow(i, ((key,),)) for key in (k * step for k in range(MANY)) for i in (0, 1)])
        for plan_driver, step in ((driver, known), (other, 1))
    ]
    assert results[0] == results[1]
    assert [int(plan_driver.modules.classes[0, C_MAY_PASS]) for plan_driver in (driver, other)] == [MIXED, SPACED]
    assert slots_passed(driver.modules) <= 4 * MANY
    driver.modules.check()
    # Restored, the keys crowd again, and get other homes while they are adopted.
    restored = Modules(driver.graph)
    fill(restored, live_windows(driver.modules), required)
    assert restored.classes[0, [C_MAY_PASS, C_CROWDED]].tolist() == [MIXED, 0]
    restored.check()


def test_single_rows_pass_few_slots_too(known: int) -> None:
    driver, passed_by = PlanDriver(one_class([rows_window(MANY)] * 2)), []
    for k in range(1200):
        driver.push([DriverRow(0, ((k * known,),))])
        passed_by.append(slots_passed(driver.modules))
    assert driver.modules.classes[0, C_MAY_PASS] == MIXED
    # All keys before the one by which the directory noticed lie in a row.
    assert max(np.diff(passed_by)) <= SPARE + 1200 * 2 // 64 + SPACED + 1
    driver.modules.check()


def test_a_push_that_finds_no_memory_for_other_homes_changes_nothing(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = PlanDriver(one_class([rows_window(MANY)] * 2))
    driver.push([DriverRow(0, ((k,),)) for k in range(100)])
    before, rows = live_parts(driver.modules), [DriverRow(0, ((k * known,),)) for k in range(1000)]
    with monkeypatch.context() as patch:
        patch.setattr(Segments, "renewed", _no_memory)
        with pytest.raises(MemoryError):
            driver.push([*rows, *rows])
    assert live_parts(driver.modules) == before
    driver.modules.check()
    driver.push(rows)
    assert driver.modules.keys(0) == 1099
    driver.modules.check()


def _no_memory(*_: object) -> Segments:
    raise MemoryError


def test_keys_stay_where_they_are_found_through_many_hashes() -> None:
    driver = PlanDriver(one_class([rows_window(50)] * 2, 2))
    for push in range(40):
        driver.push([DriverRow(k % 2, ((k * push % 70, push),)) for k in range(60)])
        ids = key_ids(driver.modules, 0)
        driver.modules.renew_hash(0)
        assert key_ids(driver.modules, 0) == ids
        driver.modules.check()


# Strings


def _stirred(x: int, text: bytes) -> int:
    """Return what the hash that this library had made of a state and eight bytes."""
    x = (x ^ int.from_bytes(text, "little")) * GOLDEN % WORD
    return x ^ x >> 32


def _equal_before(k: int) -> bytes:
    """Return one of 2^64 strings that had the same hash, by their 24 bytes."""
    first = k.to_bytes(8, "little")
    return first + _stirred(24, first).to_bytes(8, "little") + bytes(8)


STRINGS: dict[str, Callable[[int], bytes]] = {
    "numbers": lambda k: b"%d" % k,
    "words of eight bytes": lambda k: k.to_bytes(8, "little"),
    "words, high bytes first": lambda k: k.to_bytes(8, "big"),
    "one hash before": _equal_before,
    "one byte in the middle": lambda k: bytes(k // 255) + bytes([1 + k % 255]) + bytes(40 - k // 255),
    "two bytes at the start": lambda k: k.to_bytes(2, "little") + b"x" * 30,
    "two bytes at the end": lambda k: b"x" * 30 + k.to_bytes(2, "little"),
    "lengths": bytes,
    "the first half undoes the second": lambda k: k.to_bytes(8, "little") * 2,
    "multiples of the inverse": lambda k: (k * INVERSE % WORD).to_bytes(8, "little"),
    "bits reversed": lambda k: int(f"{k:064b}"[::-1], 2).to_bytes(8, "little"),
}


@pytest.mark.parametrize("family", STRINGS)
def test_no_strings_crowd(family: str, drawn: int) -> None:
    texts = [STRINGS[family](k) for k in range(MANY)]
    directory = BytesDirectory()
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    ids = directory.intern(offsets, np.frombuffer(b"".join(texts) + b"\0", np.uint8), np.zeros(MANY, np.uint8))
    assert sorted(ids.tolist()) == list(range(MANY))
    arena = directory.arena
    assert len(set(arena.hashes[:MANY].tolist())) == MANY
    mask = len(arena.table) - 1
    slots = np.flatnonzero(arena.table >= 0)
    passed_by = (slots - arena.hashes[arena.table[slots]]) & mask
    assert passed_by.sum() <= 2 * MANY


def test_different_seeds_give_different_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "SOURCE", Random(1).randbytes)
    text, hashes = np.frombuffer(b"a key", np.uint8), set()
    for _ in range(8):
        directory = BytesDirectory()
        directory.intern(np.array([0, 5]), text, np.zeros(1, np.uint8))
        hashes.add(int(directory.arena.hashes[0]))
    factors = {int(Modules(one_class([rows_window(1)] * 2)).classes[0, C_FACTOR]) for _ in range(8)}
    assert (len(hashes), len(factors)) == (8, 8)


# Groups


@pytest.mark.parametrize("family", FAMILIES)
def test_no_groups_crowd(family: str, drawn: int) -> None:
    keys = np.array([(key, key >> 5) for key in _keys(family)])
    groups = SlotDirectory(2, 1)
    groups.write(keys, keys[:, :1], np.ones(len(keys), bool))
    table, hashes = groups._table, [hash_group(groups.keys, slot, groups._seeds) for slot in range(len(keys))]
    places = np.flatnonzero(table >= 0)
    assert ((places - np.array(hashes)[table[places]]) & (len(table) - 1)).sum() <= 2 * len(keys)


hash_group = callable_step(hash_of)


@pytest.mark.parametrize("left", [0, 1, 3, WORD - 1, GOLDEN, 1 << 63, 0xFFFFFFFF])
def test_folded_product(left: int) -> None:
    multiply = callable_step(folded_product)
    for right in (0, 1, 5, WORD - 1, INVERSE, 1 << 63, 0x100000001):
        product = left * right
        expected = (product ^ product >> 64) % WORD
        assert multiply(np.uint64(left), np.uint64(right)) == expected
        assert folded_plain(left, right) == expected

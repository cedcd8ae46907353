"""The directory of byte strings, compared with a dict of reference counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stairs.bytes_directory import FIRST_HEAP, FIRST_IDS, BytesDirectory
from stairs.checks.byte_strings import check_strings
from stairs.errors import StateError
from stairs.kernels.byte_strings import B_HEAP, same_bytes
from stairs.kernels.hashes import hash_bytes
from stairs.kernels.stable_hashes import hash_rows
from tests.stairs.driver import count_strings
from tests.stairs.steps import callable_step

NOTHING = np.zeros(0, np.int64)


def intern(directory: BytesDirectory, strings: Sequence[bytes | None], before: bytes = b"") -> list[int]:
    """Intern strings (None = a dead row) that follow some other bytes in a text."""
    texts = [text or b"" for text in strings]
    offsets = np.cumsum([len(before), *map(len, texts)]).astype(np.int64)
    text = np.frombuffer((before + b"".join(texts)) or b"\0", np.uint8)
    dead = np.array([text is None for text in strings], np.uint8)
    return directory.intern(offsets, text, dead).tolist()


def numbers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def test_equal_strings_have_one_id_and_dead_rows_have_zero() -> None:
    directory = BytesDirectory()
    assert intern(directory, [b"ab", b"cd", b"ab", None, b"", b"abc"], before=b"xyz") == [0, 1, 0, 0, 2, 3]
    assert count_strings(directory) == 4
    directory.settle(numbers([0, 1, 2, 3]))
    check_strings(directory.arena)


def test_what_no_key_contains_is_forgotten_when_the_push_ends() -> None:
    directory = BytesDirectory()
    a, b = intern(directory, [b"a", b"b"])
    directory.settle(numbers([b]))
    assert count_strings(directory) == 1
    check_strings(directory.arena)
    # The id of the forgotten string is recycled.
    assert intern(directory, [b"b", b"c"]) == [b, a]
    directory.settle(numbers([a]))
    check_strings(directory.arena)


def test_a_string_lives_as_long_as_the_last_key_that_contains_it() -> None:
    directory = BytesDirectory()
    (a,) = intern(directory, [b"a"])
    directory.settle(numbers([a, a]))
    directory.release(numbers([a]))
    assert count_strings(directory) == 1
    directory.release(numbers([a]))
    assert count_strings(directory) == 0
    check_strings(directory.arena)


def test_strings_of_one_push_outgrow_ids_and_heap() -> None:
    directory = BytesDirectory()
    strings = [b"%d " % k * 50 for k in range(20 * FIRST_IDS)]
    ids = intern(directory, strings)
    assert ids == list(range(len(strings)))
    directory.settle(numbers(ids))
    check_strings(directory.arena)
    assert intern(directory, strings[::-1]) == ids[::-1]
    assert directory.nbytes >= sum(map(len, strings))


def test_one_string_larger_than_the_heap() -> None:
    directory = BytesDirectory()
    (big,) = intern(directory, [b"z" * (5 * FIRST_HEAP)])
    directory.settle(numbers([big]))
    check_strings(directory.arena)
    assert intern(directory, [b"z" * (5 * FIRST_HEAP)]) == [big]


def test_the_heap_is_compacted_rather_than_grown_while_most_of_it_is_dead() -> None:
    directory = BytesDirectory()
    bytes_after_first = 0
    for turn in range(200):
        strings = [b"turn %d, string %d" % (turn, k) for k in range(20)]
        ids = intern(directory, strings)
        directory.settle(numbers(ids))
        check_strings(directory.arena)
        bytes_after_first = bytes_after_first or directory.nbytes
        directory.release(numbers(ids))
        check_strings(directory.arena)
    assert count_strings(directory) == 0
    assert directory.nbytes <= 2 * bytes_after_first


def test_ids_taken_back_close_gaps_of_a_crowded_table() -> None:
    # A table has two slots per id; with all ids in use, probe sequences are long and deletions move entries back.
    directory = BytesDirectory()
    strings = [b"%d" % k for k in range(8 * FIRST_IDS)]
    ids = intern(directory, strings)
    directory.settle(numbers(ids))
    for k in (*range(0, len(ids), 3), *range(1, len(ids), 3)):
        directory.release(numbers([ids[k]]))
    check_strings(directory.arena)
    kept = list(range(2, len(ids), 3))
    assert intern(directory, [strings[k] for k in kept]) == [ids[k] for k in kept]


def test_check_names_what_is_wrong() -> None:
    directory = BytesDirectory()
    ids = intern(directory, [b"a", b"b"])
    with pytest.raises(StateError, match=r"strings \[0, 1\] have no user"):
        check_strings(directory.arena)
    directory.settle(numbers(ids))
    directory.arena.meta[B_HEAP] += 1
    with pytest.raises(StateError, match="2 are live"):
        check_strings(directory.arena)


class DirectoryMachine(RuleBasedStateMachine):
    """Pushes that add keys, pushes that fail, and keys that die: the directory has exactly the strings of live keys."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = BytesDirectory()
        self.users: Counter[bytes] = Counter()
        self.ids: dict[bytes, int] = {}

    @rule(
        drawn=st.lists(st.one_of(st.none(), st.binary(max_size=3), st.integers(0, 300).map(b"%030d".__mod__))),
        keys=st.lists(st.integers(0, 10**6), max_size=30),
        repeat=st.sampled_from([1, 1, 40]),
    )
    def push(self, drawn: list[bytes | None], keys: list[int], repeat: int) -> None:
        rows = [None if text is None else text + b"%d" % k if k else text for k in range(repeat) for text in drawn]
        ids = intern(self.directory, rows, before=b"--")
        known: dict[bytes, int] = {}
        for text, number in zip(rows, ids, strict=True):
            if text is None:
                assert number == 0
            else:
                assert known.setdefault(text, number) == number
                assert self.ids.get(text, number) == number
        assert len(set(known.values())) == len(known)
        taken = set(known.values()) & {self.ids[text] for text in self.ids.keys() - known.keys()}
        assert not taken, f"ids {taken} stand for two strings"
        living = sorted(known)
        used = [living[k % len(living)] for k in keys] if living else []
        self.directory.settle(numbers([known[text] for text in used]))
        self.users.update(used)
        self.ids.update({text: known[text] for text in used})

    @rule(picks=st.lists(st.integers(0, 10**6), max_size=30))
    def release(self, picks: list[int]) -> None:
        gone: list[int] = []
        for pick in picks:
            living = sorted(self.users.elements())
            if living:
                text = living[pick % len(living)]
                gone.append(self.ids[text])
                self.users[text] -= 1
                if not self.users[text]:
                    del self.users[text], self.ids[text]
        self.directory.release(numbers(gone))

    @invariant()
    def knows_the_strings_in_use(self) -> None:
        check_strings(self.directory.arena)
        assert count_strings(self.directory) == len(self.ids)


TestStrings = DirectoryMachine.TestCase
TestStrings.settings = settings(max_examples=60, stateful_step_count=12)


SEEDS = (0x0123456789ABCDEF, 0x7EDCBA9876543211)


@pytest.mark.campaign(14)
@pytest.mark.parametrize("size", [*range(34), 63, 64, 65])
def test_each_byte_of_a_string_counts(size: int) -> None:
    """Strings are read in words of eight bytes; the copies lie at other distances from a multiple of eight."""
    string = bytes(range(65, 65 + size))
    others = [string[:k] + bytes([string[k] ^ 1]) + string[k + 1 :] for k in range(size)] + [
        string + b"\0",
        string[:-1],
    ]
    texts = [string, b"x", string, *others]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    text = np.frombuffer(b"".join(texts) + b"\0", np.uint8).copy()
    hashes = np.zeros(len(texts), np.int64)
    address, equal, keyed = text.ctypes.data, callable_step(same_bytes), callable_step(hash_bytes)
    hash_rows(offsets, text, hashes)
    keyed_hashes = [keyed(address + at, len(piece), *SEEDS) for at, piece in zip(offsets.tolist(), texts, strict=False)]
    for hashed in (hashes.tolist(), keyed_hashes):
        assert hashed[0] == hashed[2]
        assert len(set(hashed)) == len(set(texts))
    for at, other in zip(offsets.tolist(), texts, strict=False):
        if len(other) == size:
            assert equal(address, address + at, size) == (other == string)

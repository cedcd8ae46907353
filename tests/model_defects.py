"""Mistakes that a test beside a model of its own finds, for `tests/test_mutations.py`."""

from __future__ import annotations

from typing import NamedTuple

from tests.defects import Edit


class Model(NamedTuple):
    """A test, and mistakes that it finds.

    files     with the test in the first one, and those that it imports
    test      name of the test, a function without further arguments
    examples  number of examples that it draws, unless it has a number of its own
    defects   the mistakes by their description
    """

    files: tuple[str, ...]
    test: str
    examples: int
    defects: dict[str, Edit]


_LEDGER_DEFECTS = {
    "of two stored options of a row, the second stays": Edit(
        "stairs/kernels/ledger.py", "advance = following < 0", "advance = False"
    ),
    "an option that ended is never used again": Edit(
        "stairs/kernels/ledger.py",
        "    put(book, OPTIONS, o, book.counters[N_FREE_OPTIONS])\n    book.counters[N_FREE_OPTIONS] = o\n",
        "    pass\n",
    ),
    "a push that failed leaves its options": Edit(
        "stairs/kernels/book.py", "            book.entries[u64(x)] = old", "            pass"
    ),
    "a row has a partner again for each further one": Edit(
        "stairs/kernels/ledger.py",
        "elif how == SEMI and count == 0:\n        emit(book, 1",
        "elif how == SEMI:\n        emit(book, 1",
    ),
    "the tuples of stored options may be forgotten": Edit(
        "stairs/kernels/book.py", "number = book.options[u64(o + 1 + i)]", "number = np.int64(-1)"
    ),
}

_RINGS = "eddy/aggregates/ring_kernels.py"
_RING_DEFECTS = {
    "what leaves its window is not taken back": Edit(
        "eddy/aggregates/follow_kernels.py",
        "            add_tuples(arena, ring, v, before, min(low, last), np.int64(-1))\n",
        "",
    ),
    "a row that is known misses a change": Edit(
        _RINGS, "if not empty and ring.values[u64(to)] != UNKNOWN:", "if False:"
    ),
    "a sum of several limbs loses what is carried": Edit(_RINGS, "over = value >> LIMB", "over = np.int64(0)"),
    "a child's sum is not scaled by the counts of the others": Edit(
        _RINGS, "factor = times(ring, total // ring.values[u64(start)], count)", "factor = count"
    ),
    "a row is computed over tuples that were not taken yet": Edit(
        _RINGS, "if t < ring.bounds[u64(w), B_NEXT]:", "if True:"
    ),
    "what has left its window leaves again": Edit(_RINGS, "        ring.bounds[u64(v), B_LOW] = low\n", ""),
    "rows stay known while joined rows are enumerated": Edit("eddy/join/join.py", "        self.rings.release()\n", ""),
    "states that slept are taken for complete": Edit("eddy/join/join.py", "if self.strategy.stairs:", "if False:"),
}

_TREE = "eddy/spark/partitioning/split_tree.py"
_FRAGMENT_DEFECTS = {
    "a row that is dealt to one fragment is in those before it as well": Edit(
        "eddy/spark/partitioning/fragments.py", "coordinate == np.uint64(part)", "coordinate >= np.uint64(part)"
    ),
    "rows of all streams are dealt": Edit(
        _TREE, "    if dealt is not None and dealt.stream != stream:\n        dealt = None\n", ""
    ),
    "a late row counts in each fragment that has a copy": Edit(_TREE, " and self.is_place(group))", " and False)"),
}

_TIMES = "stairs/kernels/one_key_times.py"
_ONE_KEY_DEFECTS = {
    "marks of event times forget that arrivals may be late": Edit(
        _TIMES, "greatest + meta[M_BEHIND] - size", "greatest - size"
    ),
    "tuples that are too old for new arrivals are so for late ones": Edit(
        _TIMES, "gone if least >= before else low", "gone"
    ),
    "arrivals of one block are never too old for each other": Edit(
        _TIMES, "hold &= least >= greatest - size", "hold &= True"
    ),
}

_MARK_DEFECTS = {
    "lists too long to be marked count for what a mark is worth": Edit(
        "stairs/kernels/learning.py", "min(caused // size, listed * caused // (marks * found))", "caused // size"
    ),
    "what followed lists too long to be marked counts for what a mark is worth": Edit(
        "stairs/kernels/learning.py", "listed * caused // (marks * found)", "listed // marks + (caused - found) // size"
    ),
}

MODELS = {
    "joins on one key": Model(
        ("tests/stairs/test_one_key.py", "tests/stairs/driver.py", "tests/stairs/steps.py"),
        "test_event_times_decide_as_in_the_model",
        12,
        _ONE_KEY_DEFECTS,
    ),
    "ledgers": Model(
        ("tests/stairs/test_ledger.py", "tests/stairs/held.py"),
        "test_rows_are_those_of_the_model",
        30,
        _LEDGER_DEFECTS,
    ),
    "aggregates": Model(
        (
            "tests/eddy/test_aggregates_rings.py",
            "tests/eddy/test_aggregates_running.py",
            "tests/eddy/drawn_aggregates.py",
            "tests/tracing.py",
        ),
        "test_groups_are_those_of_the_oracle_through_switches",
        100,
        _RING_DEFECTS,
    ),
    "no-good marks": Model(
        ("tests/eddy/test_marks.py", "tests/eddy/live_engines.py", "tests/cases.py", "tests/key_types.py"),
        "test_a_list_too_long_to_be_marked_does_not_count_for_what_a_mark_is_worth",
        1,
        _MARK_DEFECTS,
    ),
    "rests of learning": Model(
        ("tests/eddy/test_marks.py", "tests/eddy/live_engines.py", "tests/cases.py", "tests/key_types.py"),
        "test_matches_in_vain_shorten_a_rest",
        1,
        {"a rest takes its time however much is in vain": Edit("stairs/kernels/learning.py", "vain > VAIN", "False")},
    ),
    "marks that carry others": Model(
        ("tests/eddy/test_marks.py", "tests/eddy/live_engines.py", "tests/cases.py", "tests/key_types.py"),
        "test_learning_goes_on_where_the_marks_of_other_attributes_rest_on_marks",
        1,
        {
            "a mark on which others rest is worth its own hits": Edit(
                "stairs/kernels/learning.py", "support >= 0", "False"
            )
        },
    ),
    "key groups on spark": Model(
        ("tests/spark/test_split_tree.py",),
        "test_each_result_meets_in_one_group_whenever_its_rows_were_written",
        40,
        _FRAGMENT_DEFECTS,
    ),
}

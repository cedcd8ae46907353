"""Mistakes that a test beside a model of its own finds, for `tests/test_mutations.py`."""

from __future__ import annotations

from typing import NamedTuple

from tests.defects import Edit


class ModelTest(NamedTuple):
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
        "    put(ledger, OPTIONS, o, ledger.counters[N_FREED])\n    ledger.counters[N_FREED] = o\n",
        "    pass\n",
    ),
    "an option that ended is used again in the same push": Edit(
        "stairs/kernels/ledger.py",
        "    put(ledger, OPTIONS, o, ledger.counters[N_FREED])\n    ledger.counters[N_FREED] = o\n",
        "    put(ledger, OPTIONS, o, ledger.counters[N_FREE_OPTIONS])\n    ledger.counters[N_FREE_OPTIONS] = o\n",
    ),
    "an option that replaces another one is not stored": Edit(
        "stairs/kernels/ledger.py", "put(ledger, OPTIONS, o + 1 + i, flat[u64(new + i)])", "pass"
    ),
    "a new entry puts its rows out at once, and at the end": Edit(
        "stairs/kernels/ledger.py", "(ledger.entries[u64(e + F_SERIAL)] >= ledger.counters[N_FRESH])", "(e < 0)"
    ),
    "an entry that left keeps the rows without an option": Edit(
        "stairs/kernels/ledger.py", "put(ledger, ENTRIES, branch_at(e, 0) + B_DONE, 0)", "pass"
    ),
    "a push that failed leaves its options": Edit(
        "stairs/kernels/ledger_arrays.py", "            ledger.entries[u64(x)] = old", "            pass"
    ),
    "a row has a partner again for each further one": Edit(
        "stairs/kernels/ledger.py",
        "elif shown and how == SEMI and count == 0:\n        emit(ledger, 1",
        "elif shown and how == SEMI:\n        emit(ledger, 1",
    ),
    "the tuples of stored options may be forgotten": Edit(
        "stairs/kernels/ledger_arrays.py", "number = ledger.options[u64(o + 1 + i)]", "number = np.int64(-1)"
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

_WORDS, _ONE_KEY = "stairs/kernels/presence.py", "stairs/kernels/one_key.py"
_PRESENCE_DEFECTS = {
    "tuples that return to their window after an undo have no bits": Edit(
        "stairs/kernels/arena.py", "set_bits(arena, i, before[i, S_LO], streams[i, S_LO])", "set_bits(arena, i, 0, 0)"
    ),
    "tuples that return to their window within a push have no bits": Edit(
        _ONE_KEY, "set_bits(arena, j, low, streams[u64(j), S_LO])", "set_bits(arena, j, low, low)"
    ),
    "an arrival looks at the partners of another one": Edit(
        "stairs/kernels/one_key_results.py", "is_several(walk, half, entry, j)", "is_several(walk, half, 0, j)"
    ),
    "a later arrival decides whether older partners are left": Edit(
        _WORDS, " and arena.heads[u64(row + j)] == newest:", ":"
    ),
    "of two tuples the older one does not count at the edge of its window": Edit(
        _ONE_KEY, "arrive(arena, kid, half, i, older >= low)", "arrive(arena, kid, half, i, older > low)"
    ),
    "words that another kernel did not keep are believed": Edit(_WORDS, "if arena.meta[M_PRESENCE] == 0:", "if False:"),
    "nobody says that another kernel does not keep the words": Edit(
        "stairs/modules.py", "if kernel is not push_one_key:", "if False:"
    ),
    "the oldest tuple of a window counts as gone": Edit(
        _WORDS, "< arena.streams[u64(j), S_LO]) << (j & 63)", "<= arena.streams[u64(j), S_LO]) << (j & 63)"
    ),
}

_MARK_DEFECTS = {
    "lists too long to be marked count for what a mark is worth": Edit(
        "stairs/kernels/learning.py", "min(caused // size, listed * caused // (marks * matches))", "caused // size"
    ),
    "what followed lists too long to be marked counts for what a mark is worth": Edit(
        "stairs/kernels/learning.py",
        "listed * caused // (marks * matches)",
        "listed // marks + (caused - matches) // size",
    ),
}

_TREAP, _RANKS = "eddy/tops/treap.py", "eddy/tops/kernels.py"
_FOREST, _RANKED = "eddy/tops/forest.py", "eddy/tops/ranked.py"
_TOP_DEFECTS = {
    "nulls are last also where they come first": Edit(_RANKED, "        words[:, -1] ^= self._turned\n", ""),
    "a descending column is ascending": Edit(_TREAP, "return -order if kind & DESCENDING else order", "return order"),
    "texts are ordered by when they came": Edit(_TREAP, "if kind & TEXT:", "if False:"),
    "arrival numbers do not decide": Edit(
        _TREAP, "for k in range(columns + 1, words.shape[1]):", "for k in range(columns + 1, columns + 1):"
    ),
    "a row that comes after the edge is dropped where rows may leave": Edit(
        _FOREST, "        if self.most:\n", "        if True:\n"
    ),
    "a row that leaves behind the edge changes the answer": Edit(
        _RANKS, "qualifies = edge < 0 or compare(trees, texts, words, row, edge) <= 0", "qualifies = edge < 0"
    ),
    "a tree keeps more rows than it needs": Edit(
        _RANKS, "        if last >= 0:\n            remove(trees, texts, roots, group, last)\n", ""
    ),
    "a group without rows stays": Edit(_FOREST, "        self._remove(commit.emptied)\n", ""),
    "the sizes of subtrees keep those that have left": Edit(
        _TREAP, "nodes[u64(at), SIZE] -= 1", "nodes[u64(at), SIZE] -= 0"
    ),
    "a row has the columns of another one": Edit(
        _FOREST, "        trees.nodes[nodes, ROW] = np.arange(first, first + len(nodes))\n", ""
    ),
    "a pair of equal rows is put out": Edit(
        "eddy/tops/tops.py", "        kept[before[same]] = kept[before[same] + 1] = False\n", ""
    ),
    "the first groups miss that a group has ended": Edit(
        "eddy/pipeline/pipeline.py", "if query.ranking is not None and takes_back(options.output)", "if False"
    ),
}

_VERSIONS, _CHUNK, _COMPACT = "stairs/kernels/versions.py", "stairs/kernels/chunk.py", "stairs/versions.py"
_TABLE_FILES = "tests/eddy/test_tables.py", "tests/eddy/live_engines.py"
_CHANGES, _ENVELOPES = "eddy/ingest/changes.py", "eddy/ingest/envelopes.py"
_TABLE_DEFECTS = {
    "a replaced version takes no result back": Edit(
        _CHUNK, "if ended >= 0 and life_of(arena, i, ended) != DEAD:", "if False:"
    ),
    "tuple at a time, a replaced version takes no result back": Edit(
        "stairs/kernels/one_by_one.py", "if ended >= 0 and life_of(arena, i, ended) != DEAD:", "if False:"
    ),
    "a version that ends in a chunk is seen until the chunk ends": Edit(
        _CHUNK, "return life_of(arena, j, s) < place", "return False"
    ),
    "a version that ends in a chunk is not seen before its end": Edit(
        _CHUNK, "return life_of(arena, j, s) < place", "return life_of(arena, j, s) < (1 << 31) - 1"
    ),
    "the older neighbour of a buried version keeps it": Edit(
        _VERSIONS, "            recs[u64(newer_at(arena, i, x, older))] = newer", "            pass"
    ),
    "a buried version stays the head of its chain": Edit(
        _VERSIONS, "arena.heads[p] = MARKED - older if marked and older >= 0 else older", "pass"
    ),
    "an undo leaves buried versions dead": Edit(_VERSIONS, "if life_of(arena, i, ended) == DEAD:", "if False:"),
    "an undo unlinks later versions after it has linked earlier ones": Edit(
        _VERSIONS, "                unlink_from(arena, i, buried, end)\n                end = min(end, buried)\n", ""
    ),
    "links keep the numbers of before a compaction": Edit(
        _VERSIONS, "            recs[u64(at)] = to[u64(older - low)]\n", "            pass\n"
    ),
    "heads keep the numbers of before a compaction": Edit(
        _VERSIONS, "arena.heads[u64(head_of(arena, x, record))] = to[u64(s - low)]", "pass"
    ),
    "values stay where they are in a compaction": Edit(
        _VERSIONS, "values[u64(start + (new & row[S_MASK]))] = values[u64(start + (s & row[S_MASK]))]", "pass"
    ),
    "caches keep the numbers of before a compaction": Edit(_COMPACT, "        cache.moved(move)\n", "        pass\n"),
    "the payload stays where it is in a compaction": Edit(
        "eddy/join/payload_room.py", "if modules.moves != payload.moves:", "if False:"
    ),
    "versions of a snapshot are dead": Edit(
        "stairs/kernels/snapshot.py", "            set_life(arena, i, s, ALIVE)\n", ""
    ),
    "a -U is a change": Edit(_CHANGES, "        if implied.any():", "        if False:"),
    "the first change of a key arrives in an atomic push": Edit(
        _CHANGES, 'aggregate([("n", "max")])', 'aggregate([("n", "min")]).rename_columns([*names, "n_max"])'
    ),
    "a result that a change takes back has no sign in its group": Edit(
        "eddy/aggregates/groups.py", "signs[np.asarray(deleted.cast", "signs[:0 * np.asarray(deleted.cast"
    ),
}

_TWIN_DEFECTS = {
    "a change that moves a row takes back what the new row gives": Edit(
        _CHUNK, "same and arena.recs[u64(before + offset)] == arena.recs[u64(after + offset)]", "same"
    ),
    "a change of a compared value takes back what the new row gives": Edit(
        _CHUNK, "same and arena.values[u64(ring + (old & mask))] == arena.values[u64(ring + (new & mask))]", "same"
    ),
}
_ONE_STEP_DEFECTS = {
    "what comes and goes within an atomic push has rows": Edit(
        "stairs/kernels/net_results.py", "if before >= 0 and signs[u64(before)] != GONE:", "if False:"
    ),
    "what is loaded is never deleted": Edit(
        "eddy/ingest/gate.py", "state, deletes=deletes, newest=fresh)", "state, newest=fresh)"
    ),
}

_FINAL_DEFECTS = {
    "a departure takes final results back": Edit(
        "stairs/kernels/levels.py", "if streams[i, S_LIFE] > 0 or arena.meta[M_CHANGELOG] != ENDS", "if True"
    ),
    "the end of a version takes no final results back": Edit(
        "stairs/kernels/levels.py", "if streams[i, S_LIFE] > 0 or arena.meta[M_CHANGELOG] != ENDS", "if False"
    ),
    "tuple at a time, a departure takes final results back": Edit(
        "stairs/kernels/one_by_one.py", "if arena.meta[M_CHANGELOG] != ENDS:", "if True:"
    ),
}
"""Found by the test of tables."""

_FINAL_RING_DEFECTS = {
    "ring values of final results are those of the windows": Edit(
        "eddy/aggregates/rings.py", "groups.query.lasting or not groups.changelog", "not groups.changelog"
    ),
}

_FINAL_BRANCH_DEFECTS = {
    "a row of the core that leaves takes back what it had": Edit(
        "eddy/partners/tree.py", "ends = self.changelog and not self.final", "ends = self.changelog"
    ),
    "a ledger keeps the matches of final rows": Edit(
        "eddy/partners/tree.py", "if self.ledger is not None and self.final:", "if False:"
    ),
    "what the ledger gives when it forgets is put out": Edit(
        "eddy/partners/tree.py",
        """        rows = PartnerRows(*self.ledger.put_out())
        if self.changelog and self.final:
            self._release(pushed)
""",
        """        if self.changelog and self.final and len(self.node.path) == 1:
            self.ledger.leave(self._rows(self.node.path[0], pushed.alone[self.node.path[0]][1]))
        rows = PartnerRows(*self.ledger.put_out())
""",
    ),
}

_TABLE_STATE_DEFECTS = {
    "the death of a version in a stored entry is ignored": Edit(
        "stairs/kernels/hop.py", "    return at > 0 and arena", "    return at < 0 and arena"
    ),
}

_DEBEZIUM_DEFECTS = {
    "a row whose key moves keeps its old key as well": Edit(
        _ENVELOPES, "moved = upserts & before.known", "moved = upserts & before.known & False"
    ),
    "each upsert with a row before deletes its key first": Edit(
        _ENVELOPES, "moved[moved] = self._differs(before.of(moved), after.of(moved))", "pass"
    ),
    "the delete of a key that moves follows its upsert": Edit(
        _ENVELOPES, "[2 * of_old, 2 * of_new + 1]", "[2 * of_old + 1, 2 * of_new]"
    ),
    "a message without a value is none": Edit(_ENVELOPES, " | (valueless & ~skipped)", ""),
    "the order of a push counts changes, not envelopes": Edit(
        _CHANGES, "repeats[order == i] = np.bincount(changes.sources, minlength=changes.pushed)", "pass"
    ),
}

_TABLE_MARK_DEFECTS = {
    "a walk of a chain ends at an ended version": Edit(
        "stairs/kernels/levels.py",
        "if streams[j, S_LIFE] == 0:\n                    break\n                seen = False\n            if seen and",
        "if True:\n                    break\n                seen = False\n            if seen and",
    ),
    "a marked list loses its mark with its newest version": Edit(
        _VERSIONS, "MARKED - older if marked and older >= 0 else older", "older"
    ),
    "the mark of a list that becomes empty is counted on": Edit(_VERSIONS, "if marked and older < 0:", "if False:"),
    "a combination is dropped because the newest version of its key has ended": Edit(
        _CHUNK, "        if row[S_LIFE] == 0:\n            return np.int64(-1)", "        return np.int64(-1)"
    ),
}

_VERSIONS = "eddy/partners/version_kernels.py"
_AS_OF_DEFECTS = {
    "of two versions with one time, the first one counts": Edit(
        _VERSIONS,
        "while at >= 0 and times[u64(at)] > time:\n            newer",
        "while at >= 0 and times[u64(at)] >= time:\n            newer",
    ),
    "the version that is valid at the oldest time is forgotten": Edit(
        _VERSIONS,
        "if at >= 0 and gone[u64(at)] == 0:\n            distance",
        "if at < -9 and gone[u64(at)] == 0:\n            distance",
    ),
    "a version that another one hides is found ahead": Edit(
        _VERSIONS, "(passed < 0 or times[u64(passed)] != times[u64(at)]) and gone", "gone"
    ),
    "of two equally near versions, the later one is taken": Edit(
        _VERSIONS,
        "time - times[u64(valid)] <= times[u64(later)] - time",
        "time - times[u64(valid)] < times[u64(later)] - time",
    ),
    "a row waits for no version ahead": Edit("eddy/partners/as_of_joins.py", "times + join.ahead", "times"),
    "versions are forgotten that rows in windows may get": Edit(
        "eddy/partners/as_of_joins.py",
        "return int(kept.min(initial=self.watermark))",
        "return self.watermark",
    ),
    "a row comes with the watermark and not after it": Edit(
        "eddy/partners/waiting.py",
        "np.searchsorted(run.due, watermark)",
        'np.searchsorted(run.due, watermark, side="right")',
    ),
    "a row without a key has the version of another one": Edit(
        "eddy/partners/version_log.py", "        slots[dead != 0] = -1\n", ""
    ),
    "strings of keys are forgotten": Edit("eddy/partners/version_log.py", "            self._settle_texts(keys)\n", ""),
    "rows that wait lose their payload": Edit(
        "eddy/partners/partners.py", "            self.as_of.lower(lows)", "            pass"
    ),
    "a look-up finds the row after the push": Edit(
        "eddy/partners/as_of_joins.py", "return sum(firsts) + came", "return sum(firsts) + came + len(order)"
    ),
    "a row had the version that takes it over": Edit(
        "eddy/partners/as_of_joins.py", "[log.settled for log in self.logs]", "[]"
    ),
    "a row that has ended gets new versions": Edit(
        "eddy/partners/as_of_joins.py",
        "kept = np.flatnonzero(net_signs(affected) > 0)",
        "kept = np.flatnonzero(affected.signs)",
    ),
    "a version takes over no row after it": Edit(
        "eddy/partners/version_log.py", "            spans[order - first, 1] = until - 1\n", "            pass\n"
    ),
    "a version takes over no row before it": Edit(
        "eddy/partners/version_log.py", "            spans[:, 0] -= self._tolerance\n", "            pass\n"
    ),
    "rows have the numbers that they had before others left": Edit(
        "eddy/partners/waiting.py", "np.unique(np.concatenate(parts)) - self.first", "np.unique(np.concatenate(parts))"
    ),
}

_TABLE_BRANCH_DEFECTS = {
    "a version is looked up by its arrival number after others have left": Edit(
        "eddy/partners/row_store.py",
        "any_absent = to_sequence_numbers(self._places(rows),",
        "any_absent = to_sequence_numbers(rows,",
    ),
    "versions that have left keep their places": Edit(
        "eddy/partners/row_store.py", "payload.follow(VersionMove(i, low, to, first), 0)", "pass"
    ),
    "an update is a delete and an insert": Edit(
        "eddy/partners/rows.py", "before[new[previous >= 0], i] = previous[previous >= 0]", "pass"
    ),
    "the join of a branch takes deletes for upserts": Edit(
        "eddy/ingest/arrivals.py", "for k, i in enumerate(streams) if i in self.deletes", "for k, i in ()"
    ),
    "all changes of a key arrive": Edit(
        "eddy/pipeline/push.py",
        "atomic = atomic or (pipeline.partners is not None and bool(pipeline.partners.tables))",
        "pass",
    ),
    "a row that replaces another one ends": Edit(
        "eddy/partners/rows.py", 'pc.starts_with(ops, "+")', 'pc.equal(ops, "+I")'
    ),
}

_RESULT_KEY_DEFECTS = {
    "one column of a key is enough to determine a table": Edit(
        "eddy/query/determined.py", "if all(names & known for names in sources[source])", "if [*sources[source]]"
    ),
    "the first row of a key is left": Edit(
        "eddy/results/results.py", "    return last[kept], last_signs[kept]", "    return first[kept], last_signs[kept]"
    ),
    "a row that has another partner is new": Edit(
        "eddy/results/results.py",
        "np.where(stands, np.where(stood, UPDATED_TO, INSERTED), DELETED)",
        "np.where(stands, INSERTED, DELETED)",
    ),
}
_KEY_LACKS_DEFECTS = {
    "tables of a full join determine each other": Edit(
        "eddy/query/determined.py", "frozenset[Place]() if _full(query) else keys[table][column]", "keys[table][column]"
    ),
    "a column of a table determines the table": Edit(
        "eddy/query/determined.py", "return (table, column) in columns", "return table in {one for one, _ in columns}"
    ),
}
_MATCH_DEFECTS = {
    "matches get new serial numbers, and are found by the old ones": Edit(
        "stairs/ledger.py", "whole[:live, F_SERIAL] = np.arange(live)", "pass"
    ),
    "matches of tables that were renumbered are not found": Edit(
        "stairs/ledger.py",
        "        relink(arrays, arrays.entries)\n        self.arrays = arrays\n\n    def _unused",
        "        self.arrays = arrays\n\n    def _unused",
    ),
}

_TABLE_BRANCH_FILES = (
    "tests/eddy/test_branches_of_tables.py",
    "tests/eddy/test_branches.py",
    "tests/eddy/drawn_branches.py",
    "tests/eddy/opened_files.py",
    "tests/eddy/test_interrupts.py",
    "tests/eddy/test_failed_push.py",
    "tests/tracing.py",
    "tests/cases.py",
    "tests/key_types.py",
)


_ENGINE_TABLE_DEFECTS = {
    "a query that starts does not see its tables": Edit(
        "eddy/queries/lone_join.py", "self.names if warm else self._keyed, 0)", "self.names if warm else [], 0)"
    ),
    "a handover takes nothing back": Edit(
        "eddy/queries/lone_join.py", "[other.answer(push, start, kept) for other in replaced]", "[]"
    ),
    "a handover takes rows back that the old version has not seen": Edit(
        "eddy/queries/lone_join.py", "0 if self.version.warm else self.version.complete_from", "0"
    ),
    "the rows of a table that a start has read are not kept": Edit(
        "eddy/queries/kept.py", "deque([_Chunk(rows, self.end, None, None, {})] if len(rows) else [])", "deque()"
    ),
    "the rows of a push before a start are not seen": Edit(
        "eddy/queries/lone_join.py", ".rows(), now.get(name)) if", ".rows(),) if"
    ),
    "a handover gives the old answer again": Edit(
        "eddy/queries/handover.py", 'pc.if_else(begins, "-D", "+I")', 'pc.if_else(begins, "+I", "-D")'
    ),
    "the tables of branches are read as they were given": Edit(
        "eddy/query/query.py", "other.tree = self.tree.with_inputs(inputs)", "pass"
    ),
    "a restored version begins again": Edit(
        "eddy/queries/lone_join.py",
        "self.runtime, self.begun = self._bound.cover(runtime), begun",
        "self.runtime = self._bound.cover(runtime)",
    ),
}

_WARM_DEFECTS = {
    "a warm start does without the rows that no filter let in": Edit(
        "eddy/queries/joins.py",
        "family.complete_from > self._kept_from(family.names) or not family.whole",
        "family.complete_from > self._kept_from(family.names)",
    ),
}
MODELS = {
    "warm starts": ModelTest(
        ("tests/eddy/test_engine_pause.py",),
        "test_a_handover_has_the_rows_that_no_filter_let_in",
        1,
        _WARM_DEFECTS,
    ),
    "branches of tables": ModelTest(
        _TABLE_BRANCH_FILES,
        "test_dead_versions_leave_what_is_kept",
        1,
        _TABLE_BRANCH_DEFECTS,
    ),
    "final rows of branches": ModelTest(
        _TABLE_BRANCH_FILES, "test_final_rows_follow_the_oracle", 1, _FINAL_BRANCH_DEFECTS
    ),
    "keys that identify results": ModelTest(
        _TABLE_BRANCH_FILES, "test_which_columns_identify_a_result", 1, _KEY_LACKS_DEFECTS
    ),
    "keys of results": ModelTest(_TABLE_BRANCH_FILES, "test_upserts_by_the_keys_of_tables", 1, _RESULT_KEY_DEFECTS),
    "matches of tables": ModelTest(
        _TABLE_BRANCH_FILES, "test_what_is_kept_has_the_size_that_living_versions_need", 1, _MATCH_DEFECTS
    ),
    "tables in engines": ModelTest(
        (
            "tests/eddy/test_engine_tables.py",
            "tests/eddy/answers.py",
            "tests/eddy/test_interrupts.py",
            "tests/eddy/test_failed_push.py",
            "tests/tracing.py",
            "tests/cases.py",
            "tests/key_types.py",
        ),
        "test_queries_follow_their_answers",
        1,
        _ENGINE_TABLE_DEFECTS,
    ),
    "stored states of tables": ModelTest(
        (
            "tests/eddy/test_tables_interrupted.py",
            "tests/eddy/test_interrupts.py",
            "tests/eddy/test_failed_push.py",
            "tests/tracing.py",
            "tests/cases.py",
            "tests/key_types.py",
        ),
        "test_the_answer_follows_the_oracle_under_each_strategy",
        1,
        _TABLE_STATE_DEFECTS,
    ),
    "envelopes of Debezium": ModelTest(
        ("tests/eddy/test_debezium.py",),
        "test_envelopes_do_what_the_deletes_and_upserts_do_that_they_stand_for",
        60,
        _DEBEZIUM_DEFECTS,
    ),
    "first rows": ModelTest(
        ("tests/eddy/test_tops.py", "tests/eddy/live_engines.py"),
        "test_changes_are_those_of_the_oracle",
        400,
        _TOP_DEFECTS,
    ),
    "no-good marks of tables": ModelTest(
        _TABLE_FILES,
        "test_no_good_marks_follow_the_changes_of_tables",
        1,
        _TABLE_MARK_DEFECTS,
    ),
    "tables": ModelTest(
        _TABLE_FILES,
        "test_any_changes_in_any_order",
        900,
        _TABLE_DEFECTS | _FINAL_DEFECTS,
    ),
    "changes of values": ModelTest(_TABLE_FILES, "test_changes_of_what_the_join_reads", 1, _TWIN_DEFECTS),
    "changes in one step": ModelTest(
        _TABLE_FILES, "test_what_comes_and_goes_in_one_step_leaves_nothing", 1, _ONE_STEP_DEFECTS
    ),
    "joins on one key": ModelTest(
        ("tests/stairs/test_one_key.py", "tests/stairs/driver.py", "tests/stairs/steps.py"),
        "test_event_times_decide_as_in_the_model",
        12,
        _ONE_KEY_DEFECTS,
    ),
    "presence words": ModelTest(
        (
            "tests/stairs/test_presence.py",
            "tests/stairs/test_one_key.py",
            "tests/stairs/driver.py",
            "tests/stairs/steps.py",
            "tests/stairs/held.py",
        ),
        "test_words_follow_whatever_pushes_do",
        300,
        _PRESENCE_DEFECTS,
    ),
    "as-of joins": ModelTest(
        (
            "tests/eddy/test_as_of.py",
            "tests/eddy/test_branches.py",
            "tests/eddy/drawn_branches.py",
            "tests/eddy/opened_files.py",
            "tests/cases.py",
            "tests/key_types.py",
        ),
        "test_rows_are_those_of_the_oracle",
        300,
        _AS_OF_DEFECTS,
    ),
    "ledgers": ModelTest(
        ("tests/stairs/test_ledger.py", "tests/stairs/held.py"),
        "test_rows_are_those_of_the_model",
        30,
        _LEDGER_DEFECTS,
    ),
    "aggregates": ModelTest(
        (
            "tests/eddy/test_aggregates_rings.py",
            "tests/eddy/test_aggregates_running.py",
            "tests/eddy/drawn_aggregates.py",
            "tests/tracing.py",
        ),
        "test_groups_are_those_of_the_oracle_through_switches",
        200,
        _RING_DEFECTS | _FINAL_RING_DEFECTS,
    ),
    "no-good marks": ModelTest(
        ("tests/eddy/test_marks.py", "tests/eddy/live_engines.py", "tests/cases.py", "tests/key_types.py"),
        "test_a_list_too_long_to_be_marked_does_not_count_for_what_a_mark_is_worth",
        1,
        _MARK_DEFECTS,
    ),
    "rests of learning": ModelTest(
        ("tests/eddy/test_marks.py", "tests/eddy/live_engines.py", "tests/cases.py", "tests/key_types.py"),
        "test_matches_in_vain_shorten_a_rest",
        1,
        {"a rest takes its time however much is in vain": Edit("stairs/kernels/learning.py", "vain > VAIN", "False")},
    ),
    "marks that carry others": ModelTest(
        ("tests/eddy/test_marks.py", "tests/eddy/live_engines.py", "tests/cases.py", "tests/key_types.py"),
        "test_learning_goes_on_where_the_marks_of_other_attributes_rest_on_marks",
        1,
        {
            "a mark on which others rest is worth its own hits": Edit(
                "stairs/kernels/learning.py", "support >= 0", "False"
            )
        },
    ),
    "key groups on spark": ModelTest(
        ("tests/spark/test_split_tree.py",),
        "test_each_result_meets_in_one_group_whenever_its_rows_were_written",
        40,
        _FRAGMENT_DEFECTS,
    ),
}

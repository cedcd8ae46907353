"""Mistakes that are easily made, as edits of the code, for `tests/test_mutations.py`."""

from __future__ import annotations

from dataclasses import dataclass

SEED = 2


@dataclass(frozen=True)
class Edit:
    """A text that occurs once in a file, and its replacement."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Defect:
    """A mistake: its description, its edits, and the options with which the fuzzer finds it soon."""

    what: str
    edits: tuple[Edit, ...]
    strategy: str = "jisc"
    streams: int = 3
    policy: str = "fixed"
    seed: int = SEED
    queries: str = "inner"


_CANDIDATES = "stairs/kernels/candidates.py"

DEFECTS = (
    Defect(
        "a column with nulls is copied as if it had none",
        (Edit("stairs/kernels/payload.py", "if peek_int64(column + ARROW_NULLS) != 0 and", "if False and"),),
    ),
    Defect(
        "the nulls of one push are those of the next as well",
        (Edit("stairs/kernels/opening.py", "given.dead[u64(mark)] = 0", "pass"),),
    ),
    Defect(
        "what is present is taken for complete: a composite is stored under a key that is not attempted",
        (Edit("stairs/kernels/climb.py", "if peek_int32(p) < row[E_BIRTH]:", "if peek_int32(p) < -2:"),),
        seed=1,
    ),
    Defect(
        "a key never looked at is taken for attempted",
        (Edit("stairs/kernels/climb.py", "if newest >= entries.states[u64(x), E_BIRTH]:", "if newest >= -1:"),),
    ),
    Defect(
        "demote drops the entries of a key and leaves its mark",
        (Edit("stairs/kernels/stair.py", "poke_int32(p, UNMARKED)", "poke_int32(p, states[x, E_BIRTH])"),),
        seed=5,
    ),
    Defect(
        "a state that takes the memory of a dropped one takes its marks as well",
        (Edit("stairs/entry_ring.py", "max(following, 0), heads, ring)", "int(self.state[E_BIRTH]), heads, ring)"),),
    ),
    Defect(
        "an entry that moves to a larger ring comes without its components",
        (Edit("stairs/kernels/stair.py", "for k in range(1, row[E_WIDTH]):", "for k in range(1, 1):"),),
        seed=8,
    ),
    Defect(
        "two plans that run side by side both give a result",
        (Edit("stairs/kernels/climb.py", "return not older", "return False"),),
        "parallel-track",
    ),
    Defect(
        "ordered results of one arrival come as the plan finds them",
        (Edit("eddy/results/ordered.py", "np.lexsort((*ids.T[::-1], events))", 'np.argsort(events, kind="stable")'),),
    ),
    Defect(
        "an ordered changelog does not know which arrival ends a result",
        (Edit("eddy/results/ordered.py", "np.minimum(first, np.append(", "np.maximum(first, np.append("),),
    ),
    Defect(
        "the new version of a box does not store what leaves it",
        (
            Edit(
                "jisc/strategies/parallel_track.py",
                "frozenset(state for state in track.shared if _within(state, track.box))",
                "frozenset(track.shared)",
            ),
        ),
        "parallel-track",
        streams=5,
        seed=1,
    ),
    Defect(
        "a row leaves a window of rows one row early",
        (
            Edit(
                "stairs/kernels/one_by_one.py",
                "set_low(arena, entries, np.int64(i), s + 1 - streams[i, S_SIZE])",
                "set_low(arena, entries, np.int64(i), s + 2 - streams[i, S_SIZE])",
            ),
        ),
        "jisc",
        seed=1,
    ),
    Defect(
        "a row leaves a range one tick early",
        (
            Edit(
                "stairs/kernels/windows.py",
                "arena.values[u64(ring + (lo & mask))] < horizon",
                "arena.values[u64(ring + (lo & mask))] <= horizon",
            ),
        ),
        "jisc",
        seed=3,
    ),
    Defect(
        "in a chunk, a row leaves a window of rows one row early",
        (
            Edit(
                "stairs/kernels/chunk.py",
                "stay = max(stay, following - size)",
                "stay = max(stay, following - size + 1)",
            ),
            Edit(
                "stairs/kernels/chunk.py",
                "s + row[S_SIZE] - events[K_FIRST])",
                "s + row[S_SIZE] - 1 - events[K_FIRST])",
            ),
        ),
        "mjoin",
        seed=3,
    ),
    Defect(
        "in a chunk, no row leaves its range",
        (
            Edit(
                "stairs/kernels/chunk.py",
                "elif streams[j, S_KIND] == RANGE and not strict:",
                "elif strict and strict != strict:",
            ),
        ),
        "mjoin",
        seed=0,
    ),
    Defect(
        "an arrival sees a tuple that arrives after it in the same chunk",
        (Edit("stairs/kernels/chunk.py", "s - events[K_FIRST])] < place", "s - events[K_FIRST])] < place or True"),),
        "mjoin",
    ),
    Defect(
        "in a changelog, a tuple that left its window is still seen in the chunk",
        (Edit("stairs/kernels/chunk.py", "            stay += events[j, K_GONE]\n", "            stay += 0\n"),),
        "mjoin",
        seed=5,
    ),
    Defect(
        "residual predicates of a cycle are not checked",
        (Edit("stairs/kernels/levels.py", "checked |= routes.ops[u64(o), O_CHECK] != 0", "checked |= False"),),
        "mjoin",
    ),
    Defect(
        "where all streams join on one key, a row leaves a window of rows one row early",
        (Edit("stairs/kernels/one_key.py", "s + 1 - streams[i, S_SIZE])", "s + 2 - streams[i, S_SIZE])"),),
        "mjoin",
    ),
    Defect(
        "where all streams join on one key, partners that are too old for each other join",
        (Edit("stairs/kernels/one_key_results.py", "greatest <= deadline else", "greatest <= deadline + 5 else"),),
        "mjoin",
        seed=3,
    ),
    Defect(
        "where all streams join on one key, a partner at the end of its range is too old",
        (Edit("stairs/kernels/one_key_results.py", "timely += end >= arrival_time", "timely += end > arrival_time"),),
        "mjoin",
        seed=8,
    ),
    Defect(
        "where all streams join on one key, older partners are forgotten",
        (
            Edit(
                "stairs/kernels/one_key_results.py",
                "while partner >= low:\n            partners",
                "while partner > low:\n            partners",
            ),
        ),
        "mjoin",
        seed=3,
    ),
    Defect(
        "where all streams join on one key and only some combinations are in time, a partner is forgotten",
        (
            Edit(
                "stairs/kernels/one_key_results.py",
                "if partner < met[u64(at + NEWEST + m + j)]:",
                "if partner <= met[u64(at + NEWEST + m + j)]:",
            ),
        ),
        "mjoin",
        seed=2,
    ),
    Defect(
        "a push that fails leaves the plan it changed to",
        (Edit("eddy/join/join.py", "restore(undo.savepoint)", "restore(strategy.savepoint())"),),
        "mjoin",
        seed=1,
    ),
    Defect(
        "a decision within a push that fails is not taken back",
        (
            Edit(
                "eddy/join/walk.py",
                "            follow_router(join, only_kept)\n",
                "            follow_router(join, only_kept)\n            join.begin()\n",
            ),
        ),
        "eddy",
        5,
        "chaos",
        seed=5,
    ),
    Defect(
        "a state is stored, and tuples go on being routed as if nothing were",
        (
            Edit(
                "jisc/strategies/stored.py",
                "self.mode = self.modules.meta[M_MODE] = type(self).mode",
                "self.mode = type(self).mode",
            ),
        ),
        "eddy",
        5,
        "chaos",
    ),
    Defect(
        "tables of a plan are taken for those of the same plan with other states stored",
        (Edit("jisc/plan/stored_routes.py", "self.tree, tuple(self.rows.items()),", "self.tree, len(self.rows),"),),
        "eddy",
        5,
        "chaos",
    ),
    Defect(
        "a no-good mark stays when a row that is not blocked arrives in the list",
        (Edit("stairs/kernels/marks.py", "marked = heads[u64(p)] <= MARKED\n", "marked = i > 99\n"),),
        "mjoin",
        5,
        seed=6,
    ),
    Defect(
        "a no-good mark stays when an empty list gets its first row",
        (Edit("stairs/kernels/marks.py", "(rested and recs[u64(at)] < low)", "(rested and i > 99)"),),
        "mjoin",
        5,
        seed=1,
    ),
    Defect(
        "a no-good mark is cleared, and those that rested on it stay",
        (Edit("stairs/kernels/marks.py", "                            top += 2\n", ""),),
        "mjoin",
        5,
        seed=6,
    ),
    Defect(
        "a list without a result gets a no-good mark whatever it rests on",
        (Edit("stairs/kernels/learning.py", "LONGEST or not is_blocked(arena, j, x, record):", "LONGEST:"),),
        "mjoin",
        5,
    ),
    Defect(
        "a push that fails leaves no-good marks",
        (Edit("stairs/kernels/arena.py", "    clear_all(arena)\n", ""),),
        "mjoin",
        5,
        seed=0,
    ),
    Defect(
        "a state is computed with no-good marks",
        (Edit("stairs/store.py", "        self.modules.clear_marks()\n", ""),),
        "eddy",
        5,
        "chaos",
    ),
    Defect(
        "the sweep takes a key for dead because its lists have no-good marks",
        (
            Edit(
                "stairs/kernels/keys.py",
                "newest_of(heads[u64(first + kid * stride)]) < low",
                "heads[u64(first + kid * stride)] < low",
            ),
        ),
        "mjoin",
        5,
        seed=1,
    ),
    Defect(
        "the sweep looks at the first columns of a head row only",
        (Edit("stairs/kernels/keys.py", "TOGETHER if arena.meta[M_MARKS] == 0 else 0, at", "99, at"),),
        "mjoin",
        7,
        seed=1,
    ),
    Defect(
        "a table that is filled anew takes dead keys over",
        (Edit("stairs/kernels/keys.py", "* classes[c, C_STRIDE])] != FREED\n", "* classes[c, C_STRIDE])] != 99\n"),),
        "mjoin",
        seed=6,
    ),
    Defect(
        "comparisons are not checked where partial results are extended level by level",
        (
            Edit(
                "stairs/kernels/levels.py",
                "hits = hops[u64(h), H_COMPARE] >= 0,",
                "hits = False,",
            ),
        ),
        "mjoin",
        seed=1,
    ),
    Defect(
        "comparisons are not checked where a hop binds its match",
        (Edit("stairs/kernels/hop.py", "hop[H_COMPARE] < 0 or all_hold(arena, routes, h, current)", "True"),),
    ),
    Defect(
        "a routed tuple is compared with its arrival only",
        (
            Edit(
                "stairs/kernels/cacq.py",
                "agrees and is_done(test[X_LEVEL], done, more)",
                "agrees and test[X_LEVEL] < 0",
            ),
        ),
        "cacq",
        seed=1,
    ),
    Defect(
        "an eddy takes entries of a STAIR of which a component has left its window",
        (Edit("stairs/kernels/cacq.py", "component < entries.lows[u64(lows + j)] or has_died(", "has_died("),),
        "eddy-jisc",
        seed=2,
    ),
    Defect(
        "an eddy inserts into a STAIR only what two hops made",
        (Edit("stairs/kernels/cacq.py", "if y >= 0 and storing:", "if y >= 0 and storing and d > FIRST:"),),
        "eddy-stairs",
    ),
    Defect(
        "an eddy looks a STAIR behind a comparison up by the tuple itself",
        (Edit("jisc/plan/rankings.py", "if side.by in masks.graph.scans:", "if side.by < 0:"),),
        "eddy-jisc",
        streams=4,
        seed=7,
    ),
    Defect(
        "a hop with a comparison is shared by routes that bind other streams before it",
        (Edit("jisc/plan/states.py", " & ~graph.compared", ""),),
        streams=4,
        seed=3,
    ),
    Defect(
        "a comparison is not turned where the other side is found first",
        (Edit("stairs/routes.py", "else (-high, -low)", "else (low, high)"),),
        "mjoin",
        seed=3,
    ),
    Defect(
        "a bound of a comparison is excluded",
        (Edit("stairs/kernels/compare.py", "return v >= w + row[X_LOW] and", "return v > w + row[X_LOW] and"),),
        "mjoin",
    ),
    Defect(
        "a tuple is stored under the key of another one that a later scan of its walk has bound",
        (Edit("stairs/kernels/climb.py", "    if arena.classes[c, C_SCAN] != 0:\n", "    if kid < -1:\n"),),
        seed=9,
    ),
    Defect(
        "a scan does not see the last tuples of a stream",
        (
            Edit(
                "stairs/kernels/scan.py",
                "following = newer + events[K_COUNT]",
                "following = newer + events[K_COUNT] // 2",
            ),
        ),
        "mjoin",
        seed=1,
    ),
    Defect(
        "a search in a band misses values that are equal to the lower bound",
        (
            Edit(
                "stairs/kernels/bands.py",
                "first += below(values, first, peek_int64(bounds + q), 1)",
                "first += below(values, first, peek_int64(bounds + q) + 1, 1)",
            ),
        ),
        "mjoin",
        2,
        seed=1,
    ),
    Defect(
        "a walk skips entries of a band",
        (Edit(_CANDIDATES, "s - 1 if s < PLACED else s + 1", "s - 1 if s < PLACED else s + 2"),),
    ),
    Defect(
        "a walk does not read the last run of a band",
        (Edit(_CANDIDATES, "while run < RUNS:", "while run < RUNS - 1:"),),
        seed=0,
    ),
    Defect(
        "a walk misses the tuples that wait for their band",
        (Edit(_CANDIDATES, "s = next_within(arena.values, ring, row[S_MASK], s, stop, least, most)", "s = stop - 1"),),
    ),
    Defect(
        "a walk takes entries of tuples that have left",
        (Edit(_CANDIDATES, "if peek_int32(tuples + 4 * e) >= low:", "if True:"),),
    ),
    Defect(
        "an eddy scans by a comparison with a stream that a tuple has not visited",
        (
            Edit(
                "stairs/kernels/cacq.py",
                "if is_bounded(routes, x) and is_done(routes.compares[u64(x), X_LEVEL], done, more):",
                "if is_bounded(routes, x):",
            ),
        ),
        strategy="cacq",
        streams=4,
        seed=0,
    ),
    Defect(
        "a band keeps the tuples of a push that failed",
        (Edit("stairs/bands.py", "        self.table[np.ix_(wrong, EMPTIED)] = 0\n", "        wrong[:] = False\n"),),
        "mjoin",
        2,
        seed=1,
    ),
    Defect(
        "a window that follows from intervals is a tick too short",
        (
            Edit(
                "eddy/query/intervals.py",
                "self.derived[stream.name] = size",
                "self.derived[stream.name] = max(size - 1, 0)",
            ),
        ),
        "mjoin",
    ),
    Defect(
        "a stream is kept as long as the others may be older",
        (Edit("eddy/query/intervals.py", "most.max(axis=1)", "most.max(axis=0)"),),
        "mjoin",
        seed=3,
    ),
    Defect(
        "the null of a row in a file is forgotten",
        (
            Edit(
                "stairs/rings.py",
                "if valid is not None:\n                    _spread",
                "if valid is None:\n                    _spread",
            ),
        ),
        "mjoin",
    ),
    Defect(
        "the payload of a restored query lies in other slots",
        (Edit("eddy/partners/row_store.py", "slots = [first & (room - 1) for", "slots = [0 & first & room for"),),
        "mjoin",
        queries="branches",
        seed=6,
    ),
    Defect(
        "what becomes due during a push comes out one tick early",
        (
            Edit(
                "stairs/deadlines.py",
                "queue.at[queue.first : end], now))",
                'queue.at[queue.first : end], now, "right"))',
            ),
        ),
        "mjoin",
        queries="branches",
        seed=1,
    ),
    Defect(
        "what a push begins and ends comes out in a changelog",
        (Edit("eddy/partners/rows.py", "if len(rows) < 2 or signs.all():", "if n < 999:"),),
        "mjoin",
        queries="branches",
    ),
    Defect(
        "event times in another unit are read as if they had that of the query",
        (Edit("eddy/ingest/event_times.py", "or stream.type_of(name) != kind", "or False"),),
    ),
    Defect(
        "a window is counted in the unit of its stream",
        (
            Edit(
                "eddy/query/join_graph.py",
                "stream.window.d, time_type, stream",
                "stream.window.d, stream.type_of(stream.time), stream",
            ),
        ),
    ),
    Defect(
        "the watermark does not wait for a stream that has had no row",
        (Edit("eddy/ingest/kernels.py", "return -FOREVER, np.int64(i)", "continue"),),
    ),
    Defect(
        "a stream that was idle stays so",
        (Edit("eddy/ingest/kernels.py", "state[u64(n + i)] = greatest", "pass"),),
    ),
    Defect(
        "a watermark follows the stream that was the slowest",
        (Edit("eddy/ingest/kernels.py", "silent or holder < 0 or i == holder", "silent or holder < 0"),),
    ),
    Defect(
        "a given watermark rises with rows that are out of order",
        (Edit("eddy/ingest/clock.py", "np.minimum(marks, given) if by_time else before", "np.minimum(marks, given)"),),
        seed=3,
    ),
)

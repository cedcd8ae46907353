"""A filter of several conditions, asked in an order that follows their cost and what they drop.

    slice of a batch ── sampled rows ── all conditions ── profile ── a better order?
           └── condition ── narrow? ── condition ── narrow? ── … ── rows accepted

Batches are cut into slices, so that one large batch is learnt from as many small ones are. The conditions are asked one
after the other; between two of them the slice is narrowed to the rows still in question where the calls to come
should save more than taking the rows costs, and left as it is, with a mask, where not. A sample of each slice goes
to all conditions first; what that costs is bounded by a share of the time the filter takes. What the first condition
drops is seen in any case, and when that no longer fits the profile, a new profile is begun.

The rows accepted are those for which all conditions hold, whatever the order: so a condition must have an answer for
every row, not only for those that others accept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import Filter, Mask, Predicate, conditions, mask_of
from eddy.filters.profile import COST_NUMBERS, CallCost, Profile
from eddy.storage.random_state import random_state, set_random_state
from stairs.errors import InputError, QueryError
from stairs.plain_types import taken
from stairs.storage.parts import Parts, Plain

SLICE_ROWS = 65_536
SAMPLE_ROWS = 256
"""Most rows sampled of a slice."""

FEWEST_SAMPLED = 8
"""Samples of fewer rows would pay for calls and learn little."""

FIRST_SAMPLE = 64
FIRST_ONE_IN, FIRST_ONE_IN_LARGE = 16, 64
"""The first sample comes before anything is known of costs: of so many rows one, up to FIRST_SAMPLE and beyond it."""

LOOKED_AT_EVERY = 16
"""Slices after which the order is looked at in any case."""

SURPRISE = 0.15
SURPRISE_ROWS = 256
SURPRISE_SHARE = 3
"""When the first condition drops so much more or less than the profile says, by so many rows or more, the data have
drifted, which was seen for nothing: then a new profile may make samples take so many times their share at once."""

TAKE_CALL_S, TAKE_ROW_S = 20e-6, 20e-9
"""What narrowing costs as long as it was not measured: the latter for each row kept and column."""

Rows = npt.NDArray[np.int64]


class AdaptiveFilter:
    """A filter that learns in which order to ask its conditions.

    predicates  expressions, functions of a batch, `eddy.Predicate`s, or one of them; none accepts every row
    names       how to name them, one each; None = by themselves
    schema      columns that expressions and declared columns must fit; None = seen when the first batch comes
    adaptive    False: they are asked in the order given, and nothing is sampled
    share       of the time the filter takes, how much may go into samples; three times as much while the data drift,
                and the first sample not counted
    seed        of the choice of sampled rows; it never changes the rows accepted
    clock       seconds, read before and after each call
    place, rows how errors call the filter and what it filters

    Keeps O(conditions) numbers and a profile of 512 rows. Not thread-safe. Raises QueryError for what is no condition
    or does not fit. Algorithm: A-Greedy (see `filter_profile.py`).

    >>> import pyarrow.compute as pc
    >>> kept = AdaptiveFilter([pc.field("a") > 1, lambda batch: pc.equal(batch["b"], "x")], names=["large", "x"])
    >>> kept.filter(pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "x"]})).to_pylist()
    [{'a': 3, 'b': 'x'}]
    >>> kept.order
    ('large', 'x')
    """

    def __init__(
        self,
        predicates: Filter,
        names: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
        adaptive: bool = True,
        share: float = 0.02,
        seed: int = 0,
        clock: Callable[[], float] = perf_counter,
        place: str = "filter",
        rows: str = "rows",
    ) -> None:
        if not 0 <= share < 1:
            raise QueryError(f"share is a part of the time, 0 or more and less than 1, not {share!r}")
        self.predicates = named(conditions(predicates, schema, place), names)
        n = len(self.predicates)
        self.place = place
        self.adaptive = adaptive and n > 1
        self.reorders = 0
        """How often the order was changed."""
        self.sampled = 0
        """Rows sampled."""
        self.seconds = 0.0
        """Seconds the filter took, those for samples among them."""
        self.sample_seconds = 0.0
        """Seconds that samples took."""
        self._order = list(range(n))
        self._costs = [CallCost() for _ in range(n)]
        self._taking = CallCost()
        self._profile = Profile(n)
        self._share = share
        self._clock = clock
        self._random = np.random.default_rng(seed)
        self._schema: pa.Schema | None = None
        self._read: list[list[str]] = []
        self._allowed = 0.0
        """Seconds that samples may take now; below 0 after one that took longer than it may."""
        self._surprised = False
        self._expected = 0.0
        """What share of the rows the first condition drops, by the profile."""
        self._slices = 0
        self._slice_rows = 0.0
        """Rows of a slice, a moving mean."""
        self._seen, self._accepted, self._spent = [0] * n, [0] * n, [0.0] * n
        rule = " (each is asked about any row, whatever the others say)" if n > 1 else ""
        self._failed = []
        """Per condition the beginning of its errors."""
        for one in self.predicates:
            alone = n == 1 and isinstance(one.function, pc.Expression)
            called = place if alone else f"{place}, predicate {one.title!r},"
            self._failed.append(f"{called} failed on these {rows}{rule}")

    @property
    def order(self) -> tuple[str, ...]:
        """The names in the order in which they are asked now."""
        return tuple(self.predicates[k].title for k in self._order)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which all conditions are true, in their order. Raises InputError as `accepted` does."""
        rows = self.accepted(batch)
        return batch if len(rows) == len(batch) else taken(batch, rows)

    def accepted(self, batch: pa.RecordBatch) -> Rows:
        """Return the rows for which all conditions are true (not null), int64, ascending.

        Raises InputError that names the condition when one fails or gives something else than a boolean for each row;
        what was learnt by then stays. Cost: that of the conditions, each on the rows that those before it left, or
        on all where narrowing would cost more.
        """
        if not self.predicates or not len(batch):
            return np.arange(len(batch), dtype=np.int64)
        if len(self.predicates) == 1:
            return self._only(batch)
        if self._schema is None or not batch.schema.equals(self._schema):
            self._bind(batch.schema)
        found = []
        for low in range(0, len(batch), SLICE_ROWS):
            part = batch if len(batch) <= SLICE_ROWS else batch.slice(low, SLICE_ROWS)
            began = self._clock()
            self._slice_rows += (len(part) - self._slice_rows) * (0.2 if self._slice_rows else 1.0)
            if self.adaptive:
                self._learn(part)
                self._slices += 1
                sampled = self._clock()
                self.sample_seconds += sampled - began
            found.append(self._conjunction(part) + low)
            ended = self._clock()
            self.seconds += ended - began
            if self.adaptive:
                self._allowed += self._share * (ended - sampled) - (sampled - began)
        return np.concatenate(found)

    def _bind(self, schema: pa.Schema) -> None:
        try:
            conditions(self.predicates, schema, self.place)
        except QueryError as error:
            raise InputError(str(error)) from error
        # A table without columns has no length, so an expression that reads none is given one all the same.
        self._read = [one.read(schema) or schema.names[:1] for one in self.predicates]
        self._schema = schema

    def _ask(self, k: int, batch: pa.RecordBatch, noted: bool = True) -> tuple[Mask, float]:
        """Return the mask of a condition, and the seconds it took, to be noted as its cost or not."""
        began = self._clock()
        mask = mask_of(self.predicates[k], batch, self._failed[k])
        seconds = self._clock() - began
        if noted:
            self._costs[k].note(len(batch), seconds)
        return mask, seconds

    def _only(self, batch: pa.RecordBatch) -> Rows:
        """Return the rows accepted by the only condition there is."""
        mask, seconds = self._ask(0, batch)
        rows = np.flatnonzero(mask)
        self._count(0, len(batch), len(rows), seconds)
        self.seconds += seconds
        return rows

    def _count(self, k: int, asked: int, accepted: int, seconds: float) -> None:
        self._seen[k] += asked
        self._accepted[k] += accepted
        self._spent[k] += seconds

    def _conjunction(self, batch: pa.RecordBatch) -> Rows:
        rows: Rows | None = None  # of the slice, those in `batch` now; None = all
        alive: Mask | None = None  # of `batch`, those still in question; None = all
        asked = len(batch)
        for place, k in enumerate(self._order):
            mask, seconds = self._ask(k, batch)
            alive = mask if alive is None else alive & mask
            accepted = int(np.count_nonzero(alive))
            self._count(k, asked, accepted, seconds)
            if not place and asked >= SURPRISE_ROWS and self._profile.rows:
                # The profile is a sample: within three deviations of it nothing is known to have changed.
                off = abs(1 - accepted / asked - self._expected)
                self._surprised = off > SURPRISE + 1.5 / self._profile.rows**0.5
            asked = accepted
            if not asked:
                return np.zeros(0, np.int64)
            later = self._order[place + 1 :]
            if later and asked < len(batch):
                columns = [name for name in batch.schema.names if any(name in self._read[j] for j in later)]
                if self._pays(later, len(batch), asked, len(columns)):
                    began = self._clock()
                    picked = np.flatnonzero(alive)
                    batch = taken(batch.select(columns), picked)
                    self._taking.note(asked * len(columns), self._clock() - began)
                    rows, alive = picked if rows is None else rows[picked], None
        kept = np.arange(len(batch), dtype=np.int64) if alive is None else np.flatnonzero(alive)
        return kept if rows is None else rows[kept]

    def _pays(self, later: Sequence[int], rows: int, asked: int, columns: int) -> bool:
        """Tell whether the calls to come should save more on `asked` rows than taking these costs."""
        saved = sum(self._costs[k].row_s for k in later) * (rows - asked)
        if any(not self._costs[k].calls for k in later):
            # Nothing is known of a condition yet: a function may well be dear.
            return asked <= rows // 2
        cost = self._taking.of(asked * columns) if self._taking.calls else TAKE_CALL_S + TAKE_ROW_S * asked * columns
        return saved > cost

    # Learning

    def _learn(self, part: pa.RecordBatch) -> None:
        """Ask all conditions about some rows if time allows, and change the order if what is known shows a better one.

        Costs are known better with each slice, also without a sample; so the order is looked at after 1, 2, 4, 8, 16,
        32, 48, … slices as well.
        """
        count = self._sample_rows(len(part))
        if count >= FEWEST_SAMPLED:
            self._sample(part, count)
        elif self._slices & (self._slices - 1) and self._slices % LOOKED_AT_EVERY:
            return
        better = self._profile.better(self._order, self._costs, self._slice_rows)
        if better is not None:
            self._order = better
            self.reorders += 1
        self._expected = float(self._profile.alone()[self._order[0]])

    def _sample(self, part: pa.RecordBatch, count: int) -> None:
        # One row of each of `count` stretches, so that no two are the same.
        rows = ((np.arange(count) + self._random.random(count)) * len(part) / count).astype(np.int64)
        batch = taken(part, rows)
        # The very first calls load and compile things, so their times say little; two calls of different sizes after
        # them tell what a call costs from what a row costs.
        ends = [count] if self.sampled else sorted({FEWEST_SAMPLED, min(2 * FEWEST_SAMPLED, count), count})
        if self._surprised:
            self._profile.clear()
        low = 0
        for end in ends:
            some, warm = batch.slice(low, end - low), bool(self.sampled or low)
            masks = [self._ask(k, some, warm)[0] for k in range(len(self.predicates))]
            self._profile.add(~np.stack(masks, axis=1))
            low = end
        self.sampled += count

    def _sample_rows(self, rows: int) -> int:
        """Return how many rows may be sampled of a slice."""
        if not self.sampled and not self._allowed:
            return self._first_rows(rows) if self._share else 0
        call = sum(cost.call_s for cost in self._costs)
        row = sum(cost.row_s for cost in self._costs)
        # Time not used is not saved up for ever: after a long while of large batches it would be much.
        self._allowed = min(self._allowed, 4 * (call + SAMPLE_ROWS * row))
        if self._surprised:
            count = self._first_rows(rows)
            most = SURPRISE_SHARE * self._share * self.seconds
            return count if self.sample_seconds + call + count * row <= most else 0
        affordable = (self._allowed - call) / row if row else SAMPLE_ROWS * (self._allowed > call)
        return int(max(0, min(affordable, SAMPLE_ROWS, rows)))

    def _first_rows(self, rows: int) -> int:
        return min(max(min(FIRST_SAMPLE, rows // FIRST_ONE_IN), rows // FIRST_ONE_IN_LARGE), SAMPLE_ROWS)

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return what was learnt and counted so far, without the conditions."""
        return {
            "reorders": self.reorders,
            "sampled": self.sampled,
            "seconds": float(self.seconds),
            "sample_seconds": float(self.sample_seconds),
            "order": self._order,
            "costs": [cost.to_parts() for cost in (*self._costs, self._taking)],
            "profile": self._profile.to_parts(),
            "random": random_state(self._random),
            "allowed": float(self._allowed),
            "surprised": bool(self._surprised),
            "expected": float(self._expected),
            "slices": self._slices,
            "slice_rows": float(self._slice_rows),
            "seen": self._seen,
            "accepted": self._accepted,
            "spent": [float(seconds) for seconds in self._spent],
        }

    def load_parts(self, parts: Parts) -> None:
        """Go on from what a filter of the same conditions kept."""
        n = len(self.predicates)
        order = parts.integers("order", n, high=n)
        parts.require(sorted(order) == list(range(n)), f"order {order} of {n} conditions")
        for cost, numbers in zip((*self._costs, self._taking), parts.sequence("costs", n + 1), strict=True):
            whole = type(numbers) is list and all(type(value) is float for value in numbers)
            parts.require(whole and len(numbers) == COST_NUMBERS, f"costs {numbers}")
            cost.load_parts(numbers)
        self._order = order
        self._profile.load_parts(parts.part("profile"))
        set_random_state(self._random, parts.part("random"))
        self.reorders, self.sampled = parts.integer("reorders"), parts.integer("sampled")
        self.seconds, self.sample_seconds = parts.number("seconds"), parts.number("sample_seconds")
        self._allowed, self._expected = parts.number("allowed"), parts.number("expected")
        self._surprised, self._slices = parts.flag("surprised"), parts.integer("slices")
        self._slice_rows = parts.number("slice_rows")
        self._seen, self._accepted = parts.integers("seen", n), parts.integers("accepted", n)
        self._spent = parts.numbers("spent", n)

    # Looking in

    def stats(self) -> list[dict[str, Any]]:
        """Return figures of each condition, in the order in which they are asked now.

        predicate          its name
        position           its place in the order, from 0
        rows, accepted     rows it was asked about that all before it had accepted, and those of them it accepted
        seconds            that its calls took, without samples
        call_us, row_ns    what a call costs now, and each row of it
        selectivity        share of the rows that reach it now that it accepts, by the profile
        selectivity_alone  share of all rows that it accepts, by the profile
        reorders           how often the order was changed

        Without a profile both shares are accepted / rows. None where nothing was seen.
        """
        alone, drops, found = self._profile.alone(), self._profile.drops(self._order), []
        for place, k in enumerate(self._order):
            share = self._accepted[k] / self._seen[k] if self._seen[k] else None
            found.append(
                {
                    "predicate": self.predicates[k].title,
                    "position": place,
                    "rows": self._seen[k],
                    "accepted": self._accepted[k],
                    "seconds": self._spent[k],
                    "call_us": 1e6 * self._costs[k].call_s if self._costs[k].calls else None,
                    "row_ns": 1e9 * self._costs[k].row_s if self._costs[k].calls else None,
                    "selectivity": 1 - drops[place] if self._profile.rows else share,
                    "selectivity_alone": float(1 - alone[k]) if self._profile.rows else share,
                    "reorders": self.reorders,
                }
            )
        return found


def named(predicates: Sequence[Predicate], names: Sequence[str] | None) -> tuple[Predicate, ...]:
    """Return predicates under other names, one each. Raises QueryError for another number of names, or one twice."""
    if names is None:
        return tuple(predicates)
    if isinstance(names, str) or len(names) != len(predicates):
        raise QueryError(f"names has one string for each of {len(predicates)} predicates, not {names!r}")
    doubled = sorted({name for name in names if list(names).count(name) > 1})
    if doubled:
        raise QueryError(f"two predicates are named {doubled[0]!r}; give each a name of its own")
    return tuple(replace(one, name=name) for one, name in zip(predicates, names, strict=True))

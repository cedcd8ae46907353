"""The pace of the router: the times of samples and of decisions of the policy.

Samples and decisions cost time, so time limits both. The router looks after SAMPLE seconds of pushing: it measures the
cost of an arrival, and takes a sample if a decision comes soon, else at every RARELY-th look. The policy is asked after
WORTH times the duration of its last decision, and sooner when the cost of an arrival has drifted, or when only one
small sample supports the plan. With `every`, arrivals determine both; then a repeated run makes the same decisions,
except under policies that use measured times.
"""

from __future__ import annotations

from eddy.streams.numbers import at_least
from stairs.errors import InputError
from stairs.storage.parts import Parts, Plain

SAMPLE = 0.005
"""Seconds of pushing between two looks; a sample takes some tens of microseconds, several times that in cold caches."""
EARLY = 0.001
"""The same before the first decision."""
NEAR = 4
"""Looks before a decision from which on each takes a sample, since plans are tried on recent tuples."""
RARELY = 8
"""One in RARELY looks takes a sample while no decision comes soon."""
FIRST = 3
"""Samples before the first decision."""
WORTH = 30.0
"""Seconds of pushing between two decisions, per second that a decision takes."""
SOON = 8.0
"""The same for ALERT decisions after a drift, while the windows still turn over."""
AT_FIRST, EAGER = 4.0, 2
"""The same for the first EAGER decisions, since only a small sample supports the first plan."""
ALERT = 6
"""Decisions that come soon after a drift."""
DRIFT = 0.25
"""Relative rise of the cost of an arrival that counts as drift."""
SETTLED = 3
"""Samples after a change of plan before its usual cost is known."""
FOLLOWING = 0.25
"""Weight of a sample with a lower cost than usual: a plan that became cheaper is no reason for another plan."""
PATIENCE = 16.0
"""Upper bound of the factor by which decisions become rarer while nothing changes."""
DECIDING = 0.0015
"""Upper bound of the seconds that a decision is assumed to take, for up to STREAMS streams; proportional beyond."""
SLOW = 3.0
"""Factor of this bound after the first EAGER decisions."""
STREAMS = 8
LEAST = 256
"""Arrivals that a measurement of their cost needs."""
SHORT_STRETCH, SHORT_TIME = 4096, 0.0008
"""Upper bounds of the arrivals, or seconds if that is more, between two looks where a drift may be expensive."""
CLOCKED = 0.0002
"""Seconds of pushing between two readings of the clock, which is a call of the system: it would be a tenth of a push of
one row."""
FIRST_STRETCH = 2048
"""Arrivals before the first look, when nothing is known of their cost."""
_COUNTS = ("samples", "decisions", "drifts", "arrivals", "since", "alert", "fresh", "skipped")
_SECONDS = ("unseen", "undecided", "last", "recent", "usual", "patience")
"""Attributes that continue in another process."""


class Pace:
    """Measures pushing, sampling and deciding.

    every      arrivals between two decisions; None = by time. Raises InputError for any other value
    samples    samples taken;  decisions   how often the policy was asked
    drifts     how often the cost of an arrival drifted while the plan stayed
    arrivals   arrivals since the last decision;  since      arrivals since the last look
    unseen     seconds of pushing since the last look;  undecided  since the last decision
    last       assumed seconds of a decision: those of the last one, within bounds
    recent     present nanoseconds per arrival, smoothed;  usual      those of the plan at the last decision
    patience   the factor by which decisions are rarer than at first
    alert      decisions that still come sooner after a drift;  turnover   arrivals that renew all windows
    fresh      looks since the last decision;  skipped    looks since the last sample
    interval   seconds of pushing between two looks
    unclocked  arrivals to come whose time need not be measured: they count as long as those measured last; 0 or less =
               measure it
    """

    def __init__(self, every: int | None, n_streams: int) -> None:
        self.every = None if every is None else at_least(1, every)
        if self.every is None and every is not None:
            raise InputError(f"decide_every is a number of arrivals, 1 or more, not {every!r}")
        self.samples = self.decisions = self.drifts = 0
        self.arrivals = self.since = 0
        self.unseen = self.undecided = self.last = 0.0
        self.longest = DECIDING * max(1.0, n_streams / STREAMS)
        self.recent = self.usual = float("nan")
        self.patience = 1.0
        self.alert = self.turnover = self.fresh = self.skipped = 0
        self.unclocked, self._each = 0, 0.0
        self._follow()

    def note(self, arrivals: int, seconds: float | None) -> None:
        """Count arrivals, one or more, that took this many seconds in the kernel; None = not measured. O(1)."""
        if seconds is None:
            seconds = arrivals * self._each
            self.unclocked -= arrivals
        else:
            self._each = seconds / arrivals
            self.unclocked = int(CLOCKED / max(self._each, 1e-9))
        self.arrivals += arrivals
        self.since += arrivals
        self.unseen += seconds
        self.undecided += seconds

    def stretch(self, left: int, careful: bool) -> int:
        """Return how many of the `left` arrivals of a push to take before the next look.

        careful   whether a drift may make arrivals many times more expensive, so that looks must not be far apart
        """
        if self.every is not None:
            return min(left, max(self.every - self.arrivals, 1))
        most = self._careful_stretch if careful else self._stretch
        # A short remainder does not justify a separate call of the kernel.
        return left if 2 * left <= 3 * most else most

    def _follow(self) -> None:
        """Set the values that follow from samples and decisions: each push reads them, and few pushes take samples."""
        self.interval = EARLY if self.samples < FIRST else SAMPLE if self.patience == 1 else 2 * SAMPLE
        if self.recent != self.recent:
            self._stretch = self._careful_stretch = FIRST_STRETCH
            return
        self._stretch = max(int(1e9 * self.interval / self.recent), LEAST)
        self._careful_stretch = min(self._stretch, max(SHORT_STRETCH, int(1e9 * SHORT_TIME / self.recent)))

    @property
    def look_due(self) -> bool:
        """Whether it is time for a look."""
        if not self.since:
            return False
        return self.arrivals >= self.every if self.every is not None else self.unseen >= self.interval

    def looked(self, deciding: bool) -> bool:
        """Measure the arrivals since the last look; return whether to take a sample, and count that.

        deciding   whether decisions are made at all
        """
        if self.since >= LEAST:
            measured = 1e9 * self.unseen / self.since
            self.recent = measured if self.recent != self.recent else 0.5 * (measured + self.recent)
            self.fresh += 1
            if self.usual != self.usual and self.decisions and self.fresh >= SETTLED:
                self.usual = self.recent
            elif self.recent < self.usual:
                self.usual += FOLLOWING * (self.recent - self.usual)
        self.since, self.unseen = 0, 0.0
        near = deciding and self.undecided + NEAR * self.interval >= self._wait
        wanted = self.every is not None or self.samples < FIRST or near or self.skipped + 1 >= RARELY
        self.samples += wanted
        self.skipped = 0 if wanted else self.skipped + 1
        self._follow()
        return wanted

    @property
    def _wait(self) -> float:
        """Seconds of pushing between the last decision and the next."""
        if self.decisions < EAGER:
            return AT_FIRST * self.last
        return (SOON if self.drifting or self.alert else WORTH * self.patience) * self.last

    @property
    def decision_due(self) -> bool:
        """Whether, after a look, it is time for a decision."""
        if self.every is not None:
            return True
        if self.samples < FIRST:
            return False
        return self.undecided >= self._wait

    @property
    def drifting(self) -> bool:
        """Whether an arrival costs more than it usually does under this plan. Never with `every`: arrivals decide."""
        return self.every is None and self.recent > (1 + DRIFT) * self.usual

    def decided(self, changed: bool, drifting: bool) -> None:
        """Start the time to the next decision. The caller tells its duration when it has ended (`took`)."""
        # While the plan does not change, further looks are worth less.
        eager = self.decisions <= EAGER
        self.patience = 1.0 if changed or drifting or eager else min(2 * self.patience, PATIENCE)
        # When all windows are renewed, further samples add no information.
        self.alert = ALERT if drifting else max(self.alert - 1, 0) if self.arrivals < self.turnover else 0
        self.usual = float("nan") if changed else self.recent
        self.fresh = 0
        self._follow()
        self.start_over()

    def took(self, seconds: float) -> None:
        """Note the duration of the decision that `decided` follows."""
        # The first decisions compile tables that later decisions find in a cache.
        self.last = min(seconds, self.longest if self.decisions <= EAGER else SLOW * self.longest)

    def hurry(self) -> None:
        """Start the time to the next decision, with the patience of the start."""
        self.patience = 1.0
        self._follow()
        self.start_over()

    def start_over(self) -> None:
        """Count arrivals and time since the last decision from 0."""
        self.arrivals, self.undecided = 0, 0.0

    def to_parts(self) -> Plain:
        """Return the state from which another process resumes."""
        return {
            "counts": [getattr(self, name) for name in _COUNTS],
            "seconds": [float(getattr(self, name)) for name in _SECONDS],
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of `to_parts`."""
        for name, count in zip(_COUNTS, parts.integers("counts", len(_COUNTS)), strict=True):
            setattr(self, name, count)
        for name, seconds in zip(_SECONDS, parts.numbers("seconds", len(_SECONDS)), strict=True):
            setattr(self, name, seconds)
        self._follow()

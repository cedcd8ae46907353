"""What the best fixed plan would have taken, and the best one of each phase, known afterwards only.

The least of several measurements is less than what the best plan takes, as noise helps one of them. So a plan is chosen
by every other push and its time counted on those between, and the other way round. A plan chosen by noise then counts
with the time that it takes.

Going from one plan to the next costs the hindsight-best nothing, nor does finding it: an ideal, no contender.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Times:
    """Seconds of each contender on each push.

    seconds   float64[contenders, pushes]
    phases    the name of the phase of each push
    """

    names: list[str]
    seconds: Floats
    phases: list[str]

    def total(self, name: str) -> float:
        """Return the seconds of one contender."""
        return float(self.seconds[self.names.index(name)].sum())

    def rows(self, names: list[str]) -> Floats:
        """Return the seconds of some contenders, float64[names, pushes]."""
        return self.seconds[[self.names.index(name) for name in names]]

    def by_phase(self, names: list[str]) -> dict[str, Floats]:
        """Return the seconds of some contenders in each phase, float64[names]."""
        phases = np.array(self.phases)
        return {one: self.rows(names)[:, phases == one].sum(axis=1) for one in dict.fromkeys(self.phases)}


def crossed(seconds: Floats, phases: list[str]) -> float:
    """Return the seconds of the best row, each half of the pushes counted for the row that is best on the other half.

    Each phase is halved by itself, or a plan would be chosen by one phase and counted on another. A push that is its
    whole phase counts half in each.

    >>> crossed(np.array([[2.0, 2.0, 2.0, 2.0], [1.0, 3.5, 1.0, 3.5]]), ["a"] * 4)  # 4 + 7: the luck of 1.0 is no merit
    11.0
    """
    names, halves = np.array(phases), np.zeros((2, len(seconds)))
    for one in dict.fromkeys(phases):
        own = seconds[:, names == one]
        if own.shape[1] == 1:
            halves += own.T / 2
        else:
            halves += np.array([own[:, ::2].sum(axis=1), own[:, 1::2].sum(axis=1)])
    even, odd = halves
    return float(even[odd.argmin()] + odd[even.argmin()])


def best_fixed(times: Times, fixed: list[str]) -> float:
    """Return the seconds of the best fixed plan."""
    return crossed(times.rows(fixed), times.phases)


def best_per_phase(times: Times, fixed: list[str]) -> float:
    """Return the seconds of the best plan of each phase, taken together; phases of one name have one plan."""
    phases, seconds = np.array(times.phases), times.rows(fixed)
    names = dict.fromkeys(times.phases)
    return sum(crossed(seconds[:, phases == one], [one] * times.phases.count(one)) for one in names)


def in_the_running(times: Times, fixed: list[str], slack: float) -> list[str]:
    """Return the plans that take at most `slack` times the least in some phase."""
    near = np.zeros(len(fixed), bool)
    for seconds in times.by_phase(fixed).values():
        near |= seconds <= slack * seconds.min()
    return [name for name, kept in zip(fixed, near.tolist(), strict=True) if kept]

"""The time of the best fixed plan, and of the best plan of each phase, both known only afterwards.

The least of several measurements is less than the time of the best plan, since noise helps one of them. So a plan is
chosen by every other push and its time counted on the pushes between, and vice versa. A plan chosen by noise then
counts with its real time. Changes of plan cost the best plan of each phase nothing: it is an ideal, not a contender.
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


def crossed(seconds: Floats, phases: list[str]) -> float:
    """Return the seconds of the best row; each half of the pushes counts for the row that is best on the other half.

    Each phase is halved separately, so that no plan is chosen by one phase and counted on another. A push that is its
    whole phase counts half in each.

    >>> crossed(np.array([[2.0, 2.0, 2.0, 2.0], [1.0, 3.5, 1.0, 3.5]]), ["a"] * 4)  # 4 + 7, not the lucky 1.0s
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
    """Return the seconds of the best plan of each phase, summed; phases of one name have one plan."""
    phases, seconds = np.array(times.phases), times.rows(fixed)
    names = dict.fromkeys(times.phases)
    return sum(crossed(seconds[:, phases == one], [one] * times.phases.count(one)) for one in names)


def in_the_running(times: Times, fixed: list[str], slack: float) -> list[str]:
    """Return the plans that take at most `slack` times the least in some phase."""
    near, phases, seconds = np.zeros(len(fixed), bool), np.array(times.phases), times.rows(fixed)
    for one in dict.fromkeys(times.phases):
        own = seconds[:, phases == one].sum(axis=1)
        near |= own <= slack * own.min()
    return [name for name, kept in zip(fixed, near.tolist(), strict=True) if kept]

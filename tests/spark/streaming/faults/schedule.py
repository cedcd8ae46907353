"""The faults of a job, drawn from a seed.

In a batch up to three faults end the run of the job, in the order in which a batch passes their places:

    joining        logged, joined, stop       Spark replays the batch
    committing     copied, unrenamed, renamed the batch is committed
    publishing     publish, published, marked, done

`crash` raises in the driver, and the job is started again in the same JVM; `kill` is SIGKILL of the driver's Python,
`killall` of its JVM as well. Between the end and the next start files are damaged; `damage.py` states the
expected effects.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.spark.streaming.faults.traps import Trap

JOINING = ("logged", "joined", "stop")
COMMITTING = ("copied", "unrenamed", "renamed")
PUBLISHING = ("publish", "published", "marked", "done")
PLACES = ("split", "meet", "join", "leave")
"""Places of a worker, in the order in which a task passes them."""
WORKERS = tuple((place, action) for place in PLACES for action in ("kill", "raise"))
SLEEPS = tuple((place, "sleep") for place in PLACES)
DUPLICATE = ("twice", "join")
DAMAGES = {
    # The damage after each end; if an end comes again, the next one in the list is used.
    "logged": ("primary", "both", "copy", "segment"),
    "joined": ("segment", "files", "gone", "identity"),
    "stop": ("files", "strays", "both"),
    "copied": ("primary", "strays"),
    "unrenamed": ("strays", "identity"),
    "renamed": ("both", "files", "primary"),
    "publish": ("both", "nameless"),
    "published": ("both", "strays"),
    "marked": ("unmarked", "both"),
    "done": ("unmarked", "copy"),
}
ENDS = (*JOINING, *COMMITTING, *PUBLISHING)


@dataclass(frozen=True)
class Plan:
    """The faults of one job: traps, and for each end its damages."""

    traps: tuple[Trap, ...]

    @property
    def kinds(self) -> set[str]:
        return {trap.kind for trap in self.traps}


def plan(seed: int, batches: int, kills: list[tuple[str, str]]) -> Plan:
    """Draw the faults of a job.

    kills  (place, "kill" or "killall"): ends that are kills; all others are crashes
    """
    chance = random.Random(f"faults {seed}")
    slots = [(batch, place) for batch in range(1, batches - 1) for place in _places(chance)]
    for place in ENDS:
        if not any(other == place for _, other in slots):
            group = next(places for places in (JOINING, COMMITTING, PUBLISHING) if place in places)
            free = [batch for batch in range(1, batches - 1) if not any(b == batch and p in group for b, p in slots)]
            slots.append((chance.choice(free or range(1, batches - 1)), place))
    how = {slot: "crash" if slot[1] not in ("stop", "publish") else "fail" for slot in slots}
    for place, action in kills:
        free = [slot for slot in slots if slot[1] == place and how[slot] == "crash"]
        if free:
            how[chance.choice(free)] = action
    traps = [Trap(batch, place, action) for (batch, place), action in how.items()]
    # Jobs with consecutive seeds begin with different ones.
    turns = dict.fromkeys(DAMAGES, seed)
    for batch, place in sorted(slots):
        actions = DAMAGES[place]
        turns[place] += 1
        traps.append(Trap(batch, f"after_{place}", actions[turns[place] % len(actions)]))
    for batch in range(batches):
        count = min(3, len(WORKERS))
        traps += [Trap(batch, *fault) for fault in chance.sample(WORKERS, count)]
        if chance.random() < 0.6:
            traps.append(Trap(batch, *DUPLICATE))
        if chance.random() < 0.4:
            traps.append(Trap(batch, *chance.choice(SLEEPS)))
    return Plan(tuple(traps))


def _places(chance: random.Random) -> list[str]:
    """Return the places where the runs of one batch end, in order."""
    places = []
    for group, share in ((JOINING, 0.6), (COMMITTING, 0.6), (PUBLISHING, 0.7)):
        if chance.random() < share:
            places.append(chance.choice(group))
    return places

"""The class by which a stream is probed, where the query leaves a choice."""

from __future__ import annotations

from jisc.plan.routes import Preference
from stairs.graph import JoinGraph
from stairs.samples import Samples

PREFERRED = 1.3
"""Factor by which chains must be shorter by one class than by each other one for that class to be preferred.

Among equals, the class that was bound first is the better one: more walks end early.
"""


def preference(graph: JoinGraph, samples: Samples, present: Preference | None) -> Preference | None:
    """Return, per stream, its classes in the order of the length of its chains for recent tuples, shortest first.

    () for a stream whose chains by one class are not much shorter. A stream keeps its present order while no other
    class is better. None = no stream had a preference yet, and none has one now. O(size of the sample).
    """
    partners: dict[tuple[int, int], list[float]] = {}
    for i, near in enumerate(samples.neighbours):
        profile = samples.profile(i)
        if len(profile):
            for (by, j), seen in zip(near, profile.mean(axis=0).tolist(), strict=True):
                partners.setdefault((j, by), []).append(seen)
    chosen = list[tuple[int, ...]]()
    for j, classes in enumerate(graph.attributes):
        mean = {c: sum(seen) / len(seen) for c in classes if (seen := partners.get((j, c)))}
        before = () if present is None else present[j]
        if len(mean) == len(classes) > 1:
            ranked = tuple(sorted(classes, key=lambda c: mean[c]))
            least, second = mean[ranked[0]], mean[ranked[1]]
            if PREFERRED * least <= second:
                before = ranked
            elif before and before[0] != ranked[0]:
                before = ()
        chosen.append(before)
    return None if present is None and not any(chosen) else tuple(chosen)

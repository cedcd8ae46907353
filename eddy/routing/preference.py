"""By which of its classes a stream is probed where the query leaves a choice."""

from __future__ import annotations

from jisc.plan.routes import Preference
from stairs.graph import JoinGraph
from stairs.samples import Samples

PREFERRED = 1.3
"""Factor by which chains must be shorter by another class for that class to be preferred."""


def preference(graph: JoinGraph, samples: Samples, present: Preference | None) -> Preference:
    """Return, per stream, its classes in the order of the length of its chains for recent tuples, shortest first.

    A stream keeps its present order unless another class is better by PREFERRED. O(size of the sample).
    """
    partners: dict[tuple[int, int], list[float]] = {}
    for i, near in enumerate(samples.neighbours):
        profile = samples.profile(i)
        if len(profile):
            for (by, j), found in zip(near, profile.mean(axis=0).tolist(), strict=True):
                partners.setdefault((j, by), []).append(found)
    chosen = []
    for j, own in enumerate(graph.attributes):
        mean = {c: sum(found) / len(found) for c in own if (found := partners.get((j, c)))}
        before = present[j] if present is not None else own
        if len(mean) == len(own) > 1:
            ranked = sorted(own, key=lambda c: mean[c] * (1 if c == before[0] else PREFERRED))
            before = tuple(ranked) if ranked[0] != before[0] else before
        chosen.append(tuple(before))
    return tuple(chosen)

"""Hypothesis strategies of placement: statistics of streams over a join graph."""

from __future__ import annotations

from hypothesis import strategies as st

from eddy.placement.costs import Model, StreamStatistics, UnitCosts

rates = st.sampled_from([0.0, 1.0, 50.0, 100.0, 200.0, 400.0]) | st.floats(0.1, 1000.0)
selectivities = st.sampled_from([0.005, 0.01, 0.02, 0.05]) | st.floats(1e-4, 0.5)
unit_costs = st.builds(
    UnitCosts,
    c_l=st.sampled_from([0.0, 5e-3]),
    c_r=st.sampled_from([1e5, 1e8]),
    c_u=st.sampled_from([0.0, 2e-6]),
    c_p=st.sampled_from([0.0, 2e-7, 1e-5]),
    c_m=st.sampled_from([0.0, 1e-6]),
    nested=st.booleans(),
)


@st.composite
def models(draw: st.DrawFn, most: int = 6) -> Model:
    """Draw a model: one class over all streams, or a chain with a class between neighbours."""
    m, chain = draw(st.integers(2, most)), draw(st.booleans())
    streams = []
    for i in range(m):
        classes = {i - 1, i} if chain else {0}
        f = tuple(draw(selectivities) if c in classes else None for c in range(m - 1 if chain else 1))
        rate = draw(rates)
        streams.append(
            StreamStatistics(rate, rate * draw(st.sampled_from([0.5, 2.0])), draw(st.sampled_from([50, 150, 300])), f)
        )
    return Model(tuple(streams), draw(unit_costs))


@st.composite
def changes(draw: st.DrawFn, model: Model) -> tuple[int, StreamStatistics]:
    """Draw new figures of one stream; it keeps its classes."""
    k = draw(st.integers(0, len(model.streams) - 1))
    rate = draw(rates)
    f = tuple(None if old is None else draw(selectivities) for old in model.streams[k].selectivity)
    return k, StreamStatistics(rate, rate * draw(st.sampled_from([0.5, 2.0])), draw(st.sampled_from([50, 150, 300])), f)

"""CNU and DNU: both reach the greedy plan, whatever the order in which messages arrive."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated.placement.central import CentralNode
from bench.simulated.placement.distributed import UpdatingNode
from bench.simulated.placement.messages import Changed, Sent, Trigger
from eddy.placement.costs import Model, StreamStatistics, UnitCosts
from eddy.placement.operators import node_operator_sets
from eddy.placement.plan import JEP
from tests.bench.simulated.placement.scheduler import Scheduler
from tests.eddy.placement.models import changes, models


def nodes_of(model: Model) -> list[UpdatingNode]:
    plan = model.greedy()
    return [UpdatingNode(i, model, plan) for i in range(len(model.streams))]


def distributed(nodes: list[UpdatingNode]) -> JEP:
    return JEP(tuple(node.sep for node in nodes))


@given(st.data(), st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_distributed_and_central_updates_are_equal(data: st.DataObject, seed: int) -> None:
    model = data.draw(models())
    nodes, central = nodes_of(model), CentralNode(model)
    carrier = Scheduler([node.handle for node in nodes], seed)
    changed = data.draw(st.lists(changes(model), min_size=1, max_size=4))
    for k, figures in changed:
        # A change may come while walks of earlier ones are under way.
        carrier.send(k, nodes[k].change(figures))
        for _ in range(data.draw(st.integers(0, 10))):
            if carrier.pending:
                carrier.step()
        central.handle(Changed(k, figures))
    carrier.run()
    newest = model.changed(dict(changed))
    assert distributed(nodes) == newest.greedy()
    assert [node.operators for node in nodes] == node_operator_sets(newest.greedy())
    assert newest.violation(distributed(nodes)) == 1.0
    assert central.model.violation(central.plan) == 1.0
    for k in {k for k, _ in changed}:
        assert not nodes[k].busy


@given(models(), st.data())
def test_the_central_node_writes_to_the_affected_nodes_only(model: Model, data: st.DataObject) -> None:
    central = CentralNode(model)
    before = central.operators()
    sent = central.handle(Changed(*data.draw(changes(model))))
    after = central.operators()
    assert {envelope.to for envelope in sent} == {node for node in range(len(before)) if before[node] != after[node]}
    assert all(envelope.message.operators == after[envelope.to] for envelope in sent)


def test_a_threshold_keeps_a_plan_that_is_little_worse() -> None:
    streams = [StreamStatistics(rate, rate, 100.0, (0.01,)) for rate in (10.0, 11.0, 12.0)]
    model = Model(tuple(streams))
    change = Changed(1, StreamStatistics(13.0, 13.0, 100.0, (0.01,)))
    assert CentralNode(model).handle(change)
    assert not CentralNode(model, threshold=1.5).handle(change)


def test_the_plan_headed_by_the_trigger_needs_steps_of_its_own() -> None:
    """As written, algorithm 3 leaves the plan of the triggering head alone, which breaks the invariant."""
    streams = [StreamStatistics(r, w, 100.0, (0.05,)) for r, w in ((400.0, 200.0), (100.0, 50.0), (60.0, 400.0))]
    model = Model(tuple(streams))
    figures = StreamStatistics(4.0, 2.0, 100.0, (0.05,))
    newest = model.changed({0: figures})
    as_written, complete = nodes_of(model), nodes_of(model)
    for nodes in (as_written, complete):
        carrier = Scheduler([node.handle for node in nodes], 0)
        sent = nodes[0].change(figures)
        carrier.send(
            0,
            [
                Sent(envelope.to, envelope.message)
                for envelope in sent
                if nodes is complete or envelope.message != Trigger(0, 0)
            ],
        )
        carrier.run()
    assert distributed(as_written).seps[1:] == newest.greedy().seps[1:]
    assert newest.violation(distributed(as_written)) > 1.0
    assert distributed(complete) == newest.greedy()


def test_a_cost_that_falls_at_an_earlier_position_only() -> None:
    """Algorithm 3 compares costs at the stream's own position, where nothing is to ship in this case."""
    quiet = StreamStatistics(0.0, 0.0, 50.0, (0.01,))
    busy = StreamStatistics(1.0, 0.5, 50.0, (0.01,))
    model = Model((busy, quiet, busy), UnitCosts(0.0, 1e5, 0.0, 0.0))
    assert model.greedy().seps[2].order == (1, 0)
    nodes = nodes_of(model)
    carrier = Scheduler([node.handle for node in nodes], 0)
    carrier.send(0, nodes[0].change(quiet))
    carrier.run()
    assert distributed(nodes).seps[2].order == (0, 1) == model.changed({0: quiet}).greedy().seps[2].order

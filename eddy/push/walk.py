"""The walk of a push: the kernel takes the arrivals in, and transitions that are due happen between two of them."""

from __future__ import annotations

from time import thread_time

from eddy.ingest.arrivals import Arrivals
from eddy.join_engine import JoinEngine
from eddy.push.rings import fit_payload
from eddy.routing.change import ASKED_FOR, change_plan, follow_router
from stairs.descriptors import LOADING, M_MODE


def open_push(engine: JoinEngine, arrivals: Arrivals) -> None:
    """Open a push of these arrivals, and write their rows where the kernel reads them."""
    modules, payload = engine.modules, engine.payload
    payload.begin()
    modules.begin(arrivals.rows)
    if arrivals.watermark is not None:
        modules.give(arrivals.watermark, arrivals.by_time)
    if not len(arrivals.order):
        return
    fit_payload(modules, payload)
    engine.loader.load(arrivals)


def walk(engine: JoinEngine, arrivals: Arrivals, only_kept: bool, probing: bool = True) -> tuple[int, int]:
    """Take the arrivals in; return the number of combinations found, and of scheduled transitions that happened.

    only_kept   see `eddy.routing.change.change_plan`
    probing     False = arrivals are inserted without a probe, and the router learns nothing
    """
    modules, strategy, router = engine.modules, engine.strategy, engine.router
    open_push(engine, arrivals)
    counted, first, end = engine.output.counted, engine.position, len(arrivals.order)
    if not end:
        # A given watermark alone may end results.
        given = arrivals.watermark is not None
        return modules.run(strategy.routes, arrivals.order, counted, strategy.entries) if given else 0, 0
    schedule = engine.schedule
    due = schedule[: schedule.bisect_key_right(first + end)] if schedule else ()
    done = changed = count = 0
    while done < end or changed < len(due):
        left = router.stretch(end - done) if probing else end - done
        stop = min(done + left, due[changed].at - first if changed < len(due) else end)
        if stop > done:
            began = thread_time()
            if not probing:
                modules.meta[M_MODE] = LOADING
            count = modules.run(strategy.routes, arrivals.order, counted, strategy.entries, stop)
            if probing:
                router.note(stop - done, thread_time() - began)
            done = stop
        while changed < len(due) and due[changed].at - first == done:
            change_plan(engine, due[changed].tree, due[changed].store, ASKED_FOR, only_kept)
            router.plan_changed()
            changed += 1
        if done < end and router.due and probing:
            follow_router(engine, only_kept)
    modules.meta[M_MODE] = strategy.mode
    return count, changed

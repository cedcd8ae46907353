"""A push in a join: the kernel processes the arrivals, and due transitions happen between two arrivals."""

from __future__ import annotations

from time import thread_time

from eddy.ingest.arrivals import Arrivals
from eddy.join.compaction import make_room_in_tables
from eddy.join.join import Join
from eddy.join.payload_room import fit_payload
from eddy.results.ordered import put_in_order
from eddy.results.results import PushResults
from eddy.routing.plan_change import ASKED_FOR, change_plan, follow_router
from stairs.descriptors import LOADING, M_CHANGELOG, M_MODE, NOTHING


def take(join: Join, arrivals: Arrivals, only_kept: bool) -> tuple[int, PushResults]:
    """Process the arrivals; return the number of scheduled transitions that happened, and the results.

    only_kept   see `eddy.routing.plan_change.change_plan`

    Raises CapacityError if memory is short; then the join must be rolled back.
    """
    changes = walk(join, arrivals, only_kept)
    join.modules.allowance.ask(0, "what was pushed")
    if arrivals.atomic and join.modules.meta[M_CHANGELOG] != NOTHING:
        join.modules.net_results()
    elif join.output.changing and not join.output.counted:
        join.modules.pair_results()
    if join.options.ordered:
        put_in_order(join.modules, arrivals.order)
    return changes, join.output.make(join.walked, arrivals.rows)


def open_push(join: Join, arrivals: Arrivals) -> None:
    """Open a push of these arrivals, and write their rows to the memory of the kernel."""
    modules, payload = join.modules, join.payload
    make_room_in_tables(join, arrivals.rows)
    # Rooms may differ after a push that was undone, and a renumbering moves rows by slots of the records.
    fit_payload(modules, payload)
    payload.begin()
    modules.begin(arrivals.rows)
    if arrivals.reading is not None:
        modules.read_clock(arrivals.reading)
    if not len(arrivals.order):
        return
    fit_payload(modules, payload)
    join.loader.load(arrivals)


def walk(join: Join, arrivals: Arrivals, only_kept: bool, probing: bool = True) -> int:
    """Process the arrivals, and return the number of scheduled transitions that happened.

    `Join.walked` has the combinations that were found.

    only_kept   see `eddy.routing.plan_change.change_plan`
    probing     False = arrivals are inserted without a probe, and the router learns nothing
    """
    modules, strategy, router = join.modules, join.strategy, join.router
    open_push(join, arrivals)
    # What an atomic push takes back again is found by the tuples of its results.
    counted, order, end = join.output.counted and not arrivals.atomic, arrivals.order, len(arrivals.order)
    if not end:
        reading = arrivals.reading
        if reading is not None and reading.after > reading.before:
            # A watermark alone may end results.
            modules.run(strategy.routes, order, counted, strategy.entries)
        return 0
    first, due = join.position, ()
    if join.schedule:
        due = join.schedule[: join.schedule.bisect_key_right(first + end)]
    done = changed = 0
    while done < end or changed < len(due):
        left = router.stretch(end - done) if probing else end - done
        stop = min(done + left, due[changed].at - first if changed < len(due) else end)
        if stop > done:
            began = thread_time() if probing and router.pace.unclocked <= 0 else None
            if not probing:
                modules.figures[M_MODE] = LOADING
            modules.run(strategy.routes, order, counted, strategy.entries, stop)
            if probing:
                router.note(stop - done, None if began is None else thread_time() - began)
            done = stop
        while changed < len(due) and due[changed].at - first == done:
            change_plan(join, due[changed].tree, due[changed].store, ASKED_FOR, only_kept)
            router.plan_changed()
            changed += 1
        if done < end and router.due and probing:
            follow_router(join, only_kept)
    modules.figures[M_MODE] = strategy.mode
    return changed

"""Atomic pushes and changes of plan: each happens in whole or not at all, whatever exception comes between statements.

An engine has two records, as in a database log:

    undo     set first. While it is the only one, the push has not happened: `roll_back` takes it back
    commit   set in one statement when all results are computed. From then on the push has happened: `finish` completes
             it, and nothing takes it back

Both `roll_back` and `finish` consist of steps that may be repeated, and clear the records last. So after an exception
within either of them, the next call runs it again from its start (`recover`).
"""

from __future__ import annotations

from eddy.join_engine import JoinEngine
from eddy.push.records import CommitRecord, UndoRecord
from eddy.push.rings import fit_payload
from stairs.descriptors import M_ARRIVALS, S_BASE


def begin(engine: JoinEngine, loading: bool = False) -> None:
    """Set the undo record: from here on, an exception takes the engine back to where it is now."""
    engine.undo = UndoRecord(engine.strategy.savepoint(), loading)


def finish(engine: JoinEngine, commit: CommitRecord) -> None:
    """Complete a push that has happened. It may be repeated."""
    modules, payload, strategy = engine.modules, engine.payload, engine.strategy
    modules.commit()
    payload.commit()
    modules.figures[M_ARRIVALS] = commit.position
    engine.n_results, engine.n_deleted = commit.results, commit.deleted
    engine.schedule, engine.late.rows, engine.failed.rows = commit.schedule, commit.late, commit.failed
    engine.last, engine.pushes, engine.finished = commit.last, commit.pushes, commit.finished
    if engine.clock is not None and commit.clock is not None:
        engine.clock.state = commit.clock
    if engine.groups is not None and commit.groups is not None:
        engine.groups.commit(commit.groups)
    if payload.logged:
        payload.expire(modules.oldest().tolist())
    if commit.savepoint is None:
        if engine.rings is None or not engine.rings.choice.on:
            # While ring values serve, states sleep.
            strategy.after_push(commit.arrivals)
    else:
        strategy.restore(commit.savepoint)
        strategy.refill()
    # Last: until then an exception leads back here.
    engine.undo = None
    engine.commit = None


def roll_back(engine: JoinEngine) -> None:
    """Take the engine back to where it was at `begin`; does nothing if nothing is under way. It may be repeated."""
    undo, modules, strategy = engine.undo, engine.modules, engine.strategy
    if undo is None:
        return
    changed = strategy.history.count > undo.savepoint.history.length
    strategy.discard_states()
    modules.undo()
    engine.payload.undo()
    if engine.groups is not None:
        engine.groups.undo()
    if undo.loading:
        modules.streams[:, S_BASE] = 0
    fit_payload(modules, engine.payload)
    strategy.restore(undo.savepoint)
    strategy.refill()
    engine.router.rolled_back(changed)
    engine.undo = None


def recover(engine: JoinEngine) -> None:
    """End what an exception interrupted: complete it if it has happened, else take it back."""
    commit = engine.commit
    if commit is None:
        roll_back(engine)
        return
    # Nobody knows how far the states have come.
    engine.strategy.discard_states()
    if commit.savepoint is None:
        engine.commit = commit = commit._replace(savepoint=engine.strategy.newest_plan())
    fit_payload(engine.modules, engine.payload)
    finish(engine, commit)

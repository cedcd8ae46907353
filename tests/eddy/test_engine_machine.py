"""An engine against the nested loops: arrivals in any batches, starts, stops, changes and refusals in any order.

After each step the machine compares results, positions, late rows, and the states of all queries (`EngineGame`), and
checks the joins. Policies decide every few arrivals, so plans change within pushes.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from eddy.fuzz.case import CHAOS
from eddy.fuzz.changing.case import EngineCase, EngineStreams
from eddy.fuzz.changing.draw import DECIDE_EVERY, EngineStepWriter, sources_drawn
from eddy.fuzz.changing.play import EngineGame
from jisc.strategies import STRATEGIES
from tests.draws import fewer

PICKS = st.binary(min_size=16, max_size=16)


class QueriesInMotion(RuleBasedStateMachine):
    """One engine and its reference; the queries change, and what each gives is what its versions own."""

    game: EngineGame

    @initialize(
        sources=sources_drawn(),
        strategy=st.sampled_from(tuple(STRATEGIES)),
        policy=st.sampled_from(("fixed", CHAOS, "bandit")),
        seed=st.integers(0, 255),
        every=st.sampled_from(DECIDE_EVERY),
        first=PICKS,
    )
    def begin(self, sources: EngineStreams, strategy: str, policy: str, seed: int, every: int, first: bytes) -> None:
        case = EngineCase(sources, strategy, policy=policy, seed=seed, decide_every=every)
        self.game, self.writer = EngineGame(case), EngineStepWriter(case)
        self._take("start", first)

    def _take(self, kind: str, picks: bytes = b"\0" * 16, rows: bytes = b"") -> None:
        for step in self.writer.steps((kind, picks, rows)):
            self.game.take(step)

    @rule(rows=st.binary(max_size=25))
    def push_few(self, rows: bytes) -> None:
        self._take("push", rows=rows)

    @rule(rows=st.binary(min_size=40, max_size=120))
    def push_many(self, rows: bytes) -> None:
        self._take("push", rows=rows)

    @rule(rows=st.binary(min_size=10, max_size=40))
    def push_one_by_one(self, rows: bytes) -> None:
        for k in range(0, len(rows) - 4, 5):
            self._take("push", rows=rows[k : k + 5])

    @rule(rows=st.binary(min_size=5, max_size=25))
    def push_in_vain(self, rows: bytes) -> None:
        self._take("bad", rows=rows)

    @rule(picks=PICKS)
    def start(self, picks: bytes) -> None:
        self._take("start", picks)

    @rule()
    def reload(self) -> None:
        self._take("reload")

    @precondition(lambda self: self.writer.asked)
    @rule(picks=PICKS)
    def change(self, picks: bytes) -> None:
        self._take("change", picks)

    @precondition(lambda self: self.writer.asked)
    @rule(picks=PICKS)
    def stop(self, picks: bytes) -> None:
        self._take("stop", picks)


TestQueriesInMotion = pytest.mark.slow(QueriesInMotion.TestCase)
TestQueriesInMotion.settings = settings(fewer(2), stateful_step_count=30)

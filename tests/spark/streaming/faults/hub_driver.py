"""The program of a hub that is broken: as `driver.py`, with control elements at every point of a micro-batch.

python -m tests.spark.streaming.faults.hub_driver DIRECTORY
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eddy
from eddy import InputError
from eddy.spark import Hub, Source, SparkJoinError
from eddy.spark.streaming.sinks import ParquetSink
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import Manifest
from tests.spark.streaming.faults.driver import ProgramRun, Unexplained, main
from tests.spark.streaming.faults.hub_program import NAMES, HubProgram, Journal, output_of
from tests.spark.streaming.faults.workload import SCHEMA, SPARK_SCHEMA, STREAMS

if TYPE_CHECKING:
    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

GIVEN, GIVEN_BETWEEN = 0.5, 0.01
"""Share of the points at which an element is given, and of the looks of the main thread in between."""


class HubDriver(ProgramRun):
    """One run of the program."""

    PLACES = False
    REFUSED = (*ProgramRun.REFUSED, "the queries of a hub change")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._program = HubProgram(self._config["seed"])
        self._journal = Journal(root)
        self._hub: Hub | None = None
        self._given: dict[str, int] = {}
        self._turn = threading.Lock()
        self._record_commits()
        reach = self._points.reach

        def reached(place: str) -> None:
            self._give(place)
            reach(place)

        self._points.reach = reached  # type: ignore[method-assign]

    def _record_commits(self) -> None:
        commit, journal = Checkpoint.commit, self._journal

        def wrapped(checkpoint: Checkpoint, manifest: Manifest) -> None:
            commit(checkpoint, manifest)
            journal.write(manifest.batch, manifest.extra["hub"]["elements"])

        Checkpoint.commit = wrapped  # type: ignore[method-assign]

    def _start(self) -> StreamingJoinQuery | None:
        manifest = Checkpoint(self._root / "checkpoint").newest()
        lives: dict[str, Any] = {}
        until = -1
        if manifest is not None:
            lives, until = manifest.extra["hub"]["lives"], manifest.batch
            if self._journal.read().get(until) != manifest.extra["hub"]["elements"]:
                self._journal.write(until, manifest.extra["hub"]["elements"])
        hub = self._hub = self._new_hub()
        for name in NAMES:
            elements = self._program.elements[name]
            done = sum(event != "begun" for _, event in self._journal.elements(name, until))
            self._given[name] = done
            earlier = [variant.query(self._root) for variant in self._program.variants(name)]
            sink = ParquetSink(self._root / "out" / name)
            if name in lives:
                newest = next(element.variant for element in reversed(elements[:done]) if element.variant is not None)
                how: Any = None
                following = elements[done]
                calm = len(lives[name]["versions"]) == 1 and lives[name]["versions"][0]["drain"] is None
                if calm and following.verb == "change" and self._chance.random() < 0.3:
                    # The change is given by a restart with another query.
                    assert following.variant is not None
                    if following.variant != newest:
                        newest, how = following.variant, following.how
                        self._given[name] += 1
                        self._note_given("restart")
                assert newest is not None
                hub.start(name, newest.query(self._root), sink, how=how, earlier=earlier, output=output_of(name))
            elif done == 0:
                first = elements[0].variant
                assert first is not None
                hub.start(name, first.query(self._root), sink, output=output_of(name))
                self._given[name] += 1
            elif manifest is not None and any(output.file.startswith(f"{name}/") for output in manifest.results):
                # It ended with the newest micro-batch, whose results may have to be published: start it again.
                if elements[done].verb != "start":
                    raise Unexplained(f"query {name} has ended, and its next element is {elements[done]}")
                variant = elements[done].variant
                assert variant is not None
                warm = elements[done].how == "warm"
                hub.start(name, variant.query(self._root), sink, warm=warm, output=output_of(name))
                self._given[name] += 1
        trigger: dict[str, Any] = {"availableNow": True}
        if self._config["trigger"] == "processingTime":
            trigger = {"processingTime": "0 seconds"}
        self._points.stop_asked.clear()
        try:
            return hub.run(**trigger)
        except SparkJoinError as refusal:
            self._explain(str(refusal))
            return None

    def _new_hub(self) -> Hub:
        sources = []
        for name in STREAMS:
            frame = self._spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
            stream = eddy.Stream(name, SCHEMA, window=eddy.Range(200), time="t")
            sources.append(Source(stream, frame.parquet(str(self._root / "sources" / name)), "k"))
        return Hub(
            self._spark,
            sources,
            self._root / "checkpoint",
            transport=self._config["transport"],
            lateness=self._config["lateness"],
            key_groups=8,
            partitions=self._tasks(),
            keep=self._config["keep"],
        )

    # Elements

    def _note_given(self, place: str) -> None:
        with open(self._root / "given", "a") as file:
            file.write(f"{place}\n")

    def _give(self, place: str) -> None:
        """Give the next element of a query, perhaps; any thread."""
        with self._turn:
            share = GIVEN_BETWEEN if place == "between" else GIVEN
            if self._hub is None or self._chance.random() > share:
                return
            name = self._chance.choice(NAMES)
            query = self._hub.queries.get(name)
            elements = self._program.elements[name]
            state = "stopped" if query is None else query.state
            if self._given[name] >= len(elements) or (query is not None and query.waiting):
                return
            element = elements[self._given[name]]
            try:
                if element.verb == "start" and state == "stopped":
                    assert element.variant is not None
                    sink = ParquetSink(self._root / "out" / name)
                    asked, warm = element.variant.query(self._root), element.how == "warm"
                    self._hub.start(name, asked, sink, warm=warm, output=output_of(name))
                elif element.verb == "change" and state == "running" and query is not None:
                    assert element.variant is not None
                    query.change(element.variant.query(self._root), how=element.how)  # type: ignore[arg-type]
                elif element.verb == "stop" and state == "running" and query is not None:
                    query.stop(element.how)  # type: ignore[arg-type]
                else:
                    return
            except (SparkJoinError, InputError, OSError) as problem:
                if "has ended" in str(problem) or "injected" in f"{problem} {problem.__cause__}":
                    return  # not given
                raise
            self._given[name] += 1
            self._note_given(place)

    def _is_committed(self, batch: int) -> bool:
        self._give("between")  # the main thread looks some fifty times a second
        return super()._is_committed(batch)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), HubDriver)
    sys.stdout.flush()
    os._exit(code)

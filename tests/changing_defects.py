"""Mistakes in what starts, changes and stops queries, for `tests/test_mutations.py`."""

from __future__ import annotations

from tests.defects import Defect, Edit

CHANGING_DEFECTS = (
    Defect(
        "a fresh start takes results with a component before it",
        (Edit("eddy/queries/reader.py", "version.start, GREATEST))", "version.start - 1, GREATEST))"),),
        queries="changing",
    ),
    Defect(
        "a warm start is a fresh one",
        (Edit("eddy/queries/reader.py", "LAST if version.warm else FIRST", "FIRST"),),
        queries="changing",
    ),
    Defect(
        "an immediate stop lets one arrival through",
        (Edit("eddy/queries/reader.py", "LEAST, version.stop - 1)", "LEAST, version.stop)"),),
        queries="changing",
    ),
    Defect(
        "a drain lets results through whose first component arrives at its position",
        (Edit("eddy/queries/reader.py", "LEAST, version.drain.at - 1)", "LEAST, version.drain.at)"),),
        queries="changing",
    ),
    Defect(
        "the results of a new version are not held",
        (Edit("eddy/queries/query.py", "link.new is version and link.change.holds", "link.new is link.old"),),
        queries="changing",
        seed=1,
    ),
    Defect(
        "results that are held are forgotten",
        (Edit("eddy/queries/query.py", "in held.pop(version, []):", "in []:"),),
        queries="changing",
        seed=6,
    ),
    Defect(
        "a drain over a window of time ends one tick early",
        (Edit("eddy/queries/drain.py", "self.newest + self.window.size)", "self.newest + self.window.size - 1)"),),
        queries="changing",
        seed=8,
    ),
    Defect(
        "a drain over a window of rows ends one row early",
        (
            Edit(
                "eddy/queries/drain.py",
                "self.window.size - self.since\n",
                "max(self.window.size - self.since - 1, 1)\n",
            ),
        ),
        queries="changing",
        seed=1,
    ),
    Defect(
        "a drain ends although rows may be late",
        (Edit("eddy/queries/sources.py", "[[self.reading.before], ", "[[self.reading.newest], "),),
        queries="changing",
        seed=2,
    ),
    Defect(
        "a query whose event times are coarser than those of the engine is accepted",
        (Edit("eddy/queries/sources.py", "query.graph.timed) and query.time_type", "False) and query.time_type"),),
        queries="changing",
    ),
    Defect(
        "a drain never ends",
        (Edit("eddy/queries/drain.py", "if len(passed) == len(self._windows) else None", "if not passed else None"),),
        queries="changing",
    ),
    Defect(
        "a drain forgets rows that came between its order and its position",
        (Edit("eddy/queries/drain.py", "is not None and n and not counts:", "is not None and n and push.end > at:"),),
        queries="changing",
        seed=0,
    ),
    Defect(
        "kept rows are dropped one tick early",
        (Edit("eddy/queries/kept.py", "watermark - max(spans)", "watermark - max(spans) + 1"),),
        queries="changing",
    ),
    Defect(
        "kept rows are dropped although a window of rows has room for one of them",
        (Edit("eddy/queries/kept.py", "count and rows < need.window.size", "count and rows + 1 < need.window.size"),),
        queries="changing",
        seed=4,
    ),
    Defect(
        "kept rows that the filter of a window of rows rejects are counted",
        (Edit("eddy/queries/kept.py", "if filter is None:", "if filter is None or self.end:"),),
        queries="changing",
        seed=3,
    ),
    Defect(
        "the old version stops at the change and not at the first result of the new one",
        (Edit("eddy/queries/lineage.py", "            if not kind.at_result:\n", "            if True:\n"),),
        queries="changing",
    ),
    Defect(
        "the first result of the new version ends nothing",
        (Edit("eddy/queries/lineage.py", "link.new is new and link.change.at_result]", "link.new is link.old]"),),
        queries="changing",
    ),
    Defect(
        "a version that waits starts when the first of the old ones has ended",
        (
            Edit(
                "eddy/queries/lineage.py",
                "elif len(known) == len(ends) and (",
                "elif known and (",
            ),
        ),
        queries="changing",
        seed=10,
    ),
    Defect(
        "windows that become wider are not filled again",
        (Edit("eddy/queries/joins.py", "elif grown or (warm and", "elif (warm and"),),
        queries="changing",
    ),
    Defect(
        "rows that only a new version wants stay out",
        (
            Edit(
                "eddy/queries/family.py",
                "        self._entries = self._divided = None\n",
                "        self._divided = None\n",
            ),
        ),
        queries="changing",
        seed=6,
    ),
    Defect(
        "a query that drains is not visited",
        (
            Edit(
                "eddy/queries/query.py",
                "            version.stop is not None or version.drain for",
                "            version.stop is not None for",
            ),
        ),
        queries="changing",
        seed=6,
    ),
    Defect(
        "a change of a stopped query may use rows of before",
        (Edit("eddy/queries/lineage.py", "kind.warm and (self.paused or not starts)", "kind.warm"),),
        queries="changing",
        seed=9,
    ),
    Defect(
        "the end of a range belongs to the next cell",
        (Edit("eddy/queries/grouped_filters.py", "highs[highs < GREATEST] + 1", "highs"),),
        queries="changing",
        seed=5,
    ),
    Defect(
        "shared SteMs let go of rows that one of the joins needs",
        (Edit("stairs/shared.py", "np.minimum(low[streams], share", "np.maximum(low[streams], share"),),
        strategy="mjoin",
        queries="changing",
        seed=3,
    ),
    Defect(
        "a restored drain forgets rows before it",
        (
            Edit(
                "eddy/queries/drain.py",
                "window.before, window.newest, window.since, window.passed = before, newest,",
                "window.before, window.newest, window.since, window.passed = False, newest,",
            ),
        ),
        queries="changing",
        seed=3,
    ),
    Defect(
        "a restored engine forgets results that wait",
        (
            Edit(
                "eddy/queries/query.py",
                "[table] for version, table in held.items()}",
                "[table] for version, table in ()}",
            ),
        ),
        queries="changing",
        seed=0,
    ),
    Defect(
        "versions with narrower windows take the results of wider ones",
        (Edit("eddy/queries/reader.py", "self.family.windows[stream.name] != window", "window.size < 0"),),
        queries="changing",
    ),
)

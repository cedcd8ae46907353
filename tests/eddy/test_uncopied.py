"""Public objects with live state refuse copies; the reference says which classes are public."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eddy
from eddy.live.engine_file import EngineFile
from eddy.uncopied import Uncopied

VALUES = frozenset(
    [
        "AdaptiveFilter",
        "AsOf",
        "AttributeClass",
        "Automatic",
        "Balance",
        "Branch",
        "Costs",
        "Decision",
        "EngineOptions",
        "Faults",
        "Hopping",
        "JEP",
        "JoinWriter",
        "Link",
        "Model",
        "Node",
        "PartitionEngine",
        "PartitionOptions",
        "Policy",
        "Predicate",
        "Query",
        "Range",
        "Rows",
        "SEP",
        "Session",
        "Sink",
        "Source",
        "Stream",
        "StreamingOptions",
        "StreamStatistics",
        "StreamingJoin",
        "Table",
        "Top",
        "Tumbling",
        "Unbounded",
        "UnionAll",
        "VersionedTable",
        "UnitCosts",
        "Variants",
        "View",
    ]
)
"""What describes something, or decides; two of them are as good as one."""
ROOT = Path(eddy.__file__).parents[1]
COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickle.dumps]


def public_classes() -> dict[str, type]:
    classes = {}
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for module, name in re.findall(r"autoclass:: ([\w.]+)\.(\w+)", page.read_text()):
            classes[name if name not in classes else f"{module}.{name}"] = getattr(
                importlib.import_module(module), name
            )
    return classes


def test_each_public_class_is_a_value_or_refuses_copies() -> None:
    classes = public_classes()
    assert len(classes) > 40
    for name, kind in {**classes, "EngineFile": EngineFile}.items():
        assert issubclass(kind, Uncopied) != (name in VALUES), f"{name}: is it a value, or does it have live state?"
        if name in VALUES:
            continue
        for copied in COPIES:
            with pytest.raises(eddy.StateError, match=r"an? .*cannot be copied or pickled: \w+"):
                copied(kind.__new__(kind) if kind is not eddy.Runtime else object.__new__(kind))


@pytest.mark.parametrize("copied", COPIES)
def test_what_refused_a_copy_goes_on(copied: Callable[[Any], Any]) -> None:
    streams = [eddy.Stream(name, {"k": "int64"}, window=eddy.Rows(9)) for name in "RS"]
    query = eddy.Query(streams, ["R.k = S.k"])
    left = eddy.Query(streams[:1], branches=[eddy.Branch(streams[1:], ["R.k = S.k"], "left")])
    engine = eddy.Engine([eddy.Stream(name, {"k": "int64"}) for name in "RS"])
    changing = engine.start("q", query)
    rows: dict[str, list[dict[str, int]]] = {"R": [{"k": 1}], "S": [{"k": 1}]}
    for live in (eddy.Runtime(query), eddy.Runtime(left, output="changelog"), engine, changing):
        with pytest.raises(eddy.StateError, match="snapshot"):
            copied(live)
        if live is not changing:
            assert isinstance(live, eddy.Runtime | eddy.Engine)
            live.push(rows, [0, 1])
    with eddy.serve(engine, port=0) as server, pytest.raises(eddy.StateError, match=r"eddy\.serve"):
        copied(server)
    assert changing.n_results == 1

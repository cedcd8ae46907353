"""The options of joins on Spark: keyword arguments at the public functions, three frozen dataclasses below them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eddy import PlanError, Query, Rows, Stream
from eddy.spark import Hub, SparkJoinError, explain, join
from eddy.spark.options import (
    BatchKeywords,
    HubKeywords,
    PartitionOptions,
    StreamingKeywords,
    StreamingOptions,
    options_of,
)
from eddy.spark.partitioning.engine import EngineOptions

FIELDS = {field.name: field for kind in (EngineOptions, PartitionOptions, StreamingOptions) for field in fields(kind)}


@pytest.mark.parametrize("keywords", [BatchKeywords, StreamingKeywords, HubKeywords])
def test_keywords_have_the_types_of_the_fields(keywords: type) -> None:
    # A streaming join must have a checkpoint.
    types = {**{name: field.type for name, field in FIELDS.items()}, "checkpoint": "Required[str | Path]"}
    annotated = {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()}
    assert annotated == {name: types[name] for name in annotated}


def test_joins_take_every_option_and_a_hub_those_of_streams() -> None:
    joins = BatchKeywords.__annotations__.keys() | StreamingKeywords.__annotations__.keys()
    assert joins == FIELDS.keys()
    assert joins - HubKeywords.__annotations__.keys() == {
        *("plan", "max_bytes", "placement", "order_by", "store", "background", "purge"),
        *("checkpoint", "change", "output"),
    }


@pytest.mark.parametrize(("call", "plain"), [(join, 2), (explain, 2), (Hub, 3)], ids=["join", "explain", "hub"])
def test_signatures_show_options_with_their_defaults(call: Callable[..., Any], plain: int) -> None:
    shown = list(inspect.signature(call).parameters.values())[plain:]
    assert len(shown) >= 11
    assert all(
        parameter.kind is parameter.KEYWORD_ONLY and parameter.default == FIELDS[parameter.name].default
        for parameter in shown
    )
    with pytest.raises(TypeError, match="unexpected keyword argument 'partition'"):
        call(*[None] * plain, partition=1)


def test_a_hub_refuses_options_of_a_single_query() -> None:
    for name in ("plan", "order_by", "change"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            Hub(None, [], "state", **{name: None})  # type: ignore[arg-type]


def test_options_come_from_their_names() -> None:
    given = {"plan": "R S", "partitions": np.int64(4), "keep": 3, "checkpoint": "state", "idle_after": timedelta(0, 2)}
    engines, partitioning, streaming = options_of(given)
    assert engines == EngineOptions(plan="R S")
    assert partitioning == PartitionOptions(partitions=4)
    assert type(partitioning.partitions) is int
    assert (streaming.directory, streaming.keep, streaming.idle_after_s) == (Path("state").absolute(), 3, 2.0)
    assert options_of({}) == (EngineOptions(), PartitionOptions(), StreamingOptions())
    for name in ("partitions", "key_groups", "keep"):
        with pytest.raises(SparkJoinError, match=f"{name}=1.5: give a whole number"):
            options_of({name: 1.5})


def test_engines_have_all_options_and_store_states_of_the_first_plan_only() -> None:
    schema = pa.schema([("k", pa.int64())])
    query = Query([Stream(name, schema, Rows(9)) for name in "RST"], ["R.k = S.k", "S.k = T.k"])
    options = EngineOptions(plan="(R S) T", strategy="moving-state", store=["R S"])
    engine = options.runtime(query)
    assert engine._pipeline.join.state_texts(engine._pipeline.join.strategy.choice) == ["R S"]
    assert EngineOptions(strategy="jisc", background=3).runtime(query)._pipeline.options.background == 3
    assert EngineOptions(strategy="parallel-track", purge="paper").runtime(query)._pipeline.options.purge == "paper"
    assert len(options.runtime(query, "(R S) T").stairs) == len(engine.stairs)
    later = options.runtime(query, "(S T) R")
    assert (later.plan, later.stairs) == ("(S T) R", [])
    with pytest.raises(PlanError, match="R T"):
        EngineOptions(plan="(R S) T", strategy="moving-state", store=["R T"]).runtime(query)
    assert options.text == (
        "plan=(R S) T, strategy=moving-state, policy=None, max_bytes=None, store=('R S',), background=0, purge=exact"
    )
    assert EngineOptions(store=["S T", "R S"]) == EngineOptions(store=("R S", "S T"))

"""Tables whose rows leave with time: the newest change of each key of a windowed stream, joined with other inputs."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy

SPAN, VISITS = 20, 9
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("did", pa.string()), ("at", pa.int64())])
VISIT = pa.schema([("item", pa.int64()), ("m", pa.int64()), ("at", pa.int64())])


def query(window: eddy.Range | eddy.Rows) -> eddy.Query:
    changes = eddy.Stream("offers", SCHEMA, time="at", window=window)
    newest = eddy.Query(
        [changes],
        select={name: f"offers.{name}" for name in ("id", "n", "did")},
        top=eddy.Top(1, by="offers.id", order=["offers.at desc", "offers.n desc"]),
    )
    offer = eddy.Table("offer", newest, filter=pc.field("did") != "delete")
    visits = eddy.Stream("visits", VISIT, time="at", window=eddy.Range(VISITS))
    return eddy.Query([visits, offer], ["visits.item = offer.id"], select=["visits.m", "offer.n"])


def answer(window: eddy.Range | eddy.Rows, pushed: dict[str, list[dict[str, Any]]], told: int) -> Counter[Any]:
    """Return the join of the visits and the newest changes in their windows, from scratch."""
    changes, now = pushed["offers"], {name: max([told, *(row["at"] for row in rows)]) for name, rows in pushed.items()}
    if isinstance(window, eddy.Rows):
        inside = changes[-window.n :]
    else:
        inside = [row for row in changes if row["at"] >= now["offers"] - SPAN]
    offers = {row["id"]: row for row in sorted(inside, key=lambda row: (row["at"], row["n"]))}
    visits = [row for row in pushed["visits"] if row["at"] >= now["visits"] - VISITS]
    pairs = [(row["m"], offers[row["item"]]) for row in visits if row["item"] in offers]
    return Counter((m, offer["n"]) for m, offer in pairs if offer["did"] != "delete")


@pytest.mark.campaign(8)
@pytest.mark.parametrize("window", [eddy.Range(SPAN), eddy.Rows(5)], ids=str)
@pytest.mark.parametrize("seed", range(15))
def test_the_answer_is_that_of_the_windows(seed: int, window: eddy.Range | eddy.Rows) -> None:
    draw, runtime, kept = Random(seed), eddy.Runtime(query(window), output="changelog"), Counter[Any]()
    pushed: dict[str, list[dict[str, Any]]] = {"offers": [], "visits": []}
    now, told, number = {"offers": 0, "visits": 0}, 0, 0
    for _ in range(40):
        rows: dict[str, list[dict[str, Any]]] = {"offers": [], "visits": []}
        for name in draw.sample(["offers", "visits"], draw.randint(0, 2)):
            steps = [draw.choice((0, 1, 1, 3, 9)) for _ in range(draw.randint(1, 4))]
            for at in [*accumulate(steps, initial=now[name])][1:]:
                key, number = draw.randint(1, 4), number + 1
                if name == "visits":
                    rows[name].append({"item": key, "m": number, "at": at})
                else:
                    did = draw.choice(("insert", "update", "delete"))
                    rows[name].append({"id": key, "n": number, "did": did, "at": at})
                now[name] = at
        given = {}
        if draw.random() < 0.3:
            told = max(*now.values(), told) + draw.randint(0, 9)
            now, given = dict.fromkeys(now, told), {"watermark": told}
        for name, new_rows in rows.items():
            pushed[name] += new_rows
        changes = runtime.push({name: arrived for name, arrived in rows.items() if arrived}, **given)
        for row in changes.to_pylist():
            kept[row["visits.m"], row["offer.n"]] += 1 if row["op"] in ("+I", "+U") else -1
        assert +kept == kept
        assert Counter({row: n for row, n in kept.items() if n}) == answer(window, pushed, told)
        if draw.random() < 0.1:
            runtime = eddy.Runtime.restore(runtime.snapshot(), query(window))

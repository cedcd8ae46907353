"""The pictures of the live page in the guide: `python -m tests.screenshots` takes them, with Chromium.

An engine of two queries is served while rows of five streams arrive whose data drift halfway.
"""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

import eddy
from tests.chromium import Chromium
from tests.drawings import FOLDER

COLUMNS = {
    "sessions": ("user",), "users": ("user", "buyer"), "orders": ("buyer", "item"), "items": ("item", "depot"),
    "depots": ("depot",),
}  # fmt: skip
ROWS = {"sessions": 25, "users": 25, "orders": 900, "items": 25, "depots": 25}
ON = ["sessions.user = users.user", "users.buyer = orders.buyer", "orders.item = items.item"]
ON += ["items.depot = depots.depot"]
START = np.datetime64("2026-03-02T09:00:00", "ms")
PUSHES = 60


def push(engine: eddy.Runtime | eddy.Engine, number: int, rng: np.random.Generator) -> None:
    """Push the rows of a second; a few are late. Halfway, buyers become many, and items few."""
    many = "buyer" if number < PUSHES // 2 else "item"
    keys = dict.fromkeys(("user", "buyer", "item", "depot"), 200) | {many: 25}
    rows = {}
    for name, columns in COLUMNS.items():
        at = np.sort(number * 1000 + rng.integers(0, 1000, ROWS[name]))
        at[-1] -= 4000 if number > 4 and rng.random() < 0.2 else 0
        values = {column: pa.array(rng.integers(0, keys[column], len(at))) for column in columns}
        rows[name] = pa.table({**values, "at": pa.array(START + at.astype("timedelta64[ms]"))})
    engine.push(rows)


def main() -> None:
    """Take the pictures."""
    schemas = {
        name: pa.schema([*((column, pa.int64()) for column in columns), ("at", pa.timestamp("ms"))])
        for name, columns in COLUMNS.items()
    }
    windows = {name: timedelta(seconds=8) for name in COLUMNS} | {"orders": timedelta(milliseconds=250)}
    streams = [
        eddy.Stream(name, schema, window=eddy.Range(windows[name]), time="at") for name, schema in schemas.items()
    ]
    query = eddy.Query(streams, ON, lateness=timedelta(seconds=2))
    plan = "(((orders items) depots) users) sessions"
    runtime = eddy.Runtime(query, plan, policy="a-greedy", decide_every=2000, count_only=True)
    rng = np.random.default_rng(5)
    with (
        tempfile.TemporaryDirectory() as profile,
        eddy.serve(runtime, 0, name="shop", every=1) as served,
        Chromium(Path(profile), width=1100) as browser,
    ):
        browser.open(served.url)
        for number in range(PUSHES):
            push(runtime, number, rng)
            time.sleep(0.4)
        browser.wait(f"document.body.innerText.includes({f'{runtime.position:,}'!r})")
        shown = Image.open(BytesIO(browser.picture()))
        shown.quantize(64).save(FOLDER / "page.png", optimize=True)


if __name__ == "__main__":
    main()

"""Four streams that drift: bank transfers, each with its login, its payee and a warning about its account.

    transfers(account, device, payee)   logins(account, device)   payees(account, payee)   warnings(account)

The join is a snowflake around transfers: all four streams join on the account, and two of the arms on an additional
column. At first, nearly every login is from another device than the transfer, so logins are selective and payees are
not; after the drift it is the opposite. The cost of an arrival depends on which arm is joined first.

`exact_counts` returns the number of results without joining anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy import Query, Range, Stream

Int64s = npt.NDArray[np.int64]

AT = pa.timestamp("us", "UTC")
COLUMNS = {
    "transfers": ("account", "device", "payee"),
    "logins": ("account", "device"),
    "payees": ("account", "payee"),
    "warnings": ("account",),
}
BEGIN_US = 1_767_225_600_000_000
"""1 January 2026, UTC."""
BATCH_US = 60_000_000
WINDOW = timedelta(seconds=90)
LATENESS = timedelta(seconds=5)
ACCOUNTS = 300
FEW, MANY = 1, 3000
"""Devices, or payees, of an account: with one, all rows of an account join; with many, only few rows join."""
_SPAN_US = WINDOW // timedelta(microseconds=1)
_WIDE = np.int64(1) << 32
"""An upper bound of the microseconds that a demo spans."""


def schema(stream: str) -> pa.Schema:
    """Return the columns of a stream: its keys, a unique number of the row, the event time."""
    return pa.schema([*((name, pa.int64()) for name in COLUMNS[stream]), ("number", pa.int64()), ("at", AT)])


def query() -> Query:
    """Return the query; its results are the numbers of the four rows."""
    return Query(
        [Stream(name, schema(name), window=Range(WINDOW), time="at") for name in COLUMNS],
        [
            *(f"transfers.account = {other}.account" for other in COLUMNS if other != "transfers"),
            "transfers.device = logins.device",
            "transfers.payee = payees.payee",
        ],
        select={name: f"{name}.number" for name in COLUMNS},
        lateness=LATENESS,
    )


@dataclass(frozen=True)
class TransferArrivals:
    """The rows of the demo, drawn from a seed.

    batches  per batch of files a table for each stream, in order of arrival
    drift    the first batch after the drift
    """

    batches: list[dict[str, pa.Table]]
    drift: int

    @property
    def rows(self) -> int:
        """Rows of all streams in all batches."""
        return sum(table.num_rows for batch in self.batches for table in batch.values())

    def stream(self, name: str) -> pa.Table:
        """Return all rows of a stream."""
        return pa.concat_tables([batch[name] for batch in self.batches])


def draw(batches: int, rows: int, seed: int = 5) -> TransferArrivals:
    """Return random batches of about `rows` rows of all streams together, with the drift half way through.

    A batch spans a minute of event time. Rows arrive up to LATENESS out of order, and none too late: the times of a
    batch begin at the end of the batch before, less a part of LATENESS.
    """
    rng = np.random.default_rng(seed)
    drift = batches // 2
    shares = {"transfers": 0.33, "logins": 0.32, "payees": 0.32, "warnings": 0.03}
    made = []
    numbers = dict.fromkeys(COLUMNS, 0)
    for k in range(batches):
        sizes = {"account": ACCOUNTS, "device": MANY if k < drift else FEW, "payee": FEW if k < drift else MANY}
        tables = {}
        for name, keys in COLUMNS.items():
            count = round(rows * shares[name])
            late_us = rng.integers(0, LATENESS // timedelta(microseconds=2), count)
            at = BEGIN_US + k * BATCH_US + np.sort(rng.integers(0, BATCH_US, count)) - late_us
            columns = [pa.array(rng.integers(0, sizes[key], count)) for key in keys]
            number = pa.array(np.arange(numbers[name], numbers[name] + count))
            numbers[name] += count
            tables[name] = pa.Table.from_arrays([*columns, number, pa.array(at).cast(AT)], schema=schema(name))
        made.append(tables)
    return TransferArrivals(made, drift)


def exact_counts(streams: Mapping[str, pa.Table]) -> Int64s:
    """Return the number of results of each transfer, int64[transfers], by counting without a join.

    Given a transfer, only the time relates the other three streams to each other: four rows are a result if they lie
    within WINDOW. So for each time s that the oldest of the four can have, the number of results is the product of the
    numbers of rows of each stream in [s, s + WINDOW], less the product of those in (s, s + WINDOW].
    O((rows + pairs of a transfer and a row that joins it) log rows).
    """
    transfers = streams["transfers"]
    at = _since_begin(transfers)
    # One number combines key and time, so that a range of times of one key is a range of numbers.
    arms = [
        (
            np.sort(_key(streams[name], COLUMNS[name]) * _WIDE + _since_begin(streams[name])),
            _key(transfers, COLUMNS[name]) * _WIDE,
        )
        for name in COLUMNS
        if name != "transfers"
    ]
    met = np.ones(len(at), bool)
    for rows, base in arms:
        met &= np.searchsorted(rows, base + at - _SPAN_US) < np.searchsorted(rows, base + at + _SPAN_US, side="right")
    candidates = np.flatnonzero(met)
    moments = [candidates * _WIDE + at[candidates]]
    for rows, base in arms:
        low = np.searchsorted(rows, base[candidates] + at[candidates] - _SPAN_US)
        lengths = np.searchsorted(rows, base[candidates] + at[candidates]) - low
        who = np.repeat(candidates, lengths)
        index = np.arange(len(who)) - np.repeat(np.cumsum(lengths) - lengths - low, lengths)
        moments.append(who * _WIDE + rows[index] - base[who])
    who, oldest = np.divmod(np.unique(np.concatenate(moments)), _WIDE)
    since = np.ones(len(who), np.int64)
    after = (at[who] > oldest).astype(np.int64)
    for rows, base in arms:
        end = np.searchsorted(rows, base[who] + oldest + _SPAN_US, side="right")
        since *= end - np.searchsorted(rows, base[who] + oldest)
        after *= end - np.searchsorted(rows, base[who] + oldest, side="right")
    counts = np.zeros(len(at), np.int64)
    np.add.at(counts, who, since - after)
    return counts


def _since_begin(table: pa.Table) -> Int64s:
    """Return event times in microseconds since one batch before BEGIN_US, so that all are positive."""
    times: Int64s = table.column("at").cast(pa.int64()).to_numpy()
    return times - (BEGIN_US - BATCH_US)


def _key(table: pa.Table, names: Sequence[str]) -> Int64s:
    """Return the key columns of each row as one number."""
    key: Int64s = table.column(names[0]).to_numpy().copy()
    for name in names[1:]:
        key = key * max(FEW, MANY) + table.column(name).to_numpy()
    return key

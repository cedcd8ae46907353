"""NEXMark: persons, auctions and bids, and the queries of the benchmark that are joins, or aggregates on joins.

The streams have the columns and the shares of the benchmark: of 50 events, 1 is a person, 3 are auctions and 46 bids.
Keys are drawn as in the benchmark: sellers and bidders are among the newest persons, half of them hot; bids are for the
newest auctions. (The hot persons change ten times as often as in the benchmark, so that short runs have many of them.)
The queries are those of github.com/nexmark/nexmark, in the dialect of `eddy.sql`. Query 6 is the average of the last
ten auctions of each seller as they are now; the benchmark writes AVG(…) OVER (… ROWS 10 PRECEDING). Source: Tucker,
Tufte, Papadimos, Maier, "NEXMark, a benchmark for queries over data streams", 2002.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa

from eddy import Stream, Table, Unbounded

AT = pa.timestamp("ms")
PERSON = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("emailAddress", pa.string()),
        ("creditCard", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("dateTime", AT),
        ("extra", pa.string()),
    ]
)
AUCTION = pa.schema(
    [
        ("id", pa.int64()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),
        ("reserve", pa.int64()),
        ("dateTime", AT),
        ("expires", AT),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("dateTime", AT),
        ("extra", pa.string()),
    ]
)
SIDE_INPUT = pa.schema([("key", pa.int64()), ("side", pa.string())])
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Q3 = """
SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
"""
Q4_INNER = """
SELECT MAX(B.price) AS final, A.category
FROM auction A, bid B
WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
GROUP BY A.id, A.category
"""
Q4 = f"""
SELECT Q.category, AVG(Q.final) AS average
FROM ({Q4_INNER}) Q
GROUP BY Q.category
"""
Q6 = """
SELECT Q.seller, AVG(Q.final) AS average
FROM (
  SELECT seller, price AS final, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS recent
  FROM (
    SELECT A.id, A.seller, A.expires, B.price,
      ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS rownum
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  ) WHERE rownum <= 1
) Q WHERE Q.recent <= 10
GROUP BY Q.seller
"""
HOPS = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
TUMBLES = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))"
Q5 = f"""
SELECT AuctionBids.auction, AuctionBids.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
  FROM {HOPS} GROUP BY auction, window_start, window_end
) AS AuctionBids
JOIN (
  SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
  FROM (
    SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM {HOPS} GROUP BY auction, window_start, window_end
  ) AS CountBids
  GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
  AND AuctionBids.num >= MaxBids.maxn
"""
Q7 = f"""
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra
FROM bid B
JOIN (
  SELECT MAX(price) AS maxprice, window_end AS dateTime FROM {TUMBLES} GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime
"""
Q9 = """
SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
  auction, bidder, price, bid_dateTime, bid_extra
FROM (
  SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS rownum
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
) WHERE rownum <= 1
"""
Q13 = """
SELECT B.auction, B.bidder, B.price, B.dateTime, S.side
FROM bid B JOIN side_input FOR SYSTEM_TIME AS OF PROCTIME() AS S ON B.auction % 10000 = S.key
"""
Q18 = """
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number FROM bid
) WHERE rank_number <= 1
"""
Q19 = """
SELECT auction, bidder, price, channel, url, dateTime, extra, rank_number
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
) WHERE rank_number <= 10
"""
Q8 = """
SELECT P.id, P.name, P.starttime
FROM (
  SELECT id, name, TUMBLE_START(dateTime, INTERVAL '10' SECOND) AS starttime
  FROM person GROUP BY id, name, TUMBLE(dateTime, INTERVAL '10' SECOND)
) P
JOIN (
  SELECT seller, TUMBLE_START(dateTime, INTERVAL '10' SECOND) AS starttime
  FROM auction GROUP BY seller, TUMBLE(dateTime, INTERVAL '10' SECOND)
) A
ON P.id = A.seller AND P.starttime = A.starttime
"""
Q20 = """
SELECT auction, bidder, price, channel, url, B.dateTime, B.extra, itemName, description, initialBid, reserve,
  A.dateTime, expires, seller, category, A.extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10
"""
Q23 = """
SELECT bidder, price, channel, url, B.extra AS bid_extra, P.id AS person_id, name, emailAddress, creditCard, city,
  state, P.extra AS person_extra, itemName, description, initialBid, reserve, A.dateTime AS auction_dateTime,
  expires, seller, category, A.extra AS auction_extra
FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder
"""
QUERIES = {
    "q3": Q3,
    "q4-inner": Q4_INNER,
    "q4": Q4,
    "q5": Q5,
    "q6": Q6,
    "q7": Q7,
    "q8": Q8,
    "q9": Q9,
    "q13": Q13,
    "q18": Q18,
    "q19": Q19,
    "q20": Q20,
    "q23": Q23,
}
"""The queries that are joins, aggregates on joins, or the first rows of groups."""
CHANGING = ("q4", "q5", "q6", "q9", "q18", "q19")
"""Queries whose rows later rows take back."""
WINDOWED = ("q5", "q7", "q8", "q13", "q18", "q19")
"""Queries whose windows follow from their text, or that keep no rows of streams; the others join all rows ever seen, as
in the benchmark."""


def references(text: str) -> str:
    """Return a query in the dialect of DuckDB, which has no TUMBLE, no HOP and no PROCTIME."""
    for windows, every, starts in ((TUMBLES, 10, 1), (HOPS, 2, 5)):
        first = f"TIME_BUCKET(INTERVAL '{every}' SECOND, dateTime) - INTERVAL '{every}' SECOND * hop"
        bounds = f"{first} AS window_start, {first} + INTERVAL '10' SECOND AS window_end"
        text = text.replace(windows, f"(SELECT bid.*, {bounds} FROM bid, generate_series(0, {starts - 1}) hops(hop))")
    start = "TIME_BUCKET(INTERVAL '10' SECOND, dateTime)"
    for function in ("TUMBLE_START", "TUMBLE"):
        text = text.replace(f"{function}(dateTime, INTERVAL '10' SECOND)", start)
    # Of equal prices, the earlier one comes first.
    text = text.replace("ORDER BY price DESC)", "ORDER BY price DESC, dateTime)")
    return text.replace(" FOR SYSTEM_TIME AS OF PROCTIME()", "")


def streams(name: str) -> list[Stream]:
    """Return the streams of a query."""
    window = None if name in WINDOWED else Unbounded()
    schemas = {"person": PERSON, "auction": AUCTION, "bid": BID}
    windowed = [Stream(event, schema, window=window, time="dateTime") for event, schema in schemas.items()]
    return [*windowed, Table("side_input", SIDE_INPUT, key="key")]


def events(count: int, seed: int, spacing: timedelta = timedelta(milliseconds=20)) -> dict[str, pa.Table]:
    """Return `count` events by stream, in order of event time, at a distance of `spacing`."""
    rng = np.random.default_rng(seed)
    number = np.arange(count)
    kind = number % 50
    times = number * int(spacing / timedelta(milliseconds=1))
    persons, auctions, bids = (number[kind == 0], number[(kind >= 1) & (kind <= 3)], number[kind >= 4])

    def newest(at: np.ndarray, per_epoch: int, first: int, span: int) -> np.ndarray:
        """Return ids among the newest ids so far; half of the rows have the newest multiple of 10."""
        last = (at // 50) * per_epoch + np.minimum(at % 50, per_epoch) - 1
        drawn = last - (rng.random(len(at)) * np.minimum(span, last + 1)).astype(np.int64)
        hot = last // 10 * 10
        return first + np.where(rng.random(len(at)) < 0.5, hot, drawn)

    def words(prefix: str, ids: np.ndarray) -> pa.Array:
        return pa.array([f"{prefix}{i}" for i in ids.tolist()])

    def stamps(ticks: np.ndarray) -> pa.Array:
        return pa.array(ticks.astype(np.int64)).cast(AT)

    place = rng.integers(0, len(STATES), len(persons))
    ids = 1000 + np.arange(len(persons))
    person = pa.table(
        [
            pa.array(ids),
            words("person ", ids),
            words("mail", ids),
            words("card", ids),
            pa.array([CITIES[i] for i in place]),
            pa.array([STATES[i] for i in place]),
            stamps(times[persons]),
            words("x", ids),
        ],
        schema=PERSON,
    )
    ids, first = 1000 + np.arange(len(auctions)), rng.integers(1, 1000, len(auctions))
    auction = pa.table(
        [
            pa.array(ids),
            words("item ", ids),
            words("about ", ids),
            pa.array(first),
            pa.array(first * 2),
            stamps(times[auctions]),
            stamps(times[auctions] + rng.integers(1_000, 20_000, len(auctions))),
            pa.array(newest(auctions, 1, 1000, 1000)),
            pa.array(10 + rng.integers(0, 5, len(auctions))),
            words("y", ids),
        ],
        schema=AUCTION,
    )
    channel = rng.integers(0, len(CHANNELS), len(bids))
    bid = pa.table(
        [
            pa.array(newest(bids, 3, 1000, 100)),
            pa.array(newest(bids, 1, 1000, 1000)),
            pa.array(np.round(10 ** (rng.random(len(bids)) * 6)).astype(np.int64)),
            pa.array([CHANNELS[i] for i in channel]),
            words("https://auction/", bids),
            stamps(times[bids]),
            words("z", bids % 97),
        ],
        schema=BID,
    )
    return {"person": person, "auction": auction, "bid": bid}


def side_input() -> pa.Table:
    """Return the table that q13 looks up, as in the benchmark: 10 000 keys."""
    keys = np.arange(10_000)
    return pa.table([pa.array(keys), pa.array([f"value {key}" for key in keys])], schema=SIDE_INPUT)

"""Window table functions of Flink give the queries of the older form."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eddy import SqlError, Stream, sql, to_sql
from eddy.query.text import query_text

BIDS = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("t", pa.timestamp("ms"))])
STREAMS = [Stream("bid", BIDS, time="t"), Stream("other", BIDS, time="t")]
TUMBLE = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(t), INTERVAL '10' SECOND))"


@pytest.mark.parametrize(
    ("text", "older"),
    [
        (
            f"SELECT auction, MAX(price) AS m, window_start, window_end FROM {TUMBLE}"
            " GROUP BY auction, window_start, window_end HAVING MAX(price) > 3",
            "SELECT auction, MAX(price) AS m, TUMBLE_START(t, INTERVAL '10' SECOND) AS window_start,"
            " TUMBLE_END(t, INTERVAL '10' SECOND) AS window_end FROM bid"
            " GROUP BY auction, TUMBLE(t, INTERVAL '10' SECOND) HAVING MAX(price) > 3",
        ),
        (
            "SELECT b.auction, COUNT(*) AS n, b.window_end AS e FROM table ( hop(TABLE bid, DESCRIPTOR(t),"
            " INTERVAL '2' SECOND, INTERVAL '10' SECOND) ) AS b GROUP BY b.auction, b.window_start, b.window_end",
            "SELECT b.auction, COUNT(*) AS n, HOP_END(t, INTERVAL '2' SECOND, INTERVAL '10' SECOND) AS e FROM bid AS b"
            " GROUP BY b.auction, HOP(t, INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
        ),
        (
            "SELECT COUNT(*) AS n FROM TABLE(SESSION(TABLE bid, DESCRIPTOR(t), INTERVAL '10' SECOND))"
            " WHERE price > 3 GROUP BY window_end",
            "SELECT COUNT(*) AS n FROM bid WHERE price > 3 GROUP BY SESSION(t, INTERVAL '10' SECOND)",
        ),
    ],
)
def test_both_forms_are_one_query(text: str, older: str) -> None:
    query = sql(text, STREAMS)
    assert query_text(query) == query_text(sql(older, STREAMS))
    assert query_text(sql(to_sql(query), STREAMS)) == query_text(query)
    assert sql(f"EXPLAIN {text}", STREAMS).startswith("stream bid")


@pytest.mark.parametrize(
    "text",
    [f"-- {TUMBLE}\n%s", f"/* '{TUMBLE}\n*/ %s", f"%s -- {TUMBLE}", f"%s AND o.s = '{TUMBLE.replace(chr(39), '')}'"],
)
def test_comments_and_strings_are_not_read(text: str) -> None:
    plain = "SELECT bid.price FROM bid JOIN o ON bid.auction = o.auction"
    streams = [STREAMS[0], Stream("o", pa.schema([("auction", pa.int64()), ("s", pa.string())]))]
    query = sql(text % plain, streams)
    if "o.s" in text:
        assert TUMBLE.replace("'", "") in to_sql(query)
    else:
        assert query_text(query) == query_text(sql(plain, streams))


@pytest.mark.parametrize(
    ("text", "word", "message"),
    [
        (f"SELECT COUNT(*) AS n FROM\n {TUMBLE}", "bid", "groups by window_start and window_end"),
        (f"SELECT price FROM {TUMBLE}", "bid", "groups by window_start and window_end"),
        (f"SELECT COUNT(zz) AS n FROM {TUMBLE} GROUP BY window_end", "zz", "no column 'zz'"),
        (f"SELECT COUNT(*) AS n FROM {TUMBLE} GROUP BY window_end".replace("(t)", "(q)"), "bid", "no column 'q'"),
        (
            f"SELECT COUNT(*) AS n FROM {TUMBLE} b JOIN other ON b.auction = other.auction GROUP BY window_end",
            "bid",
            "only relation of its SELECT",
        ),
        (f"SELECT COUNT(*) AS n FROM {TUMBLE.replace('bid', 'bids')} GROUP BY window_end", "bids", "no stream 'bids'"),
    ],
)
def test_refusals(text: str, word: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        sql(text, STREAMS)
    assert text.splitlines()[caught.value.line - 1][caught.value.column - 1 :].startswith(word)

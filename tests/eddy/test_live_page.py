"""The live page: what it serves, whom it refuses, and that it never disturbs a push."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest

import eddy
from eddy.pipeline.turn import Turn
from eddy.show.exposition import exposition
from eddy.show.pages import RecentFigures, document, page
from eddy.show.server import CONNECTIONS, Server
from eddy.show.sheet import Metric, Sheet
from eddy.watch.board import Board
from tests.chromium import PROGRAM, Chromium
from tests.eddy.decision_cases import CHAIN, A, B, push
from tests.eddy.queries import make_query
from tests.eddy.test_explain_formats import MEAN

EVERY = 0.05


@pytest.fixture
def runtime() -> eddy.Runtime:
    chain_runtime = eddy.Runtime(make_query(CHAIN, eddy.Rows(40)), A, policy="fixed")
    push(chain_runtime, 1, 20)
    return chain_runtime


@pytest.fixture
def server(runtime: eddy.Runtime) -> Iterator[Server]:
    with eddy.serve(runtime, 0, name='a"b\\', every=EVERY) as served:
        yield served


def ask(
    server: Server, path: str, method: str = "GET", host: str | None = "localhost", port: int | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of an answer; without a host, the request has no Host header."""
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    line.putrequest(method, path, skip_host=True)
    if host is not None:
        line.putheader("Host", host if port is None else f"{host}:{port}")
    line.endheaders()
    answer = line.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def figures(server: Server) -> dict[str, Any]:
    sheet: dict[str, Any] = json.loads(ask(server, "/figures")[2])
    return sheet


def value(sheet: dict[str, Any], name: str) -> Any:
    return next(figure["value"] for figure in sheet["figures"] if figure["name"] == name)


def odd_runtime() -> eddy.Runtime:
    """Return a runtime with a stream whose name is markup, which has changed its plan."""
    schema = pa.schema([("k", pa.int64())])
    streams = [eddy.Stream(name, schema, window=eddy.Rows(9)) for name in (MEAN, "S", "T")]
    name = '"' + MEAN.replace('"', '""') + '"'
    runtime = eddy.Runtime(eddy.Query(streams, [f"{name}.k = S.k", "S.k = T.k"]), policy="fixed")
    runtime.push({MEAN: [{"k": 1}], "S": [{"k": 1}], "T": [{"k": 1}]}, order=[0, 1, 2])
    runtime.transition(f"(S T) {name}")
    return runtime


def test_figures_follow_the_pushes(runtime: eddy.Runtime, server: Server) -> None:
    assert value(figures(server), "arrivals") == 80
    push(runtime, 2, 20)
    runtime.transition(B)
    time.sleep(2 * EVERY)
    sheet = figures(server)
    counts = runtime.metrics()
    assert [value(sheet, name) for name in ("arrivals", "results", "changes", "state_bytes")] == [
        160, counts["results"], 1, counts["bytes"],
    ]  # fmt: skip
    assert [plan["plan"] for plan in sheet["plans"]] == [B]
    tables = {table["title"]: table for table in sheet["tables"]}
    assert tables["Changes of plan, newest first"]["rows"][0][:5] == [160, "", B, "", "asked for"]
    assert [row[1] for row in tables["Streams"]["rows"]] == ["S", "T", "U", "R"]


def test_events_come_while_rows_are_pushed(runtime: eddy.Runtime, server: Server) -> None:
    with urlopen(f"{server.url}events", timeout=30) as events:
        assert events.headers["Content-Type"].startswith("text/event-stream")
        sheets = []
        for seed in range(3):
            push(runtime, seed, 20)
            time.sleep(2 * EVERY)
            while (line := events.readline()) and not line.startswith(b"data: "):
                pass
            sheets.append(json.loads(line[6:]))
    arrivals = [value(sheet, "arrivals") for sheet in sheets]
    assert arrivals == sorted(arrivals)
    assert all(svg.startswith("<svg") for sheet in sheets for plan in sheet["plans"] for svg in plan["svgs"])
    assert sheets[-1]["curves"]["arrivals"][-1][1] == arrivals[-1]


def test_an_engine_is_served(server: Server) -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s"))])
    engine = eddy.Engine([eddy.Stream(name, schema, time="at") for name in "RS"])
    streams = [eddy.Stream(name, schema, window=eddy.Range(timedelta(seconds=9)), time="at") for name in "RS"]
    query = engine.start("pairs", eddy.Query(streams, ["R.k = S.k"]))
    with eddy.serve(engine, 0, every=EVERY) as other:
        assert other.port != server.port
        engine.push({"R": [{"k": 1, "at": 86_400}], "S": [{"k": 1, "at": 86_401}]})
        query.stop()
        time.sleep(2 * EVERY)
        sheet = figures(other)
    tables = {table["title"]: table["rows"] for table in sheet["tables"]}
    assert tables["Queries"][0][:5] == ["pairs", "stopped", 0, 0, 1]
    assert [row[3] for row in tables["Control elements, newest first"]] == ["immediate stop", "fresh start"]
    (watermark,) = [figure for figure in sheet["figures"] if figure["name"] == "watermark_timestamp_seconds"]
    assert (watermark["value"], watermark["shown"]) == (86_400, "1970-01-02 00:00:00")
    with pytest.raises(eddy.InputError, match=r"an eddy\.Runtime or eddy\.Engine is served, not RunningQuery"):
        eddy.serve(query, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_only_reading_is_possible(server: Server, method: str) -> None:
    status, headers, _ = ask(server, "/figures", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/../page.html", "/page.html", "/figures/", "/figures?x=1", "/%66igures", "*"])
def test_there_are_no_other_paths(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_the_host_header_must_name_this_machine(server: Server) -> None:
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "[::1]", "192.0.2.7"):
        assert ask(server, "/figures", host=host, port=server.port)[0] == 200, host
    for path in ("/", "/events", "/figures", "/metrics"):
        for host in ("rebound.example", "localhost.rebound.example", "", None):
            status, _, body = ask(server, path, host=host)
            assert status == 403, (path, host)
            assert b"arrivals" not in body


def test_further_names_can_be_allowed(runtime: eddy.Runtime) -> None:
    with eddy.serve(runtime, 0, hosts=["Monitor.example"]) as served:
        assert ask(served, "/figures", host="monitor.example")[0] == 200
        assert ask(served, "/figures", host="other.example")[0] == 403
    with eddy.serve(runtime, 0, hosts=["*"]) as served:
        assert ask(served, "/figures", host="other.example")[0] == 200


def test_a_taken_port_is_a_clear_error_and_a_closed_one_is_free(runtime: eddy.Runtime, server: Server) -> None:
    port = server.port
    with pytest.raises(
        eddy.InputError, match=rf"serve: cannot listen on 127\.0\.0\.1 port {port}: .*pass another port, or 0"
    ):
        eddy.serve(runtime, port)
    server.close()
    server.close()
    with eddy.serve(runtime, port) as again:
        assert ask(again, "/figures")[0] == 200
    for wrong in (-1, 70_000):
        with pytest.raises(eddy.InputError, match="cannot listen"):
            eddy.serve(runtime, wrong)
    with pytest.raises(eddy.InputError, match="every=0"):
        eddy.serve(runtime, 0, every=0)


def test_the_page_is_whole_and_loads_nothing(server: Server) -> None:
    status, headers, body = ask(server, "/")
    text = body.decode()
    assert (status, body) == (200, page())
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    for kind in ("script", "style"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in policy
    assert not re.search(r"""(src|href)=|@import|url\(|innerHTML|document\.write|style=""", text)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert ask(server, "/", "HEAD")[2] == b""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: the script of the page is not run")
def test_the_script_shows_an_event_as_text(tmp_path: Path) -> None:
    board = Board(odd_runtime(), "<b>odd</b>", EVERY)
    sheet = board.sheet()
    assert sheet is not None
    (tmp_path / "event").write_text(json.dumps(document(sheet, RecentFigures(), True)))
    (tmp_path / "page").write_bytes(page())
    command = ["node", str(Path(__file__).with_name("page.js")), str(tmp_path / "page"), str(tmp_path / "event")]
    opened = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert (opened["url"], opened["title"]) == ("/events", "<b>odd</b>: Runtime")
    shown = opened["shown"]
    assert MEAN in shown["tables"]
    assert "Rows that arrived|3" in shown["figures"]
    assert "(S T)" in shown["plans"]
    assert "asked for" in shown["tables"]
    assert "svg" in opened["names"]
    assert not {"script", "parsererror"} & set(opened["names"])


@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: the page is not opened in a browser")
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    runtime = odd_runtime()
    with eddy.serve(runtime, 0, every=EVERY) as served, Chromium(tmp_path) as browser:
        browser.open(served.url)
        browser.wait("document.querySelectorAll('svg').length >= 3")
        shown = browser.value("document.body.innerText")
        assert MEAN in shown
        assert "asked for" in shown
        # The page follows the runtime, and a name that is markup was not run.
        for arrivals in (4, 5):
            runtime.push({"S": [{"k": 2}]})
            browser.wait(f"/Rows that arrived\\s+{arrivals}\\b/.test(document.body.innerText)")
        assert browser.value("document.querySelectorAll('main script').length") == 0
        assert browser.picture().startswith(b"\x89PNG")


# Prometheus


def test_prometheus_reads_the_figures(runtime: eddy.Runtime, server: Server) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    status, headers, body = ask(server, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = [sample for family in text_string_to_metric_families(body.decode()) for sample in family.samples]
    assert {sample.labels["engine"] for sample in samples} == {'a"b\\'}
    measured = {(sample.name, sample.labels.get("stream")): sample.value for sample in samples}
    counts = runtime.metrics()
    assert measured["eddy_arrivals_total", None] == counts["arrivals"]
    assert measured["eddy_results_total", None] == counts["results"]
    assert measured["eddy_state_bytes", None] == counts["bytes"]
    for name, state in counts["states"].items():
        assert measured["eddy_stream_rows", name] == state["rows"]
    buckets = [sample for sample in samples if sample.name == "eddy_push_duration_seconds_bucket"]
    pushes = [bucket.value for bucket in buckets]
    assert (pushes, buckets[-1].labels["le"]) == (sorted(pushes), "+Inf")
    assert pushes[-1] == measured["eddy_push_duration_seconds_count", None] == runtime.pushes
    assert measured["eddy_push_duration_seconds_sum", None] > 0
    assert "push_duration_seconds" not in {figure["name"] for figure in figures(server)["figures"]}


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [(pa.timestamp("ms"), "eddy_watermark_timestamp_seconds", 1.5), (pa.int64(), "eddy_watermark", 1500)],
)
def test_the_watermark_has_a_unit(kind: pa.DataType, name: str, shown: float) -> None:
    schema = pa.schema([("k", pa.int64()), ("at", kind)])
    window = eddy.Range(timedelta(seconds=9) if pa.types.is_timestamp(kind) else 9)
    streams = [eddy.Stream(name, schema, window=window, time="at") for name in "RS"]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]))
    rows = pa.record_batch({"k": [1], "at": pa.array([1500], kind)})
    runtime.push({"R": rows, "S": rows})
    with eddy.serve(runtime, 0, every=EVERY) as server:
        text = ask(server, "/metrics")[2].decode()
    assert f'{name}{{engine="eddy"}} {shown}\n' in text
    unit = "Unix time" if "seconds" in name else "in the unit of the time columns"
    assert f"# HELP {name} Watermark, {unit}\n" in text


def test_servers_of_a_process_have_names_of_their_own(runtime: eddy.Runtime) -> None:
    with eddy.serve(runtime, 0) as first, eddy.serve(runtime, 0) as second, eddy.serve(runtime, 0, name="third"):
        assert [figures(served)["name"] for served in (first, second)] == ["eddy", "eddy-2"]
        with pytest.raises(eddy.InputError, match="serves figures under the name 'third' already"):
            eddy.serve(runtime, 0, name="third")
        first.close()
        with eddy.serve(runtime, 0) as again:
            assert figures(again)["name"] == "eddy"


def test_the_bytes_of_the_page_add_up(runtime: eddy.Runtime, server: Server) -> None:
    (table,) = [sheet_table for sheet_table in figures(server)["tables"] if sheet_table["title"] == "Memory"]
    taken = [row[-1] for row in table["rows"]]
    assert min(taken) >= 0
    assert sum(taken) == runtime.nbytes


def test_odd_labels_and_values_survive_prometheus() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    names = ['a"b', "a\\b", "a\nb", "{}=,", "é\u2028", MEAN]
    figures = [Metric("n", "a \\ b\nc", k + 0.5, labels=(("of", name),)) for k, name in enumerate(names)]
    figures += [Metric("none", "", None), Metric("much", "", float("inf")), Metric("big", "", 1 << 60, counter=True)]
    text = exposition(Sheet("t", "n", "engine", 0.0, tuple(figures)))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {sample.labels["of"]: sample.value for sample in families["eddy_n"].samples} == dict(
        zip(names, [k + 0.5 for k in range(len(names))], strict=True)
    )
    assert families["eddy_big"].samples[0].value == float(1 << 60)
    assert families.keys() == {"eddy_n", "eddy_big"}


# Threads


def test_readers_do_not_disturb_pushes() -> None:
    """Pushes with four readers give the results of pushes without any, and none is refused."""
    query = make_query(CHAIN, eddy.Rows(40))
    alone, watched = (eddy.Runtime(query, A, policy="cost", decide_every=200, count_only=True) for _ in range(2))
    board = Board(watched, "watched", 0.0)
    ended, seen, problems = threading.Event(), list[float](), list[BaseException]()

    def look() -> None:
        try:
            while not ended.is_set():
                sheet = board.sheet()
                assert sheet is not None
                seen.append(sheet.value("arrivals") or 0)
        except BaseException as problem:
            problems.append(problem)

    readers = [threading.Thread(target=look) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        for seed in range(150):
            assert push(watched, seed, 20) == push(alone, seed, 20)
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not problems
    assert watched.metrics()["results"] == alone.metrics()["results"]
    assert len(set(seen)) > 10
    # Figures are those between two pushes.
    assert {arrivals % 80 for arrivals in seen} == {0}


def test_a_long_push_delays_no_answer() -> None:
    """While a push is under way, a reader gets the figures from before it."""
    schema = pa.schema([("k", pa.int64())])
    begun, go_on = threading.Event(), threading.Event()

    def slow(batch: pa.RecordBatch) -> pa.Array:
        begun.set()
        assert go_on.wait(30)
        return pa.array([True] * len(batch))

    streams = [
        eddy.Stream("R", schema, window=eddy.Rows(9), filter=slow),
        eddy.Stream("S", schema, window=eddy.Rows(9)),
    ]
    runtime = eddy.Runtime(eddy.Query(streams, ["R.k = S.k"]))
    board = Board(runtime, "slow", 0.0)
    pushing = threading.Thread(target=lambda: runtime.push({"R": [{"k": 1}]}))
    pushing.start()
    assert begun.wait(30)
    sheet = board.sheet()
    assert sheet is not None
    assert sheet.value("arrivals") == 0
    go_on.set()
    pushing.join()
    after = board.sheet()
    assert after is not None
    assert after.value("arrivals") == 1


def test_a_call_waits_for_a_reader_and_not_for_another_call(runtime: eddy.Runtime) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read() -> None:
        reading.set()
        assert go_on.wait(30)

    reader = threading.Thread(target=lambda: runtime._turn.read(read))
    reader.start()
    assert reading.wait(30)
    assert not runtime._turn.read(lambda: pytest.fail("two read at once"))
    threading.Timer(0.1, go_on.set).start()
    began = time.perf_counter()
    push(runtime, 3, 20)
    assert time.perf_counter() - began > 0.05
    reader.join()
    assert runtime.position == 160


def test_nobody_reads_during_a_call() -> None:
    turn = Turn()
    turn.take(sys._getframe(), "push")
    assert not turn.read(lambda: pytest.fail("it reads during a call"))
    turn.give_back()
    seen: list[int] = []
    assert turn.read(lambda: seen.append(1))
    assert seen == [1]


def test_figures_that_fail_do_not_fail_a_push(runtime: eddy.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(runtime, "broken", 0.0)
    before = board.sheet()
    monkeypatch.setattr(eddy.Runtime, "_description", lambda *_, **__: 1 / 0)
    runtime._turn.asked = board.publish
    assert push(runtime, 3, 20).num_rows
    assert runtime._turn.asked is None
    assert board.sheet() is before


def test_more_readers_than_connections_are_turned_away(server: Server) -> None:
    lines = [urlopen(f"{server.url}events", timeout=30) for _ in range(CONNECTIONS)]
    try:
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(server, "/figures")
    finally:
        for line in lines:
            line.close()

"""`eddy top`: figures of a page in the terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import eddy
from eddy.show.top import app, figures, figures_url
from tests.eddy.test_explain_formats import MEAN
from tests.eddy.test_live_page import odd_runtime

RUNNER = CliRunner(env={"COLUMNS": "200"})


def test_it_prints_the_figures_without_control_characters() -> None:
    runtime = odd_runtime()
    with eddy.serve(runtime, 0, name="odd") as server:
        done = RUNNER.invoke(app, [str(server.port), "--once"])
    assert done.exit_code == 0, done.output
    assert "Runtime odd" in done.output
    assert "asked for" in done.output
    assert MEAN.replace("\x1b", "�") in done.output
    assert "\x1b" not in done.output


@pytest.mark.parametrize("width", [80, 120, 200])
def test_headers_and_names_are_whole(width: int) -> None:
    schema = pa.schema([("user", pa.int64()), ("at", pa.timestamp("s"))])
    names = ["impressions", "clicks", "conversions", "sessions_of_users"]
    streams = [eddy.Stream(name, schema, window=eddy.Range(timedelta(minutes=5)), time="at") for name in names]
    runtime = eddy.Runtime(eddy.Query(streams, [f"{names[0]}.user = {name}.user" for name in names[1:]]))
    runtime.push({name: [{"user": 1, "at": datetime(2026, 1, 1)}] for name in names})
    with eddy.serve(runtime, 0) as server:
        done = RUNNER.invoke(app, [str(server.port), "--once"], env={"COLUMNS": str(width)})
        tables = figures(server.url + "figures")["tables"]
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= width
    heads = [
        head for table in tables for k, head in enumerate(table["columns"]) if any(row[k] for row in table["rows"])
    ]
    for text in (*names, "RANGE 0:05:00", "room for input and results, groups, tables", *heads):
        assert any(text in line for line in lines), text


def test_q_ends_it() -> None:
    primary, secondary = pty.openpty()
    runtime = odd_runtime()
    with eddy.serve(runtime, 0) as server:
        command = [sys.executable, "-m", "eddy", "top", str(server.port)]
        child = subprocess.Popen(command, stdin=secondary, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.write(primary, b"q")
        out, _ = child.communicate(timeout=300)
    os.close(primary)
    os.close(secondary)
    assert child.returncode == 0, out


@pytest.mark.parametrize(
    "given", ["file:///etc/passwd", "ftp://host/", "http:///", "http://host/page.html", "http://host/x"]
)
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(eddy.InputError, match="is no address of a page"):
        figures_url(given)
    assert RUNNER.invoke(app, [given, "--once"]).exit_code == 1


@pytest.fixture(params=[b"no json", b"[]", json.dumps({"title": "x"}).encode()])
def stranger(request: pytest.FixtureRequest) -> Iterator[int]:
    """Return the port of a server that is not a page of eddy."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(request.param)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield server.server_port
        thread.join()


def test_an_answer_of_another_server_is_refused(stranger: int) -> None:
    done = RUNNER.invoke(app, [str(stranger), "--once"])
    assert done.exit_code == 1
    assert "there are no figures at" in done.output


def test_nothing_listens() -> None:
    with eddy.serve(odd_runtime(), 0) as server:
        port = server.port
    done = RUNNER.invoke(app, [f"localhost:{port}", "--once"])
    assert done.exit_code == 1
    assert "start a page with eddy.serve(engine)" in done.output

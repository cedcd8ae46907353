"""The HTTP server of figures: a page, its stream of events, the same as JSON, and the figures for Prometheus.

The server answers only GET and HEAD of four fixed paths without arguments, and changes nothing. By default the server
listens on localhost. The Host header must name this machine, so a foreign page whose name was made to point at this
address (DNS rebinding) gets no figures. The page loads nothing from other servers, and no other page may frame the
page.
"""

from __future__ import annotations

import ipaddress
import socket
import socketserver
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from eddy.show.exposition import CONTENT_TYPE, exposition
from eddy.show.pages import RecentFigures, as_bytes, document, page, page_policy
from eddy.show.sheet import Sheet
from eddy.uncopied import Uncopied
from stairs.errors import InputError

PORT = 9108
PATHS = ("/", "/events", "/figures", "/metrics")
CONNECTIONS = 32
"""Maximal number of connections at a time; further connections are closed immediately."""
SECONDS = 30.0
"""A connection that neither reads nor sends anything for this time is closed."""

Read = Callable[[], Sheet | None]
"""Returns the newest sheet, None before the first."""


class Server(Uncopied):
    """Serves sheets over HTTP until it is closed.

    read     called in threads of the server, once for each answer
    port     port to listen on; 0: a free port
    address  of the interface to listen on
    hosts    further names of this machine that a Host header may have; "*": any name
    every    seconds between two events
    paths    of PATHS, those that exist
    call     the function that was called, for errors

    Raises InputError if the server cannot listen there.
    """

    _no_copy = "a Server: it has an open port; call eddy.serve again"

    def __init__(
        self,
        read: Read,
        port: int = PORT,
        address: str = "127.0.0.1",
        hosts: Sequence[str] = (),
        every: float = 1.0,
        paths: Collection[str] = PATHS,
        call: str = "serve",
    ) -> None:
        self._address = address
        try:
            self._listening = _Listening(read, port, address, hosts, every, paths)
        except (OSError, OverflowError) as problem:
            raise InputError(
                f"{call}: cannot listen on {address} port {port}: {problem}; pass another port, or 0 for a free one"
            ) from problem
        serve = partial(self._listening.serve_forever, poll_interval=0.1)
        self._thread = threading.Thread(target=serve, name="eddy figures", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._listening.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page."""
        host = "localhost" if self._address in ("", "0.0.0.0", "::") else self._address
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._listening.closing.is_set()

    def close(self) -> None:
        """End the server. Idempotent."""
        self._listening.closing.set()
        self._listening.shutdown()
        self._listening.server_close()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Server({self.url})"


class _Listening(socketserver.ThreadingTCPServer):
    """The socket, and what its handlers share."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS

    def __init__(
        self, read: Read, port: int, address: str, hosts: Sequence[str], every: float, paths: Collection[str]
    ) -> None:
        if ":" in address:
            self.address_family = socket.AF_INET6
        self.read, self.every, self.paths = read, every, paths
        self.record, self.closing = RecentFigures(), threading.Event()
        self._hosts = {host.lower() for host in hosts} | {"localhost", address.lower()}
        self._open = threading.BoundedSemaphore(CONNECTIONS)
        if not _is_loopback(address):
            self._hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        super().__init__((address, port), _Handler)

    def accepts(self, host: str) -> bool:
        """Return whether a Host header names this machine. A numeric address cannot be rebound."""
        name = host.strip().lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        return "*" in self._hosts or name in self._hosts or _is_address(name)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread, unless there are too many connections."""
        if not self._open.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._open.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an error of one connection: the reader has gone away."""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return address == "localhost" or (_is_address(address) and ipaddress.ip_address(address).is_loopback)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request. The connection ends with the answer (HTTP/1.0)."""

    server: _Listening
    server_version, sys_version = "eddy", ""
    timeout = SECONDS

    def do_GET(self) -> None:
        """Answer a GET."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.server.accepts(hosts[0]):
            self._say(
                HTTPStatus.FORBIDDEN, "the Host header names no known name of this machine; serve(hosts=…) adds names"
            )
        elif self.path not in self.server.paths:
            self._say(HTTPStatus.NOT_FOUND, f"there are {', '.join(self.server.paths)}")
        elif self.path == "/":
            self._send(page(), "text/html; charset=utf-8", {"Content-Security-Policy": page_policy()})
        elif self.path == "/events":
            self._events()
        elif (sheet := self.server.read()) is None:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "there are no figures yet")
        elif self.path == "/metrics":
            self._send(exposition(sheet).encode(errors="replace"), CONTENT_TYPE)
        else:
            self._send(as_bytes(document(sheet, self.server.record, False)), "application/json")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "figures can only be read: GET or HEAD", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _events(self) -> None:
        """Send a sheet at the interval of the server, until the reader goes away or the server is closed."""
        self._headers(HTTPStatus.OK, "text/event-stream; charset=utf-8", {})
        while self.command == "GET" and not self.server.closing.is_set():
            sheet = self.server.read()
            if sheet is not None:
                data = as_bytes(document(sheet, self.server.record, True))
                self.wfile.write(b"data: " + data + b"\n\n")
            else:
                self.wfile.write(b": no figures yet\n\n")
            self.wfile.flush()
            self.server.closing.wait(self.server.every)

    def _say(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self._send(f"{text}\n".encode(), "text/plain; charset=utf-8", headers, status)

    def _send(
        self, body: bytes, kind: str, headers: dict[str, str] | None = None, status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self._headers(status, kind, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _headers(self, status: HTTPStatus, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        common = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Frame-Options": "DENY",
        }
        for name, value in {**common, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a page sends a request every second."""

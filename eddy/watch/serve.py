"""`eddy.serve`: a live page of a runtime or an engine of this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from weakref import WeakValueDictionary

from eddy.queries.engine import Engine
from eddy.runtime import Runtime
from eddy.show.server import PORT, Server
from eddy.watch.board import Board
from stairs.errors import InputError

_SERVED: WeakValueDictionary[str, Server] = WeakValueDictionary()
"""Servers of this process by the name of their figures."""
_NAMING = threading.Lock()


def serve(
    engine: Runtime | Engine,
    port: int = PORT,
    *,
    name: str | None = None,
    address: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    every: float = 1.0,
) -> Server:
    """Serve a live page of a runtime or an engine over HTTP; return the server, whose `close` ends it.

    port     0: a free one; `port` and `url` of the server have it
    name     the label of the figures for Prometheus; None = "eddy", or "eddy-2" and so on if the process has other
             servers
    address  of the interface to listen on; "0.0.0.0": all interfaces. There is no authentication
    hosts    names of this machine, besides localhost and addresses, that requests of the page may use; "*": any name
    every    seconds between two figures, at least

    `/` is the page, `/figures` its contents as JSON (read by `eddy top`), `/events` a stream of these contents, and
    `/metrics` the figures for Prometheus. All paths are read-only. The engine is read at the end of a push in its own
    thread, or between two calls. While no reader is connected, the server costs a push some nanoseconds. Raises
    InputError if the server cannot listen there, for a name that another server of this process has, and for an object
    that is neither a runtime nor an engine.

    >>> import pyarrow as pa
    >>> from eddy import Query, Runtime, Stream, serve
    >>> rows = pa.schema([("a", pa.int64())])
    >>> with serve(Runtime(Query([Stream("R", rows), Stream("S", rows)], ["R.a = S.a"])), port=0) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """
    if not isinstance(engine, Runtime | Engine):
        raise InputError(f"serve: an eddy.Runtime or eddy.Engine is served, not {type(engine).__name__}")
    if not every > 0:
        raise InputError(f"serve: every={every!r} is no number of seconds above 0")
    with _NAMING:
        used = {other for other, server in _SERVED.items() if not server.closed}
        if name in used:
            raise InputError(f"serve: this process serves figures under the name {name!r} already; pass another name")
        if name is None:
            name = next(free for n in count(1) if (free := "eddy" if n == 1 else f"eddy-{n}") not in used)
        server = Server(Board(engine, name, every).sheet, port, address, hosts, every)
        _SERVED[name] = server
    return server

"""`eddy.serve`: a live page of a runtime or an engine of this process."""

from __future__ import annotations

from collections.abc import Sequence

from eddy.queries.engine import Engine
from eddy.runtime import Runtime
from eddy.show.board import Board
from eddy.show.server import PORT, Server
from stairs.errors import InputError


def serve(
    engine: Runtime | Engine,
    port: int = PORT,
    *,
    name: str = "eddy",
    address: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    every: float = 1.0,
) -> Server:
    """Serve a live page of a runtime or an engine over HTTP; return the server, whose `close` ends it.

    port     0: a free one; `port` and `url` of the server have it
    name     a label of the figures for Prometheus
    address  of the interface to listen on; "0.0.0.0": all interfaces. There is no authentication
    hosts    names of this machine, besides localhost and addresses, by which the page may be asked for; "*": any
    every    seconds between two figures, at least

    `/` is the page, `/figures` its contents as JSON (`eddy top` reads it), `/events` a stream of them, and `/metrics`
    the figures for Prometheus. All can only be read. The engine is read at the end of a push in its own thread, or
    between two calls; while nobody looks, a push costs some nanoseconds more. Raises InputError if it cannot listen
    there, or for anything but a runtime or an engine.

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
    board = Board(engine, name, every)
    return Server(board.sheet, port, address, hosts, every)

"""An S3 on loopback, the server of `moto`: for the demo, and for tests and benchmarks, which choose its faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.state.object_store import ObjectStore

BUCKET = "checkpoints"
SECRET = "no-secret-on-loopback"
Fault = Callable[[str, str], str | None]
"""(method, path) -> "before", the request fails without effect; "after", it has its effect, and the answer is lost;
"refused", it is forbidden; None, it succeeds. The call may sleep."""


class ObjectServer:
    """A server with one bucket, in this process. Its objects are in memory; all servers of a process share them.

    endpoint  URL of the server
    options   the settings with which an `ObjectStore` reaches it
    requests  (method, path below the bucket) of all requests, in their order
    fault     decides about the fault of each request
    ignored   a header of requests that the server ignores, as some stores ignore conditions

    Raises SparkJoinError if moto is not installed.
    """

    def __init__(self, bucket: str = BUCKET) -> None:
        try:
            from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
            from werkzeug.serving import WSGIRequestHandler, make_server
        except ModuleNotFoundError:
            raise SparkJoinError(
                "an S3 of this process needs a package: pip install 'eddy-join[demo]', or name a store of your own in"
                " the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …)"
            ) from None

        class Quiet(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, *_: object) -> None:
                pass

        self._bucket = bucket
        self._app = DomainDispatcherApplication(create_backend_app)
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault = lambda method, path: None
        self.ignored: str | None = None
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=Quiet)
        threading.Thread(target=self._server.serve_forever, name="eddy object server", daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.options = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "loopback",
            "secret_access_key": SECRET,
        }
        # The server finds the service of a request by its signature, which it does not check.
        scope = "AWS4-HMAC-SHA256 Credential=loopback/20260101/us-east-1/s3/aws4_request"
        made = Request(f"{self.endpoint}/{bucket}", method="PUT", headers={"Authorization": scope})
        urlopen(made).close()
        self.requests.clear()

    def store(self, prefix: str) -> ObjectStore:
        """Return the objects below a prefix."""
        return ObjectStore(f"s3://{self._bucket}/{prefix}", self.options)

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix(f"/{self._bucket}").lstrip("/")
        self.requests.append((method, path or environ.get("QUERY_STRING", "")))
        fault = self.fault(method, path)
        if self.ignored is not None:
            environ.pop(self.ignored, None)
        if fault in ("before", "refused"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        else:
            answer = list(self._app(environ, start if fault is None else _dropped))
            if fault is None:
                return answer
        status = "403 Forbidden" if fault == "refused" else "503 Slow Down"
        start(status, [("Content-Type", "application/xml"), ("Content-Length", "0")])
        return []


def _dropped(*_: object, **__: object) -> Callable[[bytes], None]:
    """Take the beginning of an answer that nobody gets."""
    return lambda _: None


@contextmanager
def object_server(bucket: str = BUCKET) -> Iterator[ObjectServer]:
    """Start a server that ends with the block."""
    server = ObjectServer(bucket)
    try:
        yield server
    finally:
        server.close()

"""Figures of a running join in the form of Prometheus, over HTTP. Needs the package prometheus-client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.driver.metrics import EVICTIONS, STEPS, Metrics

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

_COUNTERS = {
    "batches": "Micro-batches that were published since the start",
    "rows": "Rows that arrived since the start",
    "late": "Late rows since the start",
    "results": "Results since the start",
    "log_bytes": "Bytes written to the log since the start",
    "live": "Joins of a key group whose engine was in memory, since the start",
    "mapped": "Joins of a key group whose engine was mapped from a file since the start",
    "loaded": "Key groups whose engine was loaded from the log since the start",
    "moved": "Key groups that changed partitions since the start",
    "split": "Key groups that were split since the start",
    "transitions": "Changes of plans and stored states since the start",
}
_GAUGES = {
    "batch": "The newest micro-batch that was published",
    "watermark": "Watermark of the engines in ticks of the common time type of the query",
    "state_rows": "Rows that the log keeps for the state",
    "state_bytes": "Bytes of the engines that ran in the newest micro-batch",
    "memory_bytes": "Bytes of the engines in memory on the fullest host",
    "memory_peak_bytes": "Most bytes of engines in memory during the newest micro-batch, on the fullest host",
    "spilled_bytes": "Bytes of the files to which engines were spilled",
    "hot_keys": "Key groups whose load is that of one key, so that no move or split can divide it",
    "slowest_share": "Time of the slowest key group over the mean time of a group, in the newest micro-batch",
}


class JoinCollector(Collector):
    """The figures of one join, with the label `query`. Prometheus asks for them when it wants them."""

    def __init__(self, name: str, metrics: Metrics) -> None:
        self._name = name
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Yield all figures; those of a micro-batch are missing before the first one."""
        totals, newest = self._metrics.totals(), self._metrics.row() or {}
        for name, text in _COUNTERS.items():
            yield self._counter(name, text, {"": totals.get(name, 0)})
        steps = {step: totals.get(f"{step}_seconds", 0.0) for step in STEPS}
        yield self._counter("seconds", "Seconds that a step of all micro-batches took since the start", steps, "step")
        evicted = {level: totals.get(level, 0) for level in EVICTIONS}
        yield self._counter("evictions", "Evictions of engines, by level, since the start", evicted, "level")
        published = {**newest, "published_timestamp_seconds": self._metrics.published_at}
        texts = {**_GAUGES, "published_timestamp_seconds": "When the newest micro-batch was published, Unix time"}
        for name, text in texts.items():
            if published.get(name) is not None:
                gauge = GaugeMetricFamily(f"eddy_{name}", text, labels=["query"])
                gauge.add_metric([self._name], published[name])
                yield gauge

    def _counter(self, name: str, text: str, values: dict[str, Any], label: str | None = None) -> Metric:
        counter = CounterMetricFamily(f"eddy_{name}", text, labels=["query", label] if label else ["query"])
        for value_of, value in values.items():
            counter.add_metric([self._name, value_of] if label else [self._name], value)
        return counter


class MetricsServer:
    """An HTTP server with the figures of one join, until it is closed.

    port     0: a free one
    address  of the interface on which it listens
    """

    def __init__(self, name: str, metrics: Metrics, port: int, address: str) -> None:
        registry = CollectorRegistry()
        registry.register(JoinCollector(name, metrics))
        try:
            self._server: WSGIServer
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as problem:
            raise SparkJoinError(
                f"serve_metrics: cannot listen on {address} port {port}: {problem}; pass another port, or 0"
                " for a free one"
            ) from problem

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._server.server_port)

    def close(self) -> None:
        """End the server. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

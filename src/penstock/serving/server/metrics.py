"""What the server counts, as Prometheus reads it. Counting is plain additions; text is made when it is asked for."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from penstock.serving.server.endpoint import Endpoint

__all__ = ["Histogram", "Metrics"]

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """Counts values by upper bounds. A value at a bound belongs below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and number of values up to it, as Prometheus wants them."""
        found, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(below)))
        return found


class _Label(NamedTuple):
    protocol: str
    status: int


class Metrics(Collector):
    """The counts of one server.

    Attributes:
        connections: open ones, of HTTP and TCP.
        expired: sessions that ended because they were idle.
        endpoint: whose state is shown; set once it exists.
    """

    endpoint: "Endpoint | None" = None

    def __init__(self) -> None:
        self.connections = 0
        self.expired = 0
        self._requests: dict[_Label, int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._rows = Histogram(_ROWS)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def request(self, protocol: str, status: int, seconds: float) -> None:
        """A request was answered or refused."""
        label = _Label(protocol, status)
        self._requests[label] = self._requests.get(label, 0) + 1
        histogram = self._seconds.get(protocol)
        if histogram is None:
            histogram = self._seconds[protocol] = Histogram(_SECONDS)
        histogram.add(seconds)

    def batch(self, rows: int) -> None:
        """A batch left the queue."""
        self._rows.add(rows)

    def page(self, accept: str) -> tuple[bytes, str]:
        """The text for Prometheus and its content type: OpenMetrics, if ``accept`` asks for that."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Every metric, for the registry."""
        requests = CounterMetricFamily(
            "penstock_requests", "Requests by protocol and status of HTTP", labels=("protocol", "status")
        )
        for (protocol, status), count in self._requests.items():
            requests.add_metric((protocol, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "penstock_request_seconds", "Time from a whole request to its reply", labels=("protocol",)
        )
        for protocol, histogram in self._seconds.items():
            seconds.add_metric((protocol,), histogram.buckets(), histogram.total)
        yield seconds
        rows = HistogramMetricFamily("penstock_batch_rows", "Rows that the policy answered in one call")
        rows.add_metric((), self._rows.buckets(), self._rows.total)
        yield rows
        yield CounterMetricFamily("penstock_sessions_expired", "Sessions that ended because idle", value=self.expired)
        yield GaugeMetricFamily("penstock_connections", "Open connections of HTTP and TCP", value=self.connections)
        if self.endpoint is not None:
            yield from self._of_endpoint(self.endpoint)

    def _of_endpoint(self, endpoint: "Endpoint") -> Iterator[Metric]:
        yield GaugeMetricFamily("penstock_queue_rows", "Rows that wait for an answer", value=endpoint.queued)
        yield GaugeMetricFamily("penstock_sessions", "Sessions that live", value=len(endpoint.sessions))
        version = GaugeMetricFamily("penstock_policy_version", "Version that answers", labels=("policy",))
        version.add_metric((endpoint.name,), endpoint.version)
        yield version
        restarts = endpoint.engine.restarts
        yield CounterMetricFamily("penstock_worker_restarts", "Workers that were started again", value=restarts)

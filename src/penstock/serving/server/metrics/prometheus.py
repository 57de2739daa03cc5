"""What the server counts, as Prometheus reads it. Counting is plain additions; text is made when it is asked for."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from penstock.serving.server.metrics.histogram import SECONDS, Histogram

if TYPE_CHECKING:
    from penstock.serving.server.endpoints.endpoint import Endpoint
    from penstock.serving.server.endpoints.recording import Recorder

__all__ = ["PATH", "Metrics"]

PATH = "/metrics"

_POLICY = ("policy",)
_VERSION = ("policy", "version")


class Metrics(Collector):
    """The counts of one server.

    Attributes:
        connections: open ones, of HTTP and TCP.
        endpoints: whose state is shown; set once they exist.
        recorders: those that keep episodes; set once they exist.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.endpoints: Iterable[Endpoint] = ()
        self.recorders: Iterable[Recorder] = ()
        self._requests: Counter[tuple[str, int]] = Counter()
        """By protocol and status."""
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def request(self, protocol: str, status: int, seconds: float) -> None:
        """A request was answered or refused."""
        self._requests[protocol, status] += 1
        self._seconds[protocol].add(seconds)

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
        yield GaugeMetricFamily("penstock_connections", "Open connections of HTTP and TCP", value=self.connections)
        endpoints = tuple(self.endpoints)
        yield from _of_policies(endpoints)
        yield from _of_versions(endpoints)
        yield from _of_recorders(self.recorders)


def _of_policies(endpoints: "tuple[Endpoint, ...]") -> Iterator[Metric]:
    current = GaugeMetricFamily("penstock_policy_version", "The stable version", labels=_POLICY)
    counters = [
        CounterMetricFamily(f"penstock_{name}", text, labels=_POLICY)
        for name, text in (
            ("sessions_expired", "Sessions that ended because idle"),
            ("worker_restarts", "Workers that were started again"),
            ("versions_refused", "Newer versions that could not be used"),
            ("rollbacks", "Canaries that were rolled back"),
        )
    ]
    for endpoint in endpoints:
        current.add_metric((endpoint.name,), endpoint.stable.number)
        counts = (endpoint.expired, endpoint.restarts, endpoint.refused, endpoint.rollbacks)
        for counter, count in zip(counters, counts, strict=True):
            counter.add_metric((endpoint.name,), count)
    yield current
    yield from counters


def _of_recorders(recorders: "Iterable[Recorder]") -> Iterator[Metric]:
    kept = CounterMetricFamily("penstock_episodes_kept", "Episodes that were written", labels=_POLICY)
    lost = CounterMetricFamily("penstock_episodes_lost", "Episodes that were not kept", labels=_POLICY)
    for recorder in recorders:
        kept.add_metric((recorder.name,), recorder.kept)
        lost.add_metric((recorder.name,), recorder.lost)
    yield from (kept, lost)


def _of_versions(endpoints: "tuple[Endpoint, ...]") -> Iterator[Metric]:
    share = GaugeMetricFamily("penstock_version_share", "Share of new sessions that it answers", labels=_VERSION)
    sessions = GaugeMetricFamily("penstock_sessions", "Sessions that live", labels=_VERSION)
    queued = GaugeMetricFamily("penstock_queue_rows", "Rows that wait for an answer", labels=_VERSION)
    rows = HistogramMetricFamily("penstock_batch_rows", "Rows that the policy answered in one call", labels=_VERSION)
    seconds = HistogramMetricFamily(
        "penstock_batch_seconds", "Time from a batch that leaves the queue to its answer", labels=_VERSION
    )
    failures = CounterMetricFamily("penstock_policy_failures", "Times that it could not answer", labels=_VERSION)
    for endpoint in endpoints:
        for number, version in endpoint.versions.items():
            label = (endpoint.name, number)
            share.add_metric(label, endpoint.share_of(version))
            sessions.add_metric(label, version.sessions)
            queued.add_metric(label, version.queued)
            rows.add_metric(label, version.batch_rows.buckets(), version.batch_rows.total)
            seconds.add_metric(label, version.batch_seconds.buckets(), version.batch_seconds.total)
            failures.add_metric(label, version.failures)
    yield from (share, sessions, queued, rows, seconds, failures)

"""What /metrics tells, in Prometheus' format, from a registry of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from samebits.api.served import Served
from samebits.engine import Completion
from samebits.gateway.gateway import Gateway

if TYPE_CHECKING:
    from samebits.gateway.upstream import Upstream

# From one decoding step to the longest request.
SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)

MODES: Final[Mapping[str, bool | None]] = {"confirmed": True, "denied": False, "unknown": None}


class Metrics:
    """Counts answers and tokens, and reads the engines when it is asked."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Engines(models))
        self._requests = Counter(
            "samebits_http_requests", "Answers", ["route", "method", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "samebits_http_request_seconds", "Until the last byte", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._first = Histogram(
            "samebits_first_token_seconds", "Until the first token", ["model"], buckets=SECONDS, registry=self.registry
        )
        self._tokens = Counter(
            "samebits_tokens", "Tokens of finished requests", ["model", "kind"], registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Notes an answer."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """Notes when the first token of a request was there."""
        self._first.labels(model).observe(seconds)

    def finished(self, model: str, prompts: Sequence[Sequence[int]], completions: Sequence[Completion]) -> None:
        """Notes the tokens of a request that came to its end."""
        cached = sum(c.cached_prompt_tokens for c in completions if c.index == 0)
        self._tokens.labels(model, "prompt").inc(sum(map(len, prompts)))
        self._tokens.labels(model, "cached_prompt").inc(cached)
        self._tokens.labels(model, "output").inc(sum(len(c.token_ids) for c in completions))

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """All values, and their content type: Prometheus' text, or OpenMetrics for those who accept it."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class GatewayMetrics(Collector):
    """What the gateway counts, read at each scrape."""

    def __init__(self, gateway: Gateway, upstreams: Mapping[str, Upstream]) -> None:
        self._gateway, self._upstreams = gateway, upstreams

    def collect(self) -> Iterable[Metric]:
        """The cache's state and counts, whether the ledger took the last write, and of each upstream the requests that
        were sent, whether it rests, and what is known of its mode.
        """
        cache = self._gateway.cache
        yield GaugeMetricFamily("samebits_cache_entries", "Answers that are kept", value=len(cache))
        yield GaugeMetricFamily("samebits_cache_bytes", "Bytes of the answers that are kept", value=cache.bytes)
        events = CounterMetricFamily("samebits_cache_events", "What the cache did", labels=["event"])
        for name, count in vars(cache.counts).items():
            events.add_metric([name], count)
        yield events
        if (ledger := self._gateway.recorder.ledger) is not None:
            yield GaugeMetricFamily(
                "samebits_ledger_up", "1 unless the last write failed", value=float(ledger.pulse.last is None)
            )
        sent = CounterMetricFamily("samebits_upstream_requests", "Requests sent, each attempt", labels=["model"])
        resting = GaugeMetricFamily("samebits_upstream_resting", "1 while it is left alone", labels=["model"])
        modes = GaugeMetricFamily(
            "samebits_upstream_mode", "1 for what is known of its deterministic mode", labels=["model", "state"]
        )
        for name, upstream in self._upstreams.items():
            known = self._gateway.routes[name].seen.mode.confirmed
            for state, value in MODES.items():
                modes.add_metric([name, state], float(known is value))
            sent.add_metric([name], upstream.sent)
            resting.add_metric([name], float(upstream.breaker.is_open))
        yield from (sent, resting, modes)


class _Engines(Collector):
    """The engines' own counts, read at each scrape."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("samebits_engine_up", "1 while the engine runs", labels=["model"])
        facts = GaugeMetricFamily("samebits_model_info", "What is served", labels=["model", "profile", "fingerprint"])
        choices = GaugeMetricFamily("samebits_choices", "Choices by state", labels=["model", "state"])
        pages = GaugeMetricFamily("samebits_kv_pages", "Pages of the KV cache by state", labels=["model", "state"])
        counts = CounterMetricFamily("samebits_engine_events", "What engines have done", labels=["model", "kind"])
        for name, served in self._models.items():
            engine, driver = served.llm.engine, served.driver
            up.add_metric([name], float(driver.fault is None))
            facts.add_metric([name, served.llm.profile, served.fingerprint], 1)
            running = engine.running
            choices.add_metric([name, "running"], running)
            choices.add_metric([name, "waiting"], max(0, driver.choices - running))
            pages.add_metric([name, "held"], engine.pool.held)
            pages.add_metric([name, "available"], engine.pool.available)
            stats = engine.stats
            for kind in ("steps", "rows", "preemptions", "prefix_hits", "prefix_tokens"):
                counts.add_metric([name, kind], getattr(stats, kind))
        return [up, facts, choices, pages, counts]

"""Prometheus metrics, one label set per model."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from system1_core.answers import Result
from system1_core.processor import Prompt
from system1_core.request import Request

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_COUNTS = (1, 2, 3, 5, 10, 20, 50, 100, 255)
_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_CONFIDENCE = tuple(tenth / 10 for tenth in range(1, 11))


class Metrics:
    """Every metric of one process; `render` gives the text that `/metrics` answers."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def histogram(
            name: str, text: str, labels: Sequence[str], buckets: Sequence[float]
        ) -> Histogram:
            return Histogram(f"system1_{name}", text, labels, registry=registry, buckets=buckets)

        def counter(name: str, text: str, labels: Sequence[str]) -> Counter:
            return Counter(f"system1_{name}", text, labels, registry=registry)

        self.requests = counter("requests", "Requests by route and status", ("route", "status"))
        self.errors = counter("errors", "Errors by type", ("model", "error_type"))
        self.request_seconds = histogram(
            "request_seconds", "From the first byte read to the response", ("route",), _SECONDS
        )
        self.num_in_flight = 0
        in_flight = Gauge("system1_requests_in_flight", "Requests now", registry=registry)
        in_flight.set_function(lambda: self.num_in_flight)
        self.queue_seconds = histogram(
            "queue_seconds", "Waiting before the first prompt ran", ("model",), _SECONDS
        )
        self.batch_seconds = histogram(
            "batch_seconds", "One batch on the executor", ("model",), _SECONDS
        )
        self.batch_prompts = histogram("batch_prompts", "Prompts in a batch", ("model",), _SIZES)
        self.batch_tokens = histogram("batch_tokens", "Tokens in a batch", ("model",), _TOKENS)
        self.input_tokens = counter("input_tokens", "Tokens as usage counts them", ("model",))
        self.questions = counter("questions", "Questions answered by type", ("model", "type"))
        self.options = histogram(
            "options", "Options or levels of a question", ("model", "type"), _COUNTS
        )
        self.confidence = histogram(
            "answer_confidence", "Answers by confidence", ("model", "type"), _CONFIDENCE
        )

    def render(self) -> bytes:
        """The exposition format of Prometheus."""
        return generate_latest(self._registry)


class EngineMetrics:
    """The metrics of one model, labels bound once at start."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._tokens = metrics.input_tokens.labels(model)
        self._batch_seconds = metrics.batch_seconds.labels(model)
        self._batch_prompts = metrics.batch_prompts.labels(model)
        self._batch_tokens = metrics.batch_tokens.labels(model)
        self._by_type = {
            type: (
                metrics.questions.labels(model, type),
                metrics.options.labels(model, type),
                metrics.confidence.labels(model, type),
            )
            for type in ("choice", "score", "noul")
        }
        self.queue_time = metrics.queue_seconds.labels(model).observe

    def ran_batch(self, prompts: Sequence[Prompt], seconds: float) -> None:
        """Count one batch that came back."""
        self._batch_seconds.observe(seconds)
        self._batch_prompts.observe(len(prompts))
        self._batch_tokens.observe(sum(prompt.num_tokens for prompt in prompts))

    def answered(self, request: Request, result: Result) -> None:
        """Count one request's questions, options, confidences and tokens."""
        self._tokens.inc(result.input_tokens)
        for question, answer in zip(request.questions, result.answers, strict=True):
            questions, options, confidence = self._by_type[question.type]
            questions.inc()
            options.observe(len(question.options))
            confidence.observe(answer.confidence)

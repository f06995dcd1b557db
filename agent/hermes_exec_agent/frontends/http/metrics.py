"""Metrics in the format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from hermes_exec_agent.runtime import Answer
    from hermes_exec_agent.runtime.updates import CallEnded

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("hermes_exec_requests", "HTTP requests", ["route", "status"], registry=registry)
        self.running = Gauge("hermes_exec_turns_running", "Turns that run now", registry=registry)
        self.open = Gauge("hermes_exec_conversations_open", "Conversations whose place is open", registry=registry)
        self._turns = Counter("hermes_exec_turns", "Turns by how they ended", ["outcome"], registry=registry)
        self._seconds = Histogram(
            "hermes_exec_turn_seconds", "How long a turn took", buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter("hermes_exec_tokens", "Tokens of models", ["kind"], registry=registry)
        self._cost = Counter("hermes_exec_cost_dollars", "Cost of models, as far as it is known", registry=registry)
        self._calls = Counter("hermes_exec_tool_calls", "Calls of tools", ["tool", "ok"], registry=registry)

    def count_answer(self, answer: Answer, seconds: float) -> None:
        """Count a turn that ended with an answer."""
        self.count_turn(answer.outcome, seconds)
        usage = answer.usage
        self._tokens.labels("prompt").inc(usage.prompt - usage.cached)
        self._tokens.labels("cached").inc(usage.cached)
        self._tokens.labels("completion").inc(usage.completion)
        self._cost.inc(usage.cost or 0)

    def count_turn(self, outcome: str, seconds: float) -> None:
        """Count a turn that ended."""
        self._turns.labels(outcome).inc()
        self._seconds.observe(seconds)

    def count_call(self, ended: CallEnded, *, known: bool) -> None:
        """Count a call of a tool; all unknown names are counted as one."""
        self._calls.labels(ended.call.name if known else "unknown", str(ended.envelope.ok).lower()).inc()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

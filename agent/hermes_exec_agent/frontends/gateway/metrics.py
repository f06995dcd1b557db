"""The gateway's metrics in the format of Prometheus: states, numbers and times, and no text of anyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

if TYPE_CHECKING:
    from hermes_exec_agent.frontends.gateway.records import Measures

_LABELS = ("platform", "account")
_STATES = ("connected", "connecting", "down", "stopped")
_PIECES = ("pending", "sending", "sent", "failed", "unknown")


def format_metrics(measures: Measures) -> bytes:
    """Return the metrics as text."""
    registry = CollectorRegistry()
    state = Gauge("hermes_exec_gateway_state", "1 for the state of an account", [*_LABELS, "state"], registry=registry)
    lag = Gauge("hermes_exec_gateway_lag_seconds", "Age of the oldest piece that waits", _LABELS, registry=registry)
    error = Gauge(
        "hermes_exec_gateway_last_error_age_seconds", "Age of the last error, if any", _LABELS, registry=registry
    )
    for each in measures.platforms:
        labels = (each["platform"], each["account"])
        for name in _STATES:
            state.labels(*labels, name).set(each["state"] == name)
        lag.labels(*labels).set(each["lag_s"])
        if each["last_error_s"] is not None:
            error.labels(*labels).set(each["last_error_s"])
    pieces = Gauge("hermes_exec_gateway_outbox", "Pieces of the outbox by state", ["state"], registry=registry)
    for name in _PIECES:
        pieces.labels(name).set(measures.states.get(name, 0))
    for name, text, counts in (
        ("received", "Messages that were accepted since the start", measures.received),
        ("sent", "Pieces that arrived since the start", measures.sent),
    ):
        counter = Counter(f"hermes_exec_gateway_{name}", text, _LABELS, registry=registry)
        for each in measures.platforms:
            key = (each["platform"], each["account"])
            counter.labels(*key).inc(counts.get(key, 0))
    return generate_latest(registry)

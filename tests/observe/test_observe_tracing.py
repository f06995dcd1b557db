"""Spans: nothing at all until somebody traces; then OpenTelemetry's own, without secrets."""

from __future__ import annotations

import subprocess
import sys
import timeit
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.observe.redact import Redactor
from hermes_exec.observe.tracing import start_span, stop_tracing, use_tracer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def spans() -> Iterator[Any]:
    trace = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    use_tracer(provider.get_tracer("test"))
    yield memory
    stop_tracing()


def test_while_nobody_traces_a_span_is_nothing() -> None:
    with start_span("run", {"target": "local"}) as here:
        here.set("exit_code", 0)
    assert start_span("a") is start_span("b")


def test_while_nobody_traces_an_error_goes_on_its_way() -> None:
    with pytest.raises(KeyError), start_span("run"):
        raise KeyError


def test_while_nobody_traces_a_span_costs_next_to_nothing() -> None:
    def one() -> None:
        with start_span("run"):
            pass

    assert min(timeit.repeat(one, number=1000, repeat=20)) / 1000 < 5e-6


def test_tracing_without_opentelemetry_names_the_extra() -> None:
    script = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from hermes_exec.observe.tracing import use_tracer\n"
        "try: use_tracer()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(
        b"MissingExtra tracing: the package 'opentelemetry' of the extra 'otel' is not installed. Try: "
    )


def test_a_span_has_its_facts_and_its_parent(spans: Any) -> None:
    with start_span("open", {"target": "local"}), start_span("run") as here:
        here.set("exit_code", 3)
    inner, outer = spans.get_finished_spans()
    assert (inner.name, dict(inner.attributes)) == ("hermes_exec.run", {"hermes_exec.exit_code": 3})
    assert dict(outer.attributes) == {"hermes_exec.target": "local"}
    assert inner.parent.span_id == outer.context.span_id


def test_an_error_marks_its_span_and_goes_on_its_way(spans: Any) -> None:
    with (
        pytest.raises(ValueError, match="hunter2!"),
        start_span("run", redactor=Redactor([Secret("T", "hunter2!")])),
    ):
        raise ValueError("bad hunter2!")
    (done,) = spans.get_finished_spans()
    assert not done.status.is_ok
    assert done.status.description == "bad [secret T]"
    assert dict(done.attributes) == {"error.type": "ValueError"}


def test_no_span_shows_a_secret(spans: Any) -> None:
    redactor = Redactor([Secret("T", "hunter2!")])
    with start_span("run", {"command": "x hunter2!"}, redactor) as here:
        here.set("cwd", "/hunter2!")
    assert "hunter2" not in spans.get_finished_spans()[0].to_json()

"""Logs: one line an event, no secret in it, nothing until it is asked for."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.observe.logs import setup_logging
from hermes_exec.observe.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator

REDACTOR = Redactor([Secret("TOKEN", 'hunter2"\n!')])


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    ours = logging.getLogger("hermes_exec")
    before = (ours.handlers[:], ours.level, ours.propagate)
    yield ours.getChild("test")
    ours.handlers[:], ours.level, ours.propagate = before


def test_an_event_is_one_line_with_its_facts_behind_it(logger: logging.Logger) -> None:
    stream = io.StringIO()
    setup_logging("info", stream=stream)
    logger.info("opened %s", "it", extra={"target": "ssh://h", "note": "a b", "empty": "", "took_s": 0.5})
    line = stream.getvalue()
    assert line.endswith('Z info hermes_exec.test: opened it target=ssh://h note="a b" empty="" took_s=0.5\n')
    assert line[10] == "T"


def test_an_event_is_one_object_for_programs(logger: logging.Logger) -> None:
    stream = io.StringIO()
    setup_logging("info", "json", stream=stream)
    logger.info("opened", extra={"target": "ssh://h", "level": "forged", "count": 3})
    event = cast("dict[str, object]", json.loads(stream.getvalue()))
    assert list(event)[:4] == ["time", "level", "logger", "message"]
    assert (event["level"], event["target"], event["count"]) == ("info", "ssh://h", 3)


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_event_shows_a_secret(logger: logging.Logger, format: str) -> None:
    stream = io.StringIO()
    setup_logging("info", "json" if format == "json" else "text", redactor=REDACTOR, stream=stream)
    value = 'hunter2"\n!'
    try:
        int(value)
    except ValueError:
        logger.exception("a %s %r b", value, value, extra={"fact": value, "nested": [value], "object": OSError(value)})
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("[secret TOKEN]") >= 4


@pytest.mark.parametrize("format", ["text", "json"])
def test_nobody_can_forge_a_line(logger: logging.Logger, format: str) -> None:
    stream = io.StringIO()
    setup_logging("info", "json" if format == "json" else "text", stream=stream)
    logger.info("a\nb\x1b[2J", extra={"fact": "c\nd \u202e"})
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().rstrip("\n").isprintable()


def test_what_is_less_important_is_left_out(logger: logging.Logger) -> None:
    stream = io.StringIO()
    setup_logging("warning", stream=stream)
    logger.info("no")
    logger.warning("yes")
    assert stream.getvalue().count("\n") == 1


def test_setting_up_twice_shows_each_event_once(logger: logging.Logger) -> None:
    stream = io.StringIO()
    setup_logging("info", stream=stream)
    setup_logging("info", stream=stream)
    logger.info("x")
    assert stream.getvalue().count("\n") == 1


def test_a_program_that_set_nothing_up_sees_nothing_of_ours_but_warnings() -> None:
    script = (
        "import logging, hermes_exec.observe.logs\n"
        "assert not logging.getLogger('hermes_exec').handlers\n"
        "logging.getLogger('hermes_exec.x').info('no')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

"""The recorded session of the documentation, and the script that writes it."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.rigs.installs import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def read(text: str) -> tuple[dict[str, Any], list[list[Any]]]:
    """Return the header and the events."""
    head, *events = [json.loads(line) for line in text.splitlines()]
    return head, events


def join(events: list[list[Any]]) -> str:
    return "".join(text for _, _, text in events)


def test_a_recording_is_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    from hermes_dev.cast import Step, record

    monkeypatch.setattr("hermes_dev.cast.venv", lambda: tmp_path)
    steps = (Step("pwd; stty size; date +%F' '%T; echo 1$(date +%N | cut -c1).5 s"), Step("what is shown", "false"))
    recordings: list[str] = []
    for each in ("one", "other"):
        (tmp_path / each).mkdir()
        recordings.append(record(tmp_path / each, steps))
    assert recordings[0] == recordings[1]
    head, events = read(recordings[0])
    assert (head["version"], head["width"], head["height"]) == (2, 92, 26)
    assert "/home/you/work\r\n26 92\r\n2026-01-31 18:00:00\r\n0.1 s\r\n$ what is shown\r\n$ " in join(events)


def test_a_command_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    from hermes_dev.cast import run_on_terminal
    from hermes_dev.place import DevError

    with pytest.raises(DevError, match="does not end"):
        run_on_terminal(["sh", "-c", "sleep 1000"], {"PATH": "/usr/bin:/bin"}, tmp_path, 0.2)


def test_the_recorded_session_starts_in_a_checkout_and_ends_with_a_skill() -> None:
    head, events = read((ROOT / "docs/session.cast").read_text(encoding="utf-8"))
    assert head["version"] == 2
    assert [kind for _, kind, _ in events] == ["o"] * len(events)
    assert all(one[0] <= other[0] for one, other in pairwise(events))
    shown = join(events)
    assert shown.startswith("$ cd hermes_exec && ./dev setup\r\ndev: .venv is ready\r\n")
    assert "[scripted]" in shown
    assert "count-lines" in shown.rpartition("$ hermes-exec skill list")[2]
    assert "Traceback" not in shown
    assert sys.prefix not in shown

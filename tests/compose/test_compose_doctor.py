"""``doctor`` on a chain of places: how far one gets, and which of them is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_exec.cli.app import start

CONFIG = """
[backends.login]
type = "box"
name = "login"
[backends.node]
type = "box"
name = "node"
folder = "{folder}/node"
via = "login"
[backends.torch]
type = "box"
name = "torch"
via = "node"
"""


def doctor(capsys: pytest.CaptureFixture[str], target: str) -> tuple[int, dict[str, list[str]]]:
    code = start(["doctor", target, "--json"])
    told = json.loads(capsys.readouterr().out)
    return code, {kind["type"]: [check["status"] for check in kind["checks"]] for kind in told if kind["checks"]}


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "hermes.toml"
    file.write_text(CONFIG.format(folder=tmp_path / "folders"))
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(file))


def test_doctor_walks_a_whole_chain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "folders").mkdir()
    code, told = doctor(capsys, "torch")
    assert code == 0
    assert list(told) == ["local", "box:login", "box:node+box:login", "torch"]
    assert told["torch"][0] == "ok"


def test_doctor_names_the_broken_link(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = doctor(capsys, "torch")
    assert code == 1
    told.pop("local")
    assert told == {"box:login": ["ok"], "box:node+box:login": ["missing"], "torch": ["warning"]}


def test_doctor_names_the_innermost_place_when_that_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = doctor(capsys, "node")
    assert code == 1
    told.pop("local")
    assert told == {"box:login": ["ok"], "node": ["missing"]}

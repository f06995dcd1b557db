"""``doctor TARGET`` looks at what the target's profile names, whatever else is usual on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hermes_exec.cli.app import start
from hermes_exec.cli.checks import trace_failure
from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from pathlib import Path

NAMED = {
    "daytona": ('api_key = "env:HX_NAMED"', "key", "HX_NAMED"),
    "modal": ('token_id = "env:HX_NAMED"', "token", "HX_NAMED"),
    "docker": ('engine = "unix:///nowhere/named.sock"', "engine", "/nowhere/named.sock"),
    "ssh": ('host = "192.0.2.1"\nconnect_timeout_s = 0.1\nkey_path = "/nowhere/named"', "key", "/nowhere/named"),
    "singularity": ('image = "x.sif"\nprogram = "named-program"', "program", "named-program"),
    "bubblewrap": ('program = "named-program"', "program", "named-program"),
}


@pytest.mark.parametrize("kind", NAMED)
def test_doctor_looks_at_what_the_profile_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    fields, name, words = NAMED[kind]
    file = tmp_path / "hermes.toml"
    file.write_text(f'[backends.place]\ntype = "{kind}"\n{fields}\n')
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(file))
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_another")
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-another")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-another")
    assert start(["doctor", "place", "--json"]) == 1
    (checks,) = [each["checks"] for each in json.loads(capsys.readouterr().out) if each["type"] == kind]
    (check,) = [each for each in checks if each["name"] == name]
    assert check["status"] == "missing"
    assert words in check["detail"]


def test_doctor_does_not_advise_to_run_doctor() -> None:
    error = PlaceUnavailable("modal: no answer in time", remedy="hermes-exec doctor modal")
    (place,) = trace_failure("modal", ["modal"], error)
    assert "doctor" not in place.remedy
    assert place.remedy

"""Bridges where the other project is missing, or has a release that does not fit."""

from __future__ import annotations

import importlib

import pytest

from hermes_exec_agent.bridges._peers import Peer

BRIDGES = {
    "harbor": "harbor",
    "inspect_sandbox": "inspect-ai",
    "mini_swe_agent": "mini-swe-agent",
    "verifiers_harness": "verifiers",
    "verifiers_runtime": "verifiers",
}


@pytest.mark.parametrize(("module", "peer"), BRIDGES.items(), ids=BRIDGES)
def test_a_missing_peer_is_one_line_with_its_release(module: str, peer: str) -> None:
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"hermes_exec_agent.bridges.{module}")
    said = str(caught.value)
    assert said.startswith(f"this bridge needs {peer}, which is not installed. Try: pip install '{peer}==")
    assert "\n" not in said


def test_a_release_that_does_not_fit_is_named_with_the_one_that_does() -> None:
    with pytest.raises(ImportError) as caught, Peer("pytest", "0.0.1"):
        from pytest import renamed_in_a_newer_release  # type: ignore[attr-defined]  # noqa: F401, PT013  it is missing
    said = str(caught.value)
    assert said.startswith(f"this bridge is tested with pytest 0.0.1, and does not fit {pytest.__version__}")
    assert "renamed_in_a_newer_release" in said
    assert said.endswith("Try: pip install 'pytest==0.0.1'")

"""Profiles and targets that put places inside of each other, and what the outer ones' profiles ask for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import hermes_exec
from hermes_exec.config.plan import Plan
from hermes_exec.errors import ConfigError, PlaceUnavailable, Unsupported


def configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    file = tmp_path / "hermes.toml"
    file.write_text(text)
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(file))


def output(target: str, command: str) -> str:
    async def run() -> str:
        async with hermes_exec.open(target, audit=False) as terminal:
            return (await terminal.run(command, check=True)).stdout_text

    return asyncio.run(run())


def test_a_one_line_target_opens_every_place_of_it() -> None:
    assert output("box:c+box:b+box:a", "echo $BOXES") == "[a][b][c]\n"


def test_via_opens_the_places_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = """
        [backends.login]
        type = "box"
        name = "login"
        [backends.node]
        type = "box"
        name = "node"
        via = "login"
        [backends.torch]
        type = "box"
        name = "torch"
        via = "node"
    """
    configure(monkeypatch, tmp_path, text)
    assert output("torch", "echo $BOXES") == "[login][node][torch]\n"
    assert output("box:more+torch", "echo $BOXES") == "[login][node][torch][more]\n"


def test_what_the_outer_profile_asks_for_holds_for_what_enters_the_inner_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    text = f"""
        [backends.login]
        type = "box"
        name = "login"
        cwd = "{tmp_path}/work"
        env = {{ PLACE = "cluster" }}
        secrets = ["HX_TEST_TOKEN"]
        setup = ["echo noise; cat; BOXES=$PWD:$PLACE:$HX_TEST_TOKEN"]
        [backends.inner]
        type = "box"
        name = "inner"
        via = "login"
    """
    configure(monkeypatch, tmp_path, text)
    monkeypatch.setenv("HX_TEST_TOKEN", "s3cret")
    assert output("inner", "echo $BOXES") == f"{tmp_path}/work:cluster:s3cret[inner]\n"


def test_the_secrets_of_every_place_are_known_for_redaction(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = """
        [backends.login]
        type = "box"
        name = "login"
        secrets = ["HX_OUTER"]
        [backends.inner]
        type = "box"
        name = "inner"
        via = "login"
        secrets = ["HX_INNER"]
    """
    configure(monkeypatch, tmp_path, text)
    monkeypatch.setenv("HX_OUTER", "one")
    monkeypatch.setenv("HX_INNER", "two")
    assert sorted(secret.reveal() for secret in Plan("inner").secrets) == ["one", "two"]


def test_a_place_without_the_folder_of_its_profile_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = f"""
        [backends.login]
        type = "box"
        name = "login"
        cwd = "{tmp_path}/none"
        [backends.inner]
        type = "box"
        name = "inner"
        via = "login"
    """
    configure(monkeypatch, tmp_path, text)
    with pytest.raises(PlaceUnavailable, match="none"):
        output("inner", "true")


def test_a_kind_of_place_that_can_be_inside_of_none_says_so() -> None:
    with pytest.raises(Unsupported, match="local: such a target cannot be inside another one"):
        Plan("local+box:a")


def test_an_outer_place_that_does_not_exist_is_told_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configure(monkeypatch, tmp_path, '[backends.x]\ntype = "box"\nname = "x"\nvia = "gone"\n')
    with pytest.raises(ConfigError, match="'x' is inside of 'gone'"):
        Plan("x")


def test_planning_starts_nothing() -> None:
    before = os.listdir("/proc/self/fd")
    assert Plan("box:b+box:a").target == "box:b+box:a"
    assert os.listdir("/proc/self/fd") == before

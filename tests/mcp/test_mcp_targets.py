"""Programs of servers in targets: in a sandbox and on another host, with the named variables alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.settings import McpSettings
from tests.conftest import require_part
from tests.mcp.conftest import RIG
from tests.rigs.processes import with_mark
from tests.rigs.sshd import ROOT, Sshd

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from pathlib import Path

    from tests.mcp.conftest import Talking

    Run = Callable[[Awaitable[Any]], Any]

PYTHON = "/usr/bin/python3"
PERMITTED = {"HOME", "LANG", "PATH", "MY_KEY", "LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_"}
"""With those that a shell and Python set for themselves."""


@pytest.fixture(scope="module")
def host() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


@pytest.fixture(params=["local", "bubblewrap", "ssh"])
def program(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[McpSettings, Path]:
    """A server in a target, and its folder, which this machine sees."""
    folder = tmp_path / "rig"
    profile = 'type = "local"'
    if request.param == "bubblewrap":
        require_part("bwrap", "the sandbox")
        profile = f'type = "bubblewrap"\nbinds = ["{folder}:{folder}:rw"]'
    elif request.param == "ssh":
        host: Sshd = request.getfixturevalue("host")
        folder = host.home() / f"rig-{os.getpid()}"
        fields = host.profile()
        profile = (
            f'type = "ssh"\nhost = "{host.listen}"\nport = {host.port}\nuser = "{host.user}"\nkey_path = "{host.key}"\n'
            f'known_hosts_path = "{fields.known_hosts_path}"\nconfig_path = "{fields.config_path}"\nagent = false'
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(RIG, folder / "server.py")
    if request.param == "ssh" and ROOT:
        owner = folder.parent.stat()
        subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(folder)], check=True)
    file = tmp_path / "hermes.toml"
    file.write_text(f'[backends.there]\n{profile}\nenv = {{ OF_THE_TARGET = "x" }}\n')
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(file))
    monkeypatch.setenv("MY_KEY", "for-it-alone")
    args = ["-I", str(folder / "server.py"), str(folder)]
    settings = {"command": PYTHON, "args": args, "env": ["MY_KEY"], "target": "there", "tools": ["*"]}
    return McpSettings.model_validate({**settings, "timeout_s": 30.0}), folder


def test_a_program_runs_in_its_target_with_its_variables_alone_and_ends_with_the_conversation(
    run: Run, talking: Talking, program: tuple[McpSettings, Path]
) -> None:
    settings, folder = program

    async def use() -> None:
        async with talking(settings) as talk:
            names = set((await talk.call("variables"))["output"].split())
            assert {"PATH", "HOME", "MY_KEY"} <= names <= PERMITTED
            assert (await talk.call("echo", text="for-it-alone"))["output"] == "[secret MY_KEY]"
            assert (await talk.call("big", size=300_000))["truncated"]
            assert with_mark(str(folder))
            assert not with_mark("for-it-alone")

    run(use())
    assert not with_mark(f"{folder}\0")


def test_a_program_that_died_in_its_target_is_started_again_and_its_call_is_not_sent_again(
    run: Run, talking: Talking, program: tuple[McpSettings, Path]
) -> None:
    settings, folder = program

    async def use() -> None:
        async with talking(settings) as talk:
            assert (await talk.call("die"))["error"]["type"] == "outcome_unknown"
            assert (await talk.call("echo", text="back"))["output"] == "back"

    run(use())
    assert (folder / "calls").read_text().split() == ["die", "echo"]
    assert len((folder / "starts").read_text().split()) == 2

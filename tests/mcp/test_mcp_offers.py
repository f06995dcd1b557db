"""What ``mcp serve`` offers on demand: a folder to sync, proven skills, and a host over SSH."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_policies.gate.verdict import Level
from tests.mcp.test_mcp_serve import call
from tests.rigs.bounded import until
from tests.rigs.processes import with_mark
from tests.rigs.skill_makers import registered
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cli.conftest import Cli
    from tests.conftest import Require
    from tests.mcp.conftest import Serving

    Run = Callable[[Awaitable[Any]], Any]


def test_a_folder_is_synced_both_ways_and_no_other_one(run: Run, serving: Serving, tmp_path: Path) -> None:
    mine, there = tmp_path / "mine", tmp_path / "there"
    (mine / "sub").mkdir(parents=True)
    (mine / "sub/a").write_text("one")
    (tmp_path / "secret").mkdir()
    (mine / "way_out").symlink_to(tmp_path / "secret")

    async def use() -> None:
        async with serving("--sync", str(mine)) as client:
            planned = await call(client, "sync", local="sub", remote=str(there), dry_run=True)
            assert (planned["copied"], planned["changes"]) == (1, [{"path": "a", "action": "copy"}])
            assert not there.exists()
            assert (await call(client, "sync", local="sub", remote=str(there)))["bytes"] == 3
            (there / "b").write_text("two")
            down = await call(client, "sync", local="sub", remote=str(there), direction="down")
            assert (down["copied"], down["unchanged"]) == (1, 1)
            for path in ("..", str(tmp_path / "secret"), "way_out"):
                failed = await call(client, "sync", local=path, remote=str(there))
                assert "is not below the folder of the server" in failed["error"]["message"]

    run(use())
    assert (mine / "sub/b").read_text() == "two"


def test_without_a_folder_there_is_no_sync(run: Run, serving: Serving, cli: Cli) -> None:
    async def use() -> None:
        async with serving() as client:
            assert not {"sync"} & {tool.name for tool in (await client.list_tools()).tools}

    run(use())
    wrong = cli("mcp", "serve", "--sync", "/no/such/folder")
    assert (wrong.returncode, wrong.stderr.count(b"\n")) == (2, 1)


@pytest.mark.timeout(300)  # the first run of a policy proves it
def test_each_proven_skill_is_a_tool_and_others_are_not(
    run: Run, serving: Serving, cli: Cli, tmp_path: Path, require: Require
) -> None:
    require("bwrap", "makes the sandbox")
    cli.env["HERMES_EXEC_SKILLS"] = str(tmp_path / "registry")
    home = default_home(cli.env)
    registered(home, tmp_path / "one")
    registered(home, tmp_path / "two", "only-itself", level=Level.SELF_TESTED)

    async def use() -> None:
        async with serving("--skills") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert [name for name in tools if name.startswith("skill_")] == ["skill_add-numbers"]
            assert tools["skill_add-numbers"].input_schema["required"] == ["a", "b"]
            done = await call(client, "skill_add-numbers", a=20, b=22)
            assert (done["result"], done["ok"], done["version"]) == (42, True, 1)
            wrong = await call(client, "skill_add-numbers", a="x")
            assert wrong["error"]["type"] == "usage_error", wrong

    run(use())


def test_a_host_over_ssh_is_served_to_the_sdks_client(run: Run, serving: Serving, cli: Cli, nap: str) -> None:
    with Sshd() as host:
        fields = host.profile()
        cli.configure(
            f'[backends.far]\ntype = "ssh"\nhost = "{host.listen}"\nport = {host.port}\nuser = "{host.user}"\n'
            f'key_path = "{host.key}"\nknown_hosts_path = "{fields.known_hosts_path}"\n'
            f'config_path = "{fields.config_path}"\nagent = false\n'
        )
        said: list[str] = []

        async def listen(progress: float, total: float | None, message: str | None) -> None:
            said.append(message or "")

        async def use() -> None:
            async with serving("--on", "far") as client:
                done = await call(client, "run", command='echo "$USER"; cd; pwd; exit 3')
                assert done["stdout"] == f"{host.user}\n{host.home()}\n"
                assert (done["exit_code"], done["backend"]) == (3, "far")
                command = {"command": f"echo begun; {nap}"}
                calling = asyncio.create_task(client.call_tool("run", command, progress_callback=listen))
                await until(lambda: with_mark(nap.replace(" ", "\0")) and said)
                assert "begun" in said[0]
                calling.cancel()
                await until(lambda: not with_mark(nap.replace(" ", "\0")))
                assert (await call(client, "run", command="echo on"))["stdout"] == "on\n"

        run(use())

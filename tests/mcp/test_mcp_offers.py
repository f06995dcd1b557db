"""What ``mcp serve`` offers on demand: a folder to sync, proven skills, and a host over SSH."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import TransferError
from hermes_exec_agent.mcp.served_tools import ByteLimit
from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.skills.registry.registry import Registry
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
    (mine / "circle").symlink_to("circle")
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
            for path in ("a\0b", "circle"):
                failed = await call(client, "sync", local=path, remote=str(there))
                assert failed["error"]["type"] in ("usage_error", "path_error")

    run(use())
    assert (mine / "sub/b").read_text() == "two"


def test_a_sync_copies_no_more_bytes_than_the_person_allows(run: Run, serving: Serving, tmp_path: Path) -> None:
    mine, there = tmp_path / "mine", tmp_path / "there"
    for folder in (mine, there):
        folder.mkdir()
    (there / "large").write_bytes(bytes(3000))
    (mine / "small").write_bytes(bytes(1000))

    async def use() -> None:
        async with serving("--sync", str(mine), "--sync-limit", "2K") as client:
            for options in (dict[str, Any](), {"delete": True}):
                failed = await call(client, "sync", local=".", remote=str(there), direction="down", **options)
                assert failed["error"]["type"] == "usage_error"
                assert "3000 bytes, and this server copies up to 2048 bytes" in failed["error"]["message"]
                assert [each.name for each in mine.iterdir()] == ["small"]
            planned = await call(client, "sync", local=".", remote=str(there), direction="down", dry_run=True)
            assert planned["bytes"] == 3000
            assert (await call(client, "sync", local=".", remote=str(there)))["bytes"] == 1000

    run(use())
    limit = ByteLimit(2048)
    limit.count(1500, 1500, 0, 1)
    with pytest.raises(TransferError, match="2049 bytes"):  # of two portions
        limit.count(549, 549, 0, 1)
    limit = ByteLimit(2048)
    limit.count(1500, 1500, 2, 2)
    with pytest.raises(TransferError, match="3100 bytes"):  # the second one has more
        limit.count(1600, 1600, 1, 2)


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
    of_others = Origin(kind="imported", source="skills.zip")
    registered(home, tmp_path / "three", "of-others", origin=of_others)
    trusted = registered(home, tmp_path / "four", "of-friends", origin=of_others)
    Registry(home).trust(trusted.name, trusted.number)

    async def use() -> None:
        async with serving("--skills") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert [name for name in tools if name.startswith("skill_")] == ["skill_add-numbers", "skill_of-friends"]
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

"""A target as tools of the protocol, used by the SDK's own client over the pipes of a real process."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.cli.conftest import COMMAND
from tests.rigs.bounded import PATIENCE_S, until, wait_until
from tests.rigs.docker_engine import BUSYBOX, DEBIAN, engine
from tests.rigs.processes import alive, with_mark

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cli.conftest import Cli
    from tests.mcp.conftest import Serving

    Run = Callable[[Awaitable[Any]], Any]

READERS = {"job_poll", "job_log", "job_list", "read", "list"}
TOKEN = "a-token-of-tests-long-enough"


async def call(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The fields of a result, which its text repeats."""
    result = await client.call_tool(name, arguments)
    fields: dict[str, Any] = result.structured_content
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == fields
    assert result.is_error == ("error" in fields)
    return fields


def test_a_result_has_both_streams_the_exit_code_and_the_target(run: Run, serving: Serving) -> None:
    async def use() -> None:
        async with serving() as client:
            done = await call(client, "run", command="echo out; echo err >&2; exit 3")
        assert (done["stdout"], done["stderr"], done["exit_code"]) == ("out\n", "err\n", 3)
        assert (done["ok"], done["backend"], done["timed_out"]) == (False, "local", False)
        assert (done["stdout_truncated"], done["stdout_bytes"]) == (False, 4)
        assert 0 <= done["duration_s"] < PATIENCE_S

    run(use())


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_clients_of_both_eras_are_served(run: Run, serving: Serving, mode: str) -> None:
    async def use() -> None:
        async with serving(mode=mode) as client:
            assert (client.protocol_version == "2026-07-28") == (mode != "legacy")
            assert (await call(client, "run", command="echo $((6 * 7))"))["stdout"] == "42\n"

    run(use())


def test_the_middle_of_a_long_output_is_left_out_and_counted(run: Run, serving: Serving) -> None:
    async def use() -> None:
        async with serving() as client:
            done = await call(client, "run", command="seq 100000; echo end", max_output=1000)
        assert done["stdout"].startswith("1\n2\n")
        assert done["stdout"].endswith("end\n")
        assert done["stdout_truncated"]
        assert not done["stderr_truncated"]
        assert done["stdout_bytes"] == 588_899
        assert len(done["stdout"]) < 1100

    run(use())


def test_a_command_gets_the_folder_the_variables_and_the_input_of_its_call(
    run: Run, serving: Serving, tmp_path: Path
) -> None:
    async def use() -> None:
        async with serving() as client:
            done = await call(
                client, "run", command='pwd; echo "$A"; cat', cwd=str(tmp_path), env={"A": "b c"}, stdin="in"
            )
            assert done["stdout"] == f"{tmp_path}\nb c\nin"
            late = await call(client, "run", command="sleep 60", timeout=1)
        assert (late["timed_out"], late["ok"], late["exit_code"]) == (True, False, None)

    run(use())


def test_a_named_shell_keeps_its_state_and_other_calls_do_not_see_it(run: Run, serving: Serving) -> None:
    async def use() -> None:
        async with serving() as client:
            await call(client, "session_run", session="a", command="cd /usr; X=1; f() { echo f$X; }")
            assert (await call(client, "session_run", session="a", command="pwd; f"))["stdout"] == "/usr\nf1\n"
            assert (await call(client, "session_run", session="b", command="echo $X"))["stdout"] == "\n"
            assert (await call(client, "session_close", session="a"))["ok"]
            assert not (await call(client, "session_close", session="a"))["ok"]
            assert (await call(client, "session_run", session="a", command="echo $X"))["stdout"] == "\n"

    run(use())


def test_progress_names_the_last_line_while_a_command_runs(run: Run, serving: Serving) -> None:
    said: list[tuple[float, str]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, message or ""))

    async def use() -> None:
        async with serving() as client:
            command = "echo early; echo late; sleep 2.5"
            await client.call_tool("run", {"command": command}, progress_callback=listen)

    run(use())
    assert len(said) >= 2
    assert [progress for progress, _ in said] == sorted({progress for progress, _ in said})
    assert "11 bytes of output: late" in said[0][1]


@pytest.mark.parametrize("tool", ["run", "session_run"])
def test_a_cancelled_call_ends_its_command_in_the_target(run: Run, serving: Serving, nap: str, tool: str) -> None:
    async def use() -> None:
        async with serving() as client:
            more = {"session": "a"} if tool == "session_run" else {}
            calling = asyncio.create_task(client.call_tool(tool, {"command": f"{nap} & {nap}", **more}))
            await until(lambda: len(with_mark(nap.replace(" ", "\0"))) == 2)
            calling.cancel()
            await until(lambda: not with_mark(nap.replace(" ", "\0")))
            assert (await call(client, "run", command="echo still here"))["ok"]

    run(use())


def test_nothing_is_left_when_the_client_goes(run: Run, serving: Serving, nap: str) -> None:
    async def use() -> None:
        async with serving() as client:
            calling = asyncio.create_task(client.call_tool("run", {"command": nap}))
            await until(lambda: with_mark(nap.replace(" ", "\0")))
        with pytest.raises(MCPError):
            await calling

    run(use())
    wait_until(lambda: not with_mark(nap.replace(" ", "\0")))


def test_a_signal_ends_the_server_and_its_commands(cli: Cli, nap: str) -> None:
    child = cli.start("mcp", "serve", stdin=subprocess.PIPE)
    assert child.stdin is not None
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    calling = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run", "arguments": {"command": nap}}}  # fmt: skip
    for message in (request, {"jsonrpc": "2.0", "method": "notifications/initialized"}, calling):
        child.stdin.write(json.dumps(message).encode() + b"\n")
        child.stdin.flush()
    wait_until(lambda: with_mark(nap.replace(" ", "\0")))
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 128 + signal.SIGTERM
    wait_until(lambda: not with_mark(nap.replace(" ", "\0")))


def test_a_job_is_started_watched_read_and_ended(run: Run, serving: Serving, nap: str) -> None:
    async def use() -> None:
        async with serving() as client:
            short = (await call(client, "job_start", command="echo one; echo two >&2; exit 4", name="short"))["job"]
            ended = await call(client, "job_poll", job=short, wait=60)
            assert (ended["state"], ended["exit_code"], ended["name"]) == ("ended", 4, "short")
            log = await call(client, "job_log", job=short, offset=0, length=2, stream="stdout")
            assert (log["output"], log["next_offset"], log["total"]) == ("on", 2, 4)
            rest = await call(client, "job_log", job=short, offset=log["next_offset"], stream="stdout")
            assert rest["output"] == "e\n"
            assert (await call(client, "job_log", job=short, offset=-4, stream="stderr"))["output"] == "two\n"
            long = (await call(client, "job_start", command=nap))["job"]
            assert (await call(client, "job_poll", job=long))["state"] == "running"
            assert {each["job"] for each in (await call(client, "job_list"))["jobs"]} >= {short, long}
            assert (await call(client, "job_kill", job=long))["state"] == "ended"
            assert not with_mark(nap.replace(" ", "\0"))

    run(use())


def test_a_job_outlives_the_server(run: Run, serving: Serving, nap: str) -> None:
    async def start() -> str:
        async with serving() as client:
            return str((await call(client, "job_start", command=nap))["job"])

    async def look(job: str) -> None:
        async with serving() as client:
            assert (await call(client, "job_poll", job=job))["state"] == "running"
            await call(client, "job_kill", job=job)

    job = run(start())
    assert with_mark(nap.replace(" ", "\0"))
    run(look(job))


def test_files_are_written_read_and_listed(run: Run, serving: Serving, tmp_path: Path) -> None:
    async def use() -> None:
        path = str(tmp_path / "new" / "file")
        async with serving() as client:
            assert (await call(client, "write", path=path, content="häl\n"))["bytes"] == 5
            part = await call(client, "read", path=path, length=2)
            assert (part["content"], part["encoding"], part["truncated"], part["bytes"]) == ("h", "utf-8", True, 1)
            assert (await call(client, "read", path=path, offset=1))["content"] == "äl\n"
            whole = await call(client, "read", path=path)
            assert (whole["content"], whole["truncated"]) == ("häl\n", False)
            data = bytes(range(256))
            await call(client, "write", path=path, content=base64.b64encode(data).decode(), encoding="base64")
            read = await call(client, "read", path=path)
            assert (base64.b64decode(read["content"]), read["encoding"]) == (data, "base64")
            (entry,) = (await call(client, "list", path=str(tmp_path / "new")))["entries"]
            assert (entry["name"], entry["kind"], entry["size"]) == ("file", "file", 256)

    run(use())


def test_the_annotations_say_which_tools_only_read(run: Run, serving: Serving) -> None:
    async def use() -> None:
        async with serving() as client:
            tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint} == READERS
        for tool in tools:
            assert tool.annotations
            assert tool.annotations.destructive_hint == (tool.name not in READERS)
            assert tool.description
            assert tool.output_schema

    run(use())


def test_a_failure_is_one_line_with_what_to_try(run: Run, serving: Serving) -> None:
    async def use() -> None:
        async with serving() as client:
            wrong = await call(client, "run", comand="ls")
            assert wrong["error"]["type"] == "arguments"
            assert "the nearest one is 'command'" in wrong["error"]["message"]
            missing = await call(client, "read", path="/no/such/file")
            assert (missing["error"]["type"], missing["backend"]) == ("missing", "local")
            with pytest.raises(MCPError, match="there is no tool 'rm'"):
                await client.call_tool("rm", {})

    run(use())


def test_only_named_tools_are_offered(run: Run, serving: Serving, cli: Cli) -> None:
    async def use() -> None:
        async with serving("--tool", "read", "--tool", "list") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"read", "list"}
            with pytest.raises(MCPError):
                await client.call_tool("run", {"command": "true"})

    run(use())
    refused = cli("mcp", "serve", "--tool", "rm")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"there is no such tool. Try: run, session_run" in refused.stderr


def test_shells_are_marked_as_those_of_an_agent_and_commands_are_recorded(run: Run, serving: Serving, cli: Cli) -> None:
    async def use() -> None:
        async with serving() as client:
            assert (await call(client, "run", command="echo $HERMES_EXEC_AGENT"))["stdout"] == "mcp\n"

    run(use())
    assert "echo $HERMES_EXEC_AGENT" in json.dumps(cli.json("log", "--json"))


def test_secrets_of_the_target_are_not_in_results(run: Run, serving: Serving, cli: Cli) -> None:
    secret = "a-secret-of-this-test"
    (cli.cwd / "key").write_text(secret)
    os.chmod(cli.cwd / "key", 0o600)
    cli.configure(f'[backends.mine]\ntype = "local"\nsecrets = {{ MY_KEY = "file:{cli.cwd}/key" }}\n')

    async def use() -> None:
        async with serving("--on", "mine") as client:
            done = await call(client, "run", command="echo $MY_KEY")
        assert done["stdout"] == "[secret MY_KEY]\n"

    run(use())


def test_a_target_that_cannot_be_opened_is_named_by_each_call(run: Run, serving: Serving) -> None:
    async def use() -> None:
        async with serving("--on", "ssh://nobody@127.0.0.1:1") as client:
            assert (await client.list_tools()).tools
            for _ in range(2):
                failed = await call(client, "run", command="true")
                assert failed["error"]["retryable"]
                assert "127.0.0.1" in failed["error"]["message"]

    run(use())


def test_a_wrong_target_ends_the_command_with_a_usage_error(cli: Cli) -> None:
    done = cli("mcp", "serve", "--on", "nowhere:x")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


def test_options_of_http_need_http(cli: Cli) -> None:
    done = cli("mcp", "serve", "--port", "1")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"Try: --http" in done.stderr


def test_a_client_over_http_needs_the_token(run: Run, cli: Cli, nap: str) -> None:
    import httpx2

    cli.env["HERMES_EXEC_SERVER_TOKEN"] = TOKEN
    child = cli.start("mcp", "serve", "--http", "--port", "0", "--json")
    url = json.loads(child.out.readline())["listening"]

    async def use() -> None:
        async with httpx2.AsyncClient() as bare:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
                refused = await bare.post(url, json={}, headers=headers)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
            Client(streamable_http_client(url, http_client=client)) as session,
        ):
            assert (await call(session, "run", command="echo hi"))["stdout"] == "hi\n"
            calling = asyncio.create_task(session.call_tool("run", {"command": nap}))
            await until(lambda: with_mark(nap.replace(" ", "\0")))
            calling.cancel()
            await until(lambda: not with_mark(nap.replace(" ", "\0")))

    run(use())
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 128 + signal.SIGTERM
    assert TOKEN.encode() not in child.err.read()


def test_a_line_that_is_no_message_is_ignored(run: Run, cli: Cli) -> None:
    async def use() -> None:
        program, *rest = COMMAND
        script = '{ echo "not json"; cat; } | exec "$@"'
        args = ["-c", script, "sh", program, *rest, "mcp", "serve"]
        async with Client(StdioServerParameters(command="sh", args=args, env=cli.env)) as client:
            assert (await call(client, "run", command="echo hi"))["stdout"] == "hi\n"

    run(use())


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
def test_a_container_is_served_like_this_machine(run: Run, serving: Serving, cli: Cli, nap: str, image: str) -> None:
    dock = engine()
    cli.configure(
        f'[backends.box]\ntype = "docker"\nengine = "{dock.address}"\nimage = "{dock.image(image)}"\npull = "never"\n'
    )

    async def use() -> None:
        async with serving("--on", "box") as client:
            done = await call(client, "run", command="test -e /.dockerenv; echo $?; echo err >&2; exit 5")
            assert (done["stdout"], done["exit_code"], done["backend"]) == ("0\n", 5, "box")
            await call(client, "write", path="/tmp/file", content="in a container")
            assert (await call(client, "read", path="/tmp/file"))["content"] == "in a container"
            calling = asyncio.create_task(client.call_tool("run", {"command": nap}))
            await until(lambda: with_mark(nap.replace(" ", "\0")))
            (pid, *_) = with_mark(nap.replace(" ", "\0"))
            calling.cancel()
            await until(lambda: not alive(pid))

    run(use())
    dock.wait_until_none()

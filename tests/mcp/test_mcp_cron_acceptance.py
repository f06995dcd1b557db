"""Both at once: other programs' tools, ours for other programs, and jobs of which none is lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.mcp.test_mcp_conformance import SERVER, TOKEN, add_token, client_command, run_suite
from tests.mcp.test_mcp_serve import call
from tests.rigs import node
from tests.rigs.docker_engine import DEBIAN, engine
from tests.rigs.sshd import Sshd
from tests.rigs.tickers import kill_tickers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.cli.conftest import Cli
    from tests.mcp.conftest import Serving

    Run = Callable[[Awaitable[Any]], Any]
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_S = 86400


def use_a_server_in_a_chat(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs/mcp.md").read_text()
    (cli.cwd / "clock.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    added = cli("mcp", "add", "clock", "--allow", "now", "--", sys.executable, "clock.py")
    assert added.returncode == 0, added.stderr
    call: dict[str, Any] = {"name": "mcp__clock__now", "arguments": {}}
    lines = [{"content": "", "tool_calls": [call]}, {"content": "done"}]
    (cli.cwd / "script.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = cli("chat", "-q", "what time is it?", "--replay", "script.jsonl", "--approve", "allow")
    assert done.returncode == 0, done.stderr
    assert "+00:00" in cli("conversations", "export", "last", "--format", "jsonl").stdout.decode()


async def pass_the_suite(cli: Cli, folder: Path) -> None:
    cli.env["HERMES_EXEC_SERVER_TOKEN"] = TOKEN
    child = cli.start("mcp", "serve", "--http", "--port", "0", "--json")
    url = json.loads(child.out.readline())["listening"]
    for scenario in ("initialize", "tools_call", "auth/scope-step-up"):
        await run_suite(folder, "client", "--command", client_command(), "--scenario", scenario)
    async with add_token(url) as address:
        for scenario in SERVER:
            await run_suite(folder, "server", "--url", address, "--scenario", scenario)
    child.terminate()
    child.wait(30)


async def serve_a_container_and_a_host(cli: Cli, serving: Serving, host: Sshd) -> None:
    dock, fields = engine(), host.profile()
    cli.configure(
        f'[backends.box]\ntype = "docker"\nengine = "{dock.address}"\nimage = "{dock.image(DEBIAN)}"\npull = "never"\n'
        f'[backends.far]\ntype = "ssh"\nhost = "{host.listen}"\nport = {host.port}\nuser = "{host.user}"\n'
        f'key_path = "{host.key}"\nknown_hosts_path = "{fields.known_hosts_path}"\n'
        f'config_path = "{fields.config_path}"\nagent = false\n'
    )
    for target, command, expected in (
        ("box", "test -e /.dockerenv; echo $?", "0\n"),
        ("far", "id -un", f"{host.user}\n"),
    ):
        async with serving("--on", target) as client:
            done = await call(client, "run", command=command)
            assert (done["stdout"], done["backend"]) == (expected, target)


def sleep_over_two_weeks(cli: Cli) -> None:
    """A weekly job, on the day of the week three days ago, whose machine slept for two weeks."""
    now = time.time()
    day = DAYS[datetime.fromtimestamp(now - 3 * DAY_S, UTC).weekday()]
    report = cli.cwd / "report.txt"
    words = ("--command", "echo ran", "--tz", "UTC", "--deliver", f"file:{report}", "--name", "weekly")
    added = cli("cron", "add", f"0 8 * * {day}", *words)
    assert added.returncode == 0, added.stderr
    with sqlite3.connect(Path(cli.env["XDG_STATE_HOME"]) / "hermes_exec/cron.sqlite") as base:
        begin = int(now) - 14 * DAY_S
        base.execute("UPDATE jobs SET anchor = ?, cursor = ?, next = ?", (begin, begin, begin + 1))
    base.close()
    tickers = [cli.start("cron", "tick") for _ in range(4)]
    assert [each.wait(60) for each in tickers] == [0] * 4
    found = cli.json("cron", "history", "--json")[::-1]
    assert [(slot["state"], slot["cause"], slot["count"]) for slot in found] == [
        ("missed", "schedule", 1), ("missed", "schedule", 1), ("completed", "catch-up", 1),
    ]  # fmt: skip
    assert [each["state"] for each in found[-1]["deliveries"]] == ["delivered"]
    lines = report.read_text().splitlines()
    assert [line for line in lines if line.startswith("--- ")] == lines[:1]
    assert "missed before: 2 slots" in lines[1]
    assert lines[-2] == "ran"


@pytest.mark.soak
def test_a_server_that_starts_slowly_is_added(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs/mcp.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    (cli.cwd / "clock.py").write_text(f"import time\ntime.sleep(22)\n{program}")
    added = cli("mcp", "add", "clock", "--allow", "now", "--", sys.executable, "clock.py")
    assert added.returncode == 0, added.stderr


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_whole_of_it(serving: Serving, cli: Cli, tmp_path: Path) -> None:
    node.find_node()
    use_a_server_in_a_chat(cli)
    sleep_over_two_weeks(cli)
    asyncio.run(pass_the_suite(cli, tmp_path))
    with Sshd() as host:
        asyncio.run(serve_a_container_and_a_host(cli, serving, host))
    for number, shared in enumerate((False, True)):
        folder = tmp_path / f"killed{number}"
        folder.mkdir()
        found = kill_tickers(folder, jobs=8, minutes=60, kills=12, seconds=15.0, seed=number, shared=shared)
        assert found.amiss == []

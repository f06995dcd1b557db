"""The commands of the gateway: one line for what is wrong, and a whole run over Telegram's protocol."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.config.settings import GatewaySettings
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.frontends.gateway.adapter import ENTRY_POINTS
from hermes_exec_agent.frontends.gateway.core import hold_gateway, is_gateway_running
from hermes_exec_agent.frontends.gateway.load import create_adapters
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.testing.gateway_session import CODE
from tests.rigs.bounded import until
from tests.rigs.endpoint import ScriptedEndpoint
from tests.rigs.telegram_api import TOKEN, run_telegram


def test_settings_without_a_platform_are_refused() -> None:
    with pytest.raises(ConfigError, match="no platform is configured"):
        create_adapters(GatewaySettings())


def test_an_unknown_kind_of_platform_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match='type = "telegram"'):
        create_adapters(GatewaySettings(platforms={"telegrm": {}}))


def test_two_tables_of_one_account_are_refused() -> None:
    table = {"type": "irc", "host": "h", "nick": "a"}
    with pytest.raises(ConfigError, match="one account"):
        create_adapters(GatewaySettings(platforms={"x": table, "y": table}))


def test_a_second_gateway_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sqlite"
    assert not is_gateway_running(path)
    with hold_gateway(path):
        assert is_gateway_running(path)
        with pytest.raises(UsageError, match="a gateway runs already"), hold_gateway(path):
            pass
    assert not is_gateway_running(path)


def test_each_adapter_is_short() -> None:
    found = {each.name: each.value.partition(":")[0] for each in entry_points(group=ENTRY_POINTS)}
    assert {"discord", "irc", "signal", "slack", "telegram", "whatsapp"} <= set(found)
    for module in found.values():
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        assert len(Path(spec.origin).read_text().splitlines()) <= 200, module


class Machine:
    """The command line of one user."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        names = {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
        self.environ = {**os.environ, **names, **environ}

    async def start(self, *words: str, **environ: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        argv = [sys.executable, "-m", "hermes_exec", "gateway", *words]
        return await asyncio.create_subprocess_exec(
            *argv, stdout=pipe, stderr=pipe, env={**self.environ, **environ}, cwd=self.folder
        )

    async def schedule(self, *options: str) -> tuple[int | None, str]:
        """Add a job of cron, and let it be due now; return the exit code and the errors."""
        argv = [sys.executable, "-m", "hermes_exec", "cron", "add", "every 1m", "--command", "echo due", *options]
        pipe = asyncio.subprocess.PIPE
        adding = await asyncio.create_subprocess_exec(*argv, stderr=pipe, env=self.environ, cwd=self.folder)
        said = (await adding.communicate())[1].decode()
        if not adding.returncode:
            with CronStore.of_user(self.environ) as store, store.transaction() as base:
                at = {"at": int(time.time()) - 1}
                base.execute("UPDATE jobs SET anchor = :at - 60, cursor = :at - 60, next = :at", at)
        return adding.returncode, said

    async def run(self, *words: str, **environ: str) -> tuple[int | None, str, str]:
        process = await self.start(*words, **environ)
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


async def deliver(machine: Machine, rig: Any) -> None:
    """Have a job's report sent to two addresses of one person."""
    for nowhere, why in (("message:eve", "there is no such person"), ("message:owner@irc", "no chat on irc yet")):
        code, said = await machine.schedule("--deliver", nowhere)
        assert (code, said.count("\n")) == (2, 1)
        assert why in said
    named = ("--name", "report", "--deliver", "message:owner", "--deliver", "message:owner@telegram")
    assert (await machine.schedule(*named))[0] == 0
    await until(lambda: sum("report" in text and "due" in text for text in rig.texts("ada")) >= 2, 90)
    assert sum("report" in text for text in rig.texts("ada")) == 2


def test_a_whole_run(tmp_path: Path) -> None:
    async def work() -> None:
        with ScriptedEndpoint(["The answer."], forever=True) as endpoint:
            async with run_telegram() as rig:
                keys = {"BOT": TOKEN, "LLM_BASE_URL": endpoint.url, "OPENAI_API_KEY": "k", "DEFAULT_MODEL": "m"}
                machine = Machine(tmp_path, LLM_PROVIDER="custom", **keys)
                (tmp_path / "hermes_exec").mkdir()
                table = f'[gateway.platforms.telegram]\ntoken = "env:BOT"\nbase_url = "{rig.url}"\npoll_s = 1\n'
                (tmp_path / "hermes_exec/hermes.toml").write_text(f"{table}interval_s = 0\n")
                gateway = await machine.start("run", "--json")
                assert gateway.stdout is not None
                assert json.loads(await gateway.stdout.readline()) == {"connected": "telegram", "account": "4711"}
                await talk(machine, rig)
                gateway.send_signal(signal.SIGTERM)
                out, err = await gateway.communicate()
                assert gateway.returncode == 0, err
                assert TOKEN not in f"{out!r}{err!r}"
                code, shown, _ = await machine.run("status", "--json")
                assert code == 0
                assert not json.loads(shown)["running"]

    async def talk(machine: Machine, rig: Any) -> None:
        await rig.say("ada", "hello")
        await until(lambda: rig.texts("ada"), 60)
        found = CODE.search(rig.texts("ada")[0])
        assert found is not None
        refused = await machine.run("pair", found[1], "--as", "owner", HERMES_EXEC_AGENT="m")
        assert refused[0] == 2
        assert "for a person" in refused[2]
        code, shown, _ = await machine.run("outbox", "--json")
        assert code == 0
        assert json.loads(shown)[0]["person"] == ""
        assert found[1] not in shown
        assert (await machine.run("pair", found[1], "--as", "owner"))[0] == 0
        await rig.say("ada", "what is it?")
        await until(lambda: "The answer." in rig.texts("ada"), 60)
        assert (await machine.run("send", "owner", "**A note**"))[0] == 0
        await until(lambda: "A note" in rig.texts("ada"), 60)
        code, shown, _ = await machine.run("people", "--json")
        assert (code, [each["name"] for each in json.loads(shown)]) == (0, ["owner"])
        code, shown, _ = await machine.run("status", "--json")
        assert json.loads(shown)["platforms"][0]["state"] == "connected"
        await deliver(machine, rig)
        code, shown, _ = await machine.run("outbox", "--state", "sent")
        assert re.search(r"sent +owner +telegram", shown)

    asyncio.run(asyncio.wait_for(work(), 230))


@pytest.mark.parametrize(
    "words", [["pair", "ABCDEFGH", "--as", "owner"], ["people", "--remove", "bob"], ["send", "bob", "hi"], ["run"]]
)
def test_an_agents_shell_is_refused_also_without_its_variable(tmp_path: Path, words: list[str]) -> None:
    machine = Machine(tmp_path)
    argv = ["env", "-u", "HERMES_EXEC_AGENT", sys.executable, "-m", "hermes_exec", "gateway", *words]
    shell = ["sh", "-c", '"$@"; exit $?', "sh", *argv]  # the shell stays above the command
    done = subprocess.run(
        shell,
        env={**machine.environ, "HERMES_EXEC_AGENT": "m"},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert b"is the shell of an agent" in done.stderr
    assert not list(tmp_path.glob("**/gateway.sqlite"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pair", "ABCDEFGH", "--as", "Not A Name"], "is not a name of a person"),
        (["pair", "ABCDEFGH", "--as", "owner", "--role", "king"], "there is no such role"),
        (["send", "bob", "hi"], "there is no person 'bob'"),
        (["send", "b\udcff", "hi"], "is not a name of a person"),
        (["send", "bob", "h\udcff"], "is not UTF-8 text"),
        (["outbox", "--state", "gone"], "there is no such state"),
        (["people", "--remove", "bob"], "there is no person 'bob'"),
    ],
)
def test_bad_input_gets_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    code, _, error = asyncio.run(Machine(tmp_path).run(*words))
    assert code == 2
    assert said in error
    assert error.count("\n") == 1

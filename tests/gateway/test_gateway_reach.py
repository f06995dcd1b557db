"""The page docs/reach.md from an empty folder: three messengers, a tool of a server, a schedule, sleep and kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.frontends.gateway.turns import CUT_OFF
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.testing.gateway_session import CODE
from tests.cli.conftest import Child, Cli, cli
from tests.mcp.conftest import RIG
from tests.rigs.bounded import until
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import ScriptedEndpoint
from tests.rigs.irc_server import PASSWORD, IrcRig, find_server, run_irc
from tests.rigs.slack_api import APP_TOKEN, SlackRig
from tests.rigs.slack_api import TOKEN as SLACK_TOKEN
from tests.rigs.telegram_api import TOKEN, TelegramRig, run_telegram
from tests.rigs.web_view import View, read_json

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Reply

__all__ = ["cli"]

FACT = "42 parcels"
WEEK_S = 7 * 86400
MODEL = "reach-model"


def think(body: dict[str, Any]) -> Reply:
    """Answer as a model would that uses the shop's tool and the schedule."""
    messages = body["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        return say(
            "It waits for your approval." if "waits for a person" in last["content"] else f"The shop has {FACT}."
        )
    text = str(last["content"])
    if "every Monday" in text:
        job = {"action": "create", "name": "parcels", "schedule": "0 8 * * mon", "prompt": "ask the shop again"}
        return ask(("cronjob", {**job, "report": "slack"}))
    if "ask the shop" in text:
        return ask(("mcp__shop__echo", {"text": FACT}))
    if "wait" in text:
        time.sleep(3)
    if "again?" in text:
        return say(f"You were told of {FACT}." if FACT in str(messages[:-1]) else "I do not know.")
    return say(f"You said: {text}")


class Reach:
    """A person's machine, with accounts on three platforms."""

    def __init__(self, cli: Cli, telegram: TelegramRig, slack: SlackRig, irc: IrcRig) -> None:
        self.cli = cli
        self.rigs: dict[str, Any] = {"telegram": telegram, "slack": slack, "irc": irc}
        self.gateway: Child

    async def run(self, *words: str) -> Any:
        done = await asyncio.to_thread(self.cli, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    async def start(self) -> None:
        self.gateway = self.cli.start("gateway", "run", "--json")
        found = {json.loads(await asyncio.to_thread(self.gateway.out.readline))["connected"] for _ in range(3)}
        assert found == {"telegram", "slack", "irc"}

    def kill(self) -> None:
        """End the gateway and all that it has started at once."""
        for pid in [self.gateway.pid, *find_children(self.gateway.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.gateway.wait()

    async def pair(self, platform: str) -> None:
        rig = self.rigs[platform]
        await rig.say("ada", "hello")
        await until(lambda: CODE.search("".join(rig.texts("ada"))), 60)
        code = CODE.search("".join(rig.texts("ada")))
        assert code is not None
        await self.run("gateway", "pair", code[1], "--as", "owner")
        await self.read(platform, "Paired as owner")

    async def read(self, platform: str, wanted: str, count: int = 1) -> None:
        rig = self.rigs[platform]
        await until(lambda: sum(wanted in text for text in rig.texts("ada")) >= count, 120)


def find_children(pid: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = each.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(each.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


async def begin_in_telegram_and_go_on_in_irc(reach: Reach) -> None:
    telegram = reach.rigs["telegram"]
    for platform in ("telegram", "slack", "irc"):
        await reach.pair(platform)
    await reach.rigs["slack"].say("ada", "I am here, too")
    await reach.read("slack", "You said")
    await telegram.say("ada", "ask the shop how many parcels it has")
    await reach.read("telegram", "May this run?")
    await telegram.press("ada", "Approve")
    await reach.read("telegram", f"The shop has {FACT}.")
    await reach.rigs["irc"].say("ada", "what was it again?")
    await reach.read("irc", f"You were told of {FACT}.")
    await reach.rigs["irc"].say("ada", "every Monday at eight do that again, and tell me in Slack")
    await reach.read("irc", "It waits for your approval.")


async def see_and_approve_in_the_browser(reach: Reach) -> None:
    view = await asyncio.to_thread(View.start, reach.cli)
    cookie = view.sign_in()
    (listed,) = read_json(view, "/api/conversations", cookie)["items"]
    events = read_json(view, f"/api/conversations/{listed['id']}", cookie)["events"]
    assert any("mcp__shop__echo" in str(each.get("calls")) for each in events)
    assert [each["note"] for each in events if each["kind"] == "approval"] == ["mcp__shop__echo: approved"]
    (job,) = read_json(view, "/api/approvals", cookie)["jobs"]
    assert dict(job["facts"])["deliver"] == "message:owner@slack"
    answer = {"job": job["id"], "revision": job["revision"], "allow": True}
    assert view.call("/api/approvals", answer, cookie=cookie)[0] == 200
    await reach.run("cron", "edit", "parcels", "--approve", "allow")
    view.kill()


async def sleep_over_two_mondays(reach: Reach) -> None:
    reach.kill()
    with CronStore.of_user(reach.cli.env) as store, store.transaction() as base:
        base.execute("UPDATE jobs SET anchor = anchor - :s, cursor = cursor - :s, next = next - :s", {"s": 2 * WEEK_S})
    await reach.start()
    await reach.read("slack", "parcels")
    await until(lambda: sorted(each["state"] for each in history(reach)) == ["completed", "missed", "missed"], 60)
    (run,) = [each for each in history(reach) if each["state"] == "completed"]
    assert [(each["address"], each["state"]) for each in run["deliveries"]] == [("message:owner@slack", "delivered")]
    reports = [text for text in reach.rigs["slack"].texts("ada") if "parcels" in text and "completed" in text]
    assert len(reports) == 1
    assert FACT in reports[0]


def history(reach: Reach) -> list[dict[str, Any]]:
    from hermes_exec_agent.scheduler.slots import list_deliveries, list_slots

    with CronStore.of_user(reach.cli.env) as store:
        return [
            {"state": each.state, "deliveries": list_deliveries(store, each.id)} for each in list_slots(store, limit=9)
        ]


async def kill_in_the_middle(reach: Reach, endpoint: ScriptedEndpoint) -> None:
    telegram, slack = reach.rigs["telegram"], reach.rigs["slack"]
    asked = len(endpoint.requests)
    await telegram.say("ada", "wait for me")
    await until(lambda: len(endpoint.requests) > asked, 60)
    await slack.say("ada", "queued behind it")
    await reach.read("slack", "Queued; 1 before it.")
    reach.kill()
    await telegram.say("ada", "written while it was away")
    await reach.start()
    await reach.read("slack", "You said: queued behind it")
    await reach.read("telegram", "You said: written while it was away")
    assert sum(CUT_OFF[:40] in text for text in telegram.texts("ada")) == 1
    for rig, text in ((slack, "queued behind it"), (telegram, "written while it was away")):
        assert sum(f"You said: {text}" in each for each in rig.texts("ada")) == 1
    states = {each["state"] for each in json.loads(await reach.run("gateway", "outbox", "--json"))}
    assert states <= {"sent", "unknown"}


async def work(cli: Cli, folder: Path) -> None:
    folder.mkdir()
    async with AsyncExitStack() as stack:
        endpoint = stack.enter_context(ScriptedEndpoint([think], forever=True))
        telegram = await stack.enter_async_context(run_telegram())
        slack = await stack.enter_async_context(SlackRig().run())
        irc = await stack.enter_async_context(run_irc(folder))
        cli.env |= {"TELEGRAM": TOKEN, "SLACK": SLACK_TOKEN, "SLACK_APP": APP_TOKEN, "IRC": PASSWORD, "TZ": "UTC"}
        cli.env |= {
            "LLM_PROVIDER": "custom",
            "LLM_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "k",
            "DEFAULT_MODEL": MODEL,
        }
        now = datetime.now(UTC)
        if now.weekday() == 0 and now.hour == 8:  # a slot of this hour would not count as missed
            cli.env["TZ"] = "Asia/Tokyo"
        cli.configure(
            "[agent]\nscheduled_jobs = true\n"
            f'[gateway.platforms.telegram]\ntoken = "env:TELEGRAM"\nbase_url = "{telegram.url}"\n'
            "poll_s = 1\ninterval_s = 0\n"
            f'[gateway.platforms.slack]\ntoken = "env:SLACK"\napp_token = "env:SLACK_APP"\n'
            f'base_url = "{slack.url}/api/"\ninterval_s = 0\nsettle_s = 0.1\n'
            f'[gateway.platforms.irc]\nhost = "localhost"\nport = {irc.proxy_port}\nca = "{folder}/cert.pem"\n'
            'nick = "agent"\npassword = "env:IRC"\ninterval_s = 0\n'
        )
        reach = Reach(cli, telegram, slack, irc)
        server = ("--", cli.env["PYTHON"], "-I", str(RIG), str(folder / "shop"))
        (folder / "shop").mkdir()
        await reach.run("mcp", "add", "shop", "--allow", "echo", *server)
        await reach.start()
        await begin_in_telegram_and_go_on_in_irc(reach)
        await see_and_approve_in_the_browser(reach)
        await sleep_over_two_mondays(reach)
        await kill_in_the_middle(reach, endpoint)
        reach.gateway.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(reach.gateway.communicate)
        assert reach.gateway.returncode == 0, err
        assert not any(secret in f"{out!r}{err!r}" for secret in (TOKEN, SLACK_TOKEN, APP_TOKEN, PASSWORD))
        assert endpoint.complaints == []


@thorough
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_server() is None, reason="needs ngircd. Try: apt-get install ngircd")
def test_one_person_over_three_messengers_a_schedule_sleep_and_kills(cli: Cli, tmp_path: Path) -> None:

    cli.env["PYTHON"] = sys.executable
    asyncio.run(asyncio.wait_for(work(cli, tmp_path / "rigs"), 580))

"""What a person decides on the page: calls of runs, proposed jobs, and new proofs of skills."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.frontends.http.runs import RequestApprover
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job, find_job
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_agent.tools.tool import Approvals
from tests.http.conftest import TOKEN, Serve, serve
from tests.http.test_server_runs import call, start
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.browser import broken, new_page, read_cookie, show
from tests.rigs.skill_makers import registered
from tests.rigs.web_view import View, read_json

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.cli.conftest import Cli

leave_out("it starts a browser")

__all__ = ["serve"]


def propose(machine: Cli, name: str) -> None:
    with CronStore.of_user(machine.env) as store:
        add_job(store, JobSpec(schedule="every 15m", prompt="look"), time.time(), name=name, author="a model")


def state_of(machine: Cli, name: str) -> str:
    with CronStore.of_user(machine.env) as store:
        return find_job(store, name).state


def test_a_call_of_a_run_is_allowed_once(browser: Browser, machine: Cli, serve: Serve, tmp_path: Path) -> None:
    target = tmp_path / "written"
    served = serve(
        ask(("terminal", {"command": f"touch {target}"})),
        say("Done."),
        approvals=Approvals("ask"),
        person=RequestApprover(),
    )
    machine.env["SERVED"] = TOKEN
    view = View.start(machine, "--server", served.root, "--server-token-from", "env:SERVED")
    del machine.env["SERVED"]
    page = new_page(browser, view.link)
    show(page, "#/approvals")
    page.get_by_text("Nothing waits for you").wait_for()
    id = start(served)
    page.locator("#nav-approvals .count").wait_for()
    assert not target.exists()
    page.get_by_role("button", name="Allow terminal").click()
    wait_until(lambda: call(served, f"/v1/runs/{id}")[1]["status"] == "completed")
    assert target.exists()
    page.get_by_text("Nothing waits for you").wait_for()
    assert broken(page) == []
    cookie = read_cookie(page)
    again = {"run": id, "approval": "0" * 12, "allow": True}
    status, _, body = view.call("/api/approvals", again, cookie=cookie)
    assert (status, b"no such question waits" in body) == (502, True)
    served.tell_to_stop()
    served.stop()
    found = read_json(view, "/api/approvals", cookie)
    assert "does not answer" in found["error"]
    assert TOKEN not in json.dumps(found)
    page.context.close()
    assert view.stop() == 0
    assert TOKEN not in view.child.err.read().decode()


def test_a_proposed_job_is_accepted_or_removed_as_it_was_shown(machine: Cli) -> None:
    for name in ("good", "bad", "changed"):
        propose(machine, name)
    view = View.start(machine)
    cookie = view.sign_in()
    jobs = {each["name"]: each["revision"] for each in read_json(view, "/api/approvals", cookie)["jobs"]}
    assert set(jobs) == {"good", "bad", "changed"}

    def decide(name: str, revision: int, *, allow: bool) -> int:
        return view.call("/api/approvals", {"job": name, "revision": revision, "allow": allow}, cookie=cookie)[0]

    assert decide("changed", jobs["changed"] + 1, allow=True) == 400
    assert decide("good", jobs["good"], allow=True) == 200
    assert decide("good", jobs["good"], allow=True) == 400
    assert decide("bad", jobs["bad"], allow=False) == 200
    assert (state_of(machine, "good"), state_of(machine, "changed")) == ("active", "waiting")
    assert [each["name"] for each in read_json(view, "/api/approvals", cookie)["jobs"]] == ["changed"]
    view.stop()


def test_a_proof_is_begun_once_and_its_end_is_shown(browser: Browser, machine: Cli, tmp_path: Path) -> None:
    registered(default_home(machine.env), tmp_path / "skill")
    view = View.start(machine)
    page = new_page(browser, view.link)
    show(page, "#/skills")
    page.get_by_role("button", name="Prove add-numbers again").click()
    cookie = read_cookie(page)

    def proof() -> dict[str, Any]:
        return dict(read_json(view, "/api/skills", cookie)["proofs"].get("add-numbers") or {})

    wait_until(proof)
    if proof()["state"] == "running":
        assert view.call("/api/skills/add-numbers/prove", {}, cookie=cookie)[0] == 400
    wait_until(lambda: proof()["state"] != "running")
    assert proof()["state"] in {"accepted", "refused", "failed"}, proof()  # without a sandbox it fails
    assert proof()["text"] not in {"", "internal error"}
    page.locator(".badge", has_text=proof()["state"]).wait_for()
    page.context.close()
    view.stop()

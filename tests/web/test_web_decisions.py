"""What a person decides on the page: calls of runs, proposed jobs, and new proofs of skills."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.frontends.gateway.core import hold_gateway
from hermes_exec_agent.frontends.gateway.database import gateway_file
from hermes_exec_agent.frontends.gateway.question_board import QuestionBoard
from hermes_exec_agent.frontends.gateway.records import Address, Message, read_uptime
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.frontends.http.runs import RequestApprover
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job, find_job, remove_job
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_agent.tools.tool import Approvals
from tests.http.conftest import TOKEN, Serve, serve
from tests.http.test_server_runs import call, start
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.browser import broken, new_page, read_cookie, show
from tests.rigs.skill_makers import registered
from tests.rigs.web_view import HOSTILE, View, read_json

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.cli.conftest import Cli

leave_out("it starts a browser")

__all__ = ["serve"]


@pytest.fixture(scope="module")
def view(machine: Cli) -> View:
    return View.start(machine)


@pytest.fixture(scope="module")
def page(browser: Browser, view: View) -> Page:
    return new_page(browser, view.link)


def propose(machine: Cli, name: str) -> None:
    with CronStore.of_user(machine.env) as store:
        spec = JobSpec(schedule="every 15m", prompt="look", approve="allow", deliver=("file:/srv/found",))
        origin = {"sources": [{"tool": "web_fetch", "source": "http://evil.test"}]}
        add_job(store, spec, time.time(), name=name, author="a model", origin=origin)


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


def test_a_proposed_job_is_accepted_or_removed_as_it_was_shown(machine: Cli, view: View, page: Page) -> None:
    cookie = read_cookie(page)
    for name in ("good", "bad", "changed", "replaced"):
        propose(machine, name)
    jobs = {each["name"]: each for each in read_json(view, "/api/approvals", cookie)["jobs"]}
    assert set(jobs) == {"good", "bad", "changed", "replaced"}
    facts = dict(jobs["good"]["facts"])
    assert (facts["tools that change something"], facts["deliver"]) == ("allow", "file:/srv/found")
    assert facts["read before"] == "web_fetch http://evil.test"

    def decide(name: str, *, allow: bool, changes: int = 0) -> int:
        body = {"job": jobs[name]["id"], "revision": jobs[name]["revision"] + changes, "allow": allow}
        return view.call("/api/approvals", body, cookie=cookie)[0]

    assert decide("changed", allow=True, changes=1) == 400
    assert decide("good", allow=True) == 200
    assert decide("good", allow=True) == 400
    assert decide("bad", allow=False) == 200
    with CronStore.of_user(machine.env) as store:  # the agent withdraws its job, and proposes another of that name
        remove_job(store, find_job(store, "replaced"), time.time())
    propose(machine, "replaced")
    assert decide("replaced", allow=True) == 400
    assert {state_of(machine, each) for each in ("changed", "replaced")} == {"waiting"}
    assert state_of(machine, "good") == "active"


def test_a_question_of_a_messenger_is_shown_and_the_owner_alone_answers_it(
    machine: Cli, view: View, page: Page
) -> None:
    path = gateway_file(machine.env)
    path.parent.mkdir(parents=True, exist_ok=True)
    taken: list[str] = []
    address = Address("telegram", "1", "c")
    with hold_gateway(path), Store(path) as store:
        board = QuestionBoard(store)
        ids: dict[str, str] = {}
        for name in ("owner", "bob"):
            message = Message(1, name, "request", "do it", address, False, True, "20260101-120000-aaaa", 0)

            def decide(answer: str, name: str = name) -> bool:
                taken.append(answer)
                board.end(ids[name], "elsewhere")
                return True

            summary, until = "\n".join(HOSTILE), read_uptime() + 600
            ids[name] = board.add(message, (f"tool_{name}", summary), until, decide)
            if name == "owner":
                ids["text"] = board.add(
                    message, ("clarify", summary), until, lambda answer: decide(answer, "text"), ["red", HOSTILE[0]]
                )
        show(page, "#/approvals")
        page.get_by_text("bob alone can answer this, in the chat.").wait_for()
        page.wait_for_timeout(800)
        assert page.get_by_role("button", name="Allow tool_bob").count() == 0
        page.get_by_role("button", name="Allow tool_owner").click()

        def take(number: int) -> bool:
            for id, answer in board.read_answers():
                board.pass_on(id, answer)
            return len(taken) == number

        wait_until(lambda: take(1))
        page.locator("#live", has_text="Allowed.").wait_for()
        page.get_by_role("textbox", name="Your answer").fill("a dark\nred")
        page.wait_for_timeout(3500)  # the page is drawn again meanwhile
        assert broken(page) == []
        page.get_by_role("button", name="Answer", exact=True).click()
        wait_until(lambda: take(2))
        page.locator("#live", has_text="Answered.").wait_for()
        cookie = read_cookie(page)
        for name in ("owner", "bob"):
            body = {"question": ids[name], "allow": True}
            assert view.call("/api/approvals", body, cookie=cookie)[0] == 400
        assert view.call("/api/approvals", {"question": ids["text"], "answer": "blue"}, cookie=cookie)[0] == 400
        assert taken == ["yes", "a dark\nred"]
    assert view.call("/api/approvals", {"question": ids["bob"], "allow": True}, cookie=cookie)[0] == 400
    assert read_json(view, "/api/approvals", cookie)["chats"] == []  # the gateway has ended
    assert broken(page) == []


def test_a_question_that_moves_under_the_pointer_is_not_answered(machine: Cli, page: Page) -> None:
    for name in ("first", "second"):
        propose(machine, name)
    show(page, "#/approvals")
    page.get_by_role("button", name="Allow second").wait_for()
    page.evaluate("""() => new MutationObserver(() => {
      if (!document.querySelector("[aria-label='Allow first']"))
        document.querySelector("[aria-label='Allow second']")?.click();
    }).observe(document.querySelector("#body"), {childList: true})""")
    machine("cron", "remove", "first")
    page.locator("#live", has_text="Look again").wait_for()
    assert state_of(machine, "second") == "waiting"
    page.wait_for_timeout(800)
    page.get_by_role("button", name="Allow second").click()
    wait_until(lambda: state_of(machine, "second") == "active")
    assert broken(page) == []


def test_many_questions_of_a_server_arrive_in_full(machine: Cli) -> None:
    question = {"run_id": "run_1", "approval_id": "1", "tool": "terminal", "summary": "x" * 2000, "asked_at": 1.0}

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"object": "list", "data": [question] * 200}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        machine.env["SERVED"] = TOKEN
        address = f"http://127.0.0.1:{served.server_port}"
        view = View.start(machine, "--server", address, "--server-token-from", "env:SERVED")
        del machine.env["SERVED"]
        found = read_json(view, "/api/approvals", view.sign_in())
        view.stop()
        served.shutdown()
    assert (found["error"], len(found["runs"])) == ("", 200)


def test_a_proof_is_begun_once_and_its_end_is_shown(machine: Cli, view: View, page: Page, tmp_path: Path) -> None:
    registered(default_home(machine.env), tmp_path / "skill")
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

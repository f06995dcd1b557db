"""The real ``hermes-exec web`` in a process of its own, and a person's files with something on each page."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import audit_file
from hermes_exec.observe.audit import Audit
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.frontends.gateway.adapter import Incoming
from hermes_exec_agent.frontends.gateway.database import gateway_file
from hermes_exec_agent.frontends.gateway.records import Address, Piece
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.scheduler.job import JobSpec
from hermes_exec_agent.scheduler.jobs import add_job
from hermes_exec_agent.scheduler.slots import insert_slot
from hermes_exec_agent.scheduler.storage import CronStore
from hermes_exec_agent.skills.registry.home import default_home
from hermes_exec_agent.testing.gateway_session import CODE
from tests.rigs.bounded import wait_until
from tests.rigs.skill_makers import guide, registered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cli.conftest import Child, Cli

PAGES = ("terminals", "conversations", "skills", "approvals", "cron", "outbox", "audit", "costs")
HOSTILE = (
    "<script>window.__broken.push('script')</script>",
    "<img src=x onerror=\"window.__broken.push('image')\">",
    "<svg onload=\"window.__broken.push('svg')\"><script>window.__broken.push('svg')</script></svg>",
    "<svg><animate onbegin=window.__broken.push('animate') attributeName=x dur=1s>",
    "<a href=\"javascript:window.__broken.push('link')\">click</a>",
    "javascript:window.__broken.push('url')",
    "[click](javascript:window.__broken.push('markdown'))",
    "![x](http://127.0.0.1:9/pixel.png)",
    "<iframe srcdoc=\"<script>parent.__broken.push('frame')</script>\"></iframe>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href=http://127.0.0.1:9/>",
    "<style>*{display:none}</style>",
    "<form action=http://127.0.0.1:9/><button>go",
    "\"><script>window.__broken.push('quote')</script>",
    "'-window.__broken.push('apostrophe')-'",
    "</textarea></title></script><script>window.__broken.push('end')</script>",
    "{{constructor.constructor('window.__broken.push(1)')()}}",
    "${window.__broken.push('template')}",
    "data:text/html,<script>window.__broken.push('data')</script>",
    "\x1b]8;;http://127.0.0.1:9/\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[c\x1b[6n",
    "\u202egnp.exe\u202c \u2066isolate\u2069 \u200fright",
    "a\u0300\u0301\u0302\u0303\u0304\u0305" * 20 + "\ufeff\ufffe",
    "x" * 3000,
    "<object data='javascript:window.__broken.push(1)'><embed src=x><video src=x onerror=window.__broken.push(2)>",
)
"""What persons, models, tools and files may say, and must not do anything."""


@dataclass
class View:
    """A web view that runs."""

    cli: Cli
    options: tuple[str, ...]
    child: Child
    link: str
    root: str

    @classmethod
    def start(cls, cli: Cli, *options: str, port: int = 0) -> View:
        """Start it; it has a link."""
        child = cli.start("web", "--port", str(port), "--json", *options)
        line = child.out.readline()
        assert line, child.err.read()
        record = json.loads(line)
        return cls(cli, options, child, record["link"], record["listening"])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.root.rpartition(":")[2])

    def kill(self) -> None:
        """End it at once."""
        self.child.kill()
        self.child.wait()

    def stop(self) -> int:
        """End it as a person does; return its exit code."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(60)

    def restart(self) -> None:
        """Start it again at the same address."""
        again = View.start(self.cli, *self.options, port=self.port)
        self.child, self.link = again.child, again.link

    def call(
        self, path: str, body: object = None, *, cookie: str = "", method: str | None = None, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request as the page does; ``headers`` replace the page's own, or leave them out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        own: dict[str, str | None] = {"Cookie": cookie or None}
        if body is not None:
            own |= {"Content-Type": "application/json", "X-Hermes-Web": "1", "Origin": self.root}
        given = {name: value for name, value in {**own, **named}.items() if value is not None}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.root}{path}", data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, dict(response.headers), response.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def sign_in(self) -> str:
        """Use the link; return the cookie."""
        status, headers, body = self.call("/api/session", {"secret": self.link.partition("#link=")[2]})
        assert status == 200, body
        return headers["Set-Cookie"].partition(";")[0]


def fill(cli: Cli, folder: Path, texts: Sequence[str]) -> str:
    """Put each text into every file that a page shows; return the id of a conversation with all of them."""
    _fill_audit(cli, texts)
    _fill_cron(cli, texts)
    _fill_outbox(cli, texts)
    _fill_skills(cli, folder, texts)
    return _fill_conversations(cli, texts)


def _fill_conversations(cli: Cli, texts: Sequence[str]) -> str:
    id = "20260101-120000-aaaa"
    with EventLog.of_user(cli.env) as log:
        log.append(id, "started", {"target": texts[0], "model": texts[-1], "scripted": False})
        for number, text in enumerate(texts):
            call = {"id": str(number), "name": "terminal", "arguments": json.dumps({"command": text})}
            log.append(id, "user", {"content": text})
            log.append(
                id, "assistant", {"content": text, "tool_calls": [call], "model": text, "usage": {"cost": 0.0123}}
            )
            log.append(id, "call", {"id": str(number), "name": "terminal"})
            content = json.dumps({"ok": True, "target": text, "stdout": text})
            log.append(
                id, "result", {"id": str(number), "name": text, "content": content, "duration_s": 0.25, "source": text}
            )
        log.append(id, "approval", {"tool": texts[0], "summary": texts[-1], "answer": "yes"})
        log.append(id, "failed", {"error": texts[0]})
        for number, text in enumerate(texts[:20]):
            other = f"20260102-1200{number:02}-bbbb"
            log.append(other, "started", {"target": "local", "model": text, "scripted": False})
            log.append(other, "user", {"content": text})
    return id


def _fill_audit(cli: Cli, texts: Sequence[str]) -> None:
    path = audit_file(cli.env)
    path.parent.mkdir(parents=True, exist_ok=True)
    audit = Audit(path, redactor=Redactor())
    for number, text in enumerate(texts):
        audit.record_start(f"c{number}", text, "default", "run", text, "/")
        audit.record_end(f"c{number}", number % 2 or None, None, False, 0.5, 120, 3, text)
    audit.close()


def _fill_cron(cli: Cli, texts: Sequence[str]) -> None:
    now = time.time()
    with CronStore.of_user(cli.env) as store:
        for number, text in enumerate(texts[:12]):
            spec = JobSpec(schedule="every 15m", prompt=text.replace("\0", ""))
            job = add_job(store, spec, now, name=f"job-{number}", author="a model" if number % 6 == 5 else "")
            with store.transaction() as base:
                insert_slot(base, job, int(now), "failed", now, began=now - 9, ended=now, reason=text, text=text)


def _fill_outbox(cli: Cli, texts: Sequence[str]) -> None:
    path = gateway_file(cli.env)
    path.parent.mkdir(parents=True, exist_ok=True)
    with Store(path) as store:
        store.set_platform("telegram", texts[0], "online", texts[-1])
        address = Address("telegram", "1", "c")
        store.accept("telegram", "1", Incoming("c", "1", "ada", "hello"), lambda _: "request")
        piece = store.claim(address, lambda text: [text])
        assert isinstance(piece, Piece)
        code = CODE.search(piece.text)
        assert code is not None
        store.settle(piece, "failed", error=texts[0])
        store.pair(code[1], "ada", "guest")
        for text in texts:
            store.put("ada", address, text)


def _fill_skills(cli: Cli, folder: Path, texts: Sequence[str]) -> None:
    home = default_home(cli.env)
    registered(home, folder / "function")
    for number, text in enumerate(texts[:12]):
        about = " ".join(text.split())[:200].replace("\0", "") or "-"
        guide(home, folder / str(number), f"guide-{number}", json.dumps(about), text)


def read_json(view: View, path: str, cookie: str) -> Any:
    """The JSON of a path, which must be there."""
    status, _, body = view.call(path, cookie=cookie)
    assert status == 200, body
    return json.loads(body)


def start_job(machine: Cli, command: str, *options: str) -> str:
    """Start a job; return its id."""
    done = machine("run", "--detach", *options, "--", command)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def find_entry(view: View, cookie: str, job: str) -> dict[str, Any]:
    """The entry of a job or a shell, once its guest is connected."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        places = read_json(view, "/api/terminals", cookie)["places"]
        found[:] = [each for each in places if each["job"] == job]
        return bool(found)

    wait_until(is_there)
    return found[0]

"""The server of the web view: its routes, the page's files, and the limits of requests."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from aiohttp import web

from hermes_exec.cli.cost import query_accounts
from hermes_exec.errors import HermesError, Refused, UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.http.connections import Connections
from hermes_exec_agent.frontends.web import approvals, records, skills
from hermes_exec_agent.frontends.web.access import HEADERS, refuse
from hermes_exec_agent.frontends.web.clean import clean_text, clean_value
from hermes_exec_agent.frontends.web.places import PlaceMonitor
from hermes_exec_agent.frontends.web.streams import StreamServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from hermes_exec_agent.frontends.web.access import Access
    from hermes_exec_agent.runtime.events import EventLog

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger("hermes_exec.web")
_LARGEST = 16 << 10
"""Bytes of a request."""
_BODY_S = 10.0
_REASON = 1000
"""Characters of the reason of a refusal."""
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
}
_FILES = (
    "index.html", "app.css", "app.js", "dom.js", "net.js", "pages.js", "lists.js", "terminal.js", "icon.svg",
    "xterm/xterm.mjs", "xterm/xterm.css",
)  # fmt: skip
_OPEN_SESSION = "/api/session"


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The configuration of the web view."""

    log: EventLog
    redact: Callable[[str], str]
    """Removes known secrets."""
    runs: approvals.ServedRuns | None = None
    """The server whose runs ask; None if none was named."""
    allow_input: bool = False
    """Whether the page may type into jobs and shells, and end them."""


class WebServer:
    """Answers the requests of the page."""

    requires_token = True

    def __init__(self, config: WebConfig, access: Access) -> None:
        self.stopping = False
        self.connections = Connections()
        self._config = config
        self._access = access
        self._monitor = PlaceMonitor()
        self._streams = StreamServer(self._monitor, allow_input=config.allow_input)
        self._prover = skills.Prover()
        self._static = load_static()
        self.app = web.Application(middlewares=[self._handle], client_max_size=_LARGEST)
        add = self.app.router
        add.add_get("/", self._page)
        add.add_get("/static/{name:.+}", self._file)
        add.add_post(_OPEN_SESSION, self._open_session)
        add.add_post("/api/session/end", self._end_session)
        add.add_post("/api/link", self._create_link)
        add.add_get("/api/state", self._state)
        add.add_get("/api/terminals", self._terminals)
        add.add_post("/api/terminals/end", self._end_terminal)
        add.add_get("/api/stream", self._stream)
        add.add_get("/api/conversations", self._conversations)
        add.add_get("/api/conversations/{id}", self._conversation)
        add.add_get("/api/skills", self._skills)
        add.add_get("/api/skills/{name}", self._skill)
        add.add_post("/api/skills/{name}/prove", self._prove)
        add.add_get("/api/approvals", self._approvals)
        add.add_post("/api/approvals", self._decide)
        add.add_get("/api/cron", self._cron)
        add.add_get("/api/outbox", self._outbox)
        add.add_get("/api/audit", self._audit)
        add.add_get("/api/costs", self._costs)
        add.add_post("/api/resources", self._resources)

    async def end_runs(self, _: float) -> None:
        """Close the streams; the page connects again after a restart."""
        await self._streams.close()

    async def close(self) -> None:
        """Disconnect from the targets and the server of the agent."""
        await self._prover.close()
        await self._monitor.close()
        if self._config.runs is not None:
            await self._config.runs.close()

    @web.middleware
    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        public = not request.path.startswith("/api/") or request.path == _OPEN_SESSION
        refused = self._access.find_refusal(request, public=public)
        with self.connections.serve_request(request.protocol, known=refused is None and not public) as room:
            if refused is not None:
                response: web.StreamResponse = refused
            else:
                response = await self._answer(request, handler) if room else refuse(503, "too many connections")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refuse(self, status: int, error: Exception) -> web.Response:
        return refuse(status, clean_text(str(error), self._config.redact, _REASON))

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return refuse(error.status, error.reason)
        except UsageError as error:
            return self._refuse(400, error)
        except (HermesError, OSError) as error:
            return self._refuse(409 if isinstance(error, Refused) else 502, error)
        except Exception:  # noqa: BLE001  the page shows it, and the log has it
            _log.exception("a request failed")
            return refuse(500, "internal error")

    def _json(self, value: Any) -> web.Response:
        return web.json_response(clean_value(value, self._config.redact))

    async def _read(self, request: web.Request) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(_BODY_S):
                record: Any = json.loads(await request.read())
        except (ValueError, RecursionError, TimeoutError):
            record = None
        if not isinstance(record, dict):
            raise UsageError("the body is not a JSON object")
        return record  # pyright: ignore[reportUnknownVariableType]  it is JSON

    # The page

    async def _page(self, _: web.Request) -> web.Response:
        return self._static["index.html"].respond()

    async def _file(self, request: web.Request) -> web.Response:
        found = self._static.get(request.match_info["name"])
        return found.respond() if found is not None else refuse(404, "there is no such file")

    async def _open_session(self, request: web.Request) -> web.Response:
        record = await self._read(request)
        response = web.json_response({"opened": True})
        if await self._access.open_session(str(record.get("secret", ""))[:500], response):
            return response
        return refuse(403, "the link was used or is too old, or the token is wrong")

    async def _end_session(self, request: web.Request) -> web.Response:
        response = web.json_response({"opened": False})
        if (session := self._access.find_session(request)) is not None:
            self._access.close_session(session, response)
            await self._streams.close(session.id)
        return response

    async def _create_link(self, _: web.Request) -> web.Response:
        return web.json_response({"fragment": f"#link={self._access.create_link()}"})

    async def _state(self, _: web.Request) -> web.Response:
        return self._json({"allow_input": self._config.allow_input})

    # Terminals

    async def _terminals(self, _: web.Request) -> web.Response:
        return self._json(await self._monitor.list_places())

    async def _end_terminal(self, request: web.Request) -> web.Response:
        from hermes_exec.terminal.pty import close_pty

        record = await self._read(request)
        if not self._config.allow_input:
            return refuse(403, "this is off: hermes-exec web --allow-input")
        guest, name = str(record.get("guest", "")), str(record.get("job", ""))
        if record.get("kind") == "pty":
            shell = await self._monitor.find_pty(guest, name, 0.0)
            if shell is None:
                raise UsageError("there is no such shell")
            await close_pty(shell[0].link, name)
        else:
            found = await self._monitor.find_job(guest, name, 0.0)
            if found is None:
                raise UsageError("there is no such job")
            await found[0].job(found[1]).kill(max_output=0)
        return self._json({"ended": True})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        session = self._access.find_session(request)
        return await self._streams.handle(request, session) if session else refuse(401, "there is no session")

    # Records

    async def _conversations(self, request: web.Request) -> web.Response:
        before = request.query.get("before", "")[:100]
        return self._json(await asyncio.to_thread(records.list_conversations, self._config.log, before))

    async def _conversation(self, request: web.Request) -> web.Response:
        before = _parse_number(request.query.get("before", "0"))
        id = request.match_info["id"][:100]
        return self._json(await asyncio.to_thread(records.read_conversation, self._config.log, id, before))

    async def _skills(self, _: web.Request) -> web.Response:
        found = await asyncio.to_thread(skills.list_skills)
        return self._json({**found, "proofs": self._prover.results})

    async def _skill(self, request: web.Request) -> web.Response:
        return self._json(await asyncio.to_thread(skills.read_skill, request.match_info["name"][:200]))

    async def _prove(self, request: web.Request) -> web.Response:
        self._prover.start(request.match_info["name"][:200])
        return web.json_response({"started": True}, status=202)

    async def _approvals(self, _: web.Request) -> web.Response:
        runs: list[dict[str, Any]] = []
        error = ""
        if self._config.runs is not None:
            try:
                runs = await self._config.runs.list()
            except HermesError as failure:
                error = str(failure)
        jobs = await asyncio.to_thread(approvals.list_waiting_jobs)
        chats = await asyncio.to_thread(approvals.list_chat_questions)
        named = self._config.runs is not None
        return self._json({"has_server": named, "error": error, "runs": runs, "jobs": jobs, "chats": chats})

    async def _decide(self, request: web.Request) -> web.Response:
        record = await self._read(request)
        allow, text = record.get("allow"), record.get("answer")
        if "question" in record and isinstance(text, str):
            await asyncio.to_thread(approvals.answer_chat_question, str(record["question"])[:64], text)
            return self._json({"answered": True})
        if not isinstance(allow, bool):
            raise UsageError("allow is true or false")
        if "job" in record:
            revision = _parse_number(str(record.get("revision", "")))
            await asyncio.to_thread(approvals.decide_job, _parse_number(str(record["job"])), revision, allow=allow)
        elif "question" in record:
            await asyncio.to_thread(approvals.answer_chat_question, str(record["question"])[:64], allow)
        elif self._config.runs is None:
            raise UsageError("no server was named", remedy="hermes-exec web --server URL")
        else:
            run, question = str(record.get("run", ""))[:64], str(record.get("approval", ""))[:64]
            await self._config.runs.answer(run, question, allow=allow)
        return self._json({"answered": True})

    async def _cron(self, _: web.Request) -> web.Response:
        return self._json(await asyncio.to_thread(records.list_cron))

    async def _outbox(self, request: web.Request) -> web.Response:
        return self._json(await asyncio.to_thread(records.list_outbox, request.query.get("state", "")[:20]))

    async def _audit(self, request: web.Request) -> web.Response:
        failed = request.query.get("failed") == "1"
        return self._json(await asyncio.to_thread(records.list_audit, self._config.log, failed=failed))

    async def _costs(self, _: web.Request) -> web.Response:
        return self._json(await asyncio.to_thread(records.list_costs, self._config.log))

    async def _resources(self, _: web.Request) -> web.Response:
        """Ask the accounts for running resources: a request to each vendor, so only when a person wants it."""
        accounts = await query_accounts()
        alive = {each.target: each for account in accounts for each in account.alive}
        failed = [account for account in accounts if account.failed and account.required]
        return self._json({
            "items": [
                {"target": each.target, "since": each.since, "state": each.state, "size": each.size,
                 "owner": each.owner}
                for each in alive.values()
            ],
            "failed": [{"name": each.name, "why": each.failed} for each in failed],
        })  # fmt: skip


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page."""

    body: bytes
    kind: str

    def respond(self) -> web.Response:
        """Return the file as a response."""
        return web.Response(body=self.body, content_type=self.kind, charset="utf-8")


def load_static() -> dict[str, StaticFile]:
    """Return the files of the page by their names."""
    folder = files("hermes_exec_agent.frontends.web") / "static"
    return {name: StaticFile((folder / name).read_bytes(), _TYPES[name.rpartition(".")[2]]) for name in _FILES}


def _parse_number(text: str) -> int:
    number = parse_number(text, most=10**12 - 1)
    if number is None:
        raise UsageError("it is not a number")
    return number

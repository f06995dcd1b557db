"""The HTTP server: its routes and responses."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aiohttp import web

from hermes_exec.config.load import load_settings
from hermes_exec.errors import HermesError, PlaceError, UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.errors import BudgetSpent, ContextTooLong, HookRefused, ModelError
from hermes_exec_agent.frontends.http import protocol, responses, runs, sessions, turns
from hermes_exec_agent.frontends.http.connections import Connections
from hermes_exec_agent.frontends.http.conversation_pool import ConversationInUse, ConversationPool, PoolExhausted
from hermes_exec_agent.frontends.http.guard import PUBLIC_PATHS
from hermes_exec_agent.frontends.http.metrics import CONTENT_TYPE, Metrics
from hermes_exec_agent.memory.persons import Participant, check_participant, choose_participant
from hermes_exec_agent.models.protocol import refuse_blind
from hermes_exec_agent.runtime import Options, open_conversation
from hermes_exec_agent.runtime.events import TurnHeld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.frontends.http.guard import RequestGuard
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.runtime import Conversation
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals, Person

_log = logging.getLogger("hermes_exec.server")
_BODY_S = 30.0
"""The time limit for a client to send its request."""
_LATER_S = "5"
_FRESH_S = 5.0
_CAPABILITIES: dict[str, Any] = {
    "object": "hermes.api_server.capabilities",
    "platform": "hermes_exec",
    "auth": {"type": "bearer", "required": True},
    "features": {
        "chat_completions": True, "chat_completions_streaming": True,
        "responses_api": True, "responses_streaming": True, "reasoning_streaming": False,
        "run_submission": True, "run_status": True, "run_events_sse": True,
        "run_stop": True, "run_approval": True, "sessions": True,
    },
}  # fmt: skip


class TurnRequest(Protocol):
    """A request for a turn, in any form."""

    @property
    def model(self) -> str:
        """The name of the model; empty for the default."""
        ...

    @property
    def person(self) -> str:
        """The person that names no header; empty for none."""
        ...

    @property
    def conversation(self) -> str:
        """The conversation to continue; empty for a new one."""
        ...

    @property
    def request(self) -> str:
        """The text of the user."""
        ...

    @property
    def instructions(self) -> str:
        """Additions to the instructions of the agent."""
        ...

    @property
    def history(self) -> tuple[Message, ...]:
        """Earlier messages of a new conversation."""
        ...

    @property
    def images(self) -> tuple[Image, ...]:
        """Images of the request."""
        ...


A = TypeVar("A", bound=TurnRequest)


async def _none() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of a server."""

    target: str | None
    models: Models | None
    """None without a model: then only completions fail."""
    why: NoModel | None
    """The reason why there are no models."""
    log: EventLog
    cwd: str | None
    """The folder of the target to start in."""
    approvals: Approvals
    person: Person
    max_conversations: int = 8
    """The limit of open conversations, and so of concurrent turns."""
    keep_s: float = 900.0
    """Seconds that a target stays open after its last turn."""
    idle_s: float = 86400.0
    """Seconds after its last turn when a conversation ends, with its background commands."""
    memory: Callable[[], Awaitable[str]] = _none
    """Returns the problem of the long-term memory; empty if there is none."""
    budget: int | None = None
    """The limit of replies of the model in one turn; None uses the default."""
    most_cost: float | None = None
    """The limit of US dollars of one turn; None uses the configured one."""
    improve: bool = True
    """Whether a skill that fails in use is repaired."""


class Server:
    """Answers requests. ``/ready`` reports ``stopping``."""

    def __init__(self, offer: ServerConfig, guard: RequestGuard) -> None:
        self.stopping = False
        self._offer = offer
        self._metrics = Metrics()
        self._rooms = ConversationPool(
            self._open, most=offer.max_conversations, keep_s=offer.keep_s, idle_s=offer.idle_s
        )
        self._runs = runs.RunRegistry(self._metrics, offer.log.redact)
        self._guard = guard
        self.connections = Connections()
        self._memory_lock = asyncio.Lock()
        self._memory_checked = -math.inf
        self._memory_problem = ""
        self._preparing: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self.app = web.Application(middlewares=[self._handle_request], client_max_size=protocol.MAX_BODY)
        self.app.on_startup.append(self._prepare)
        self.app.router.add_get("/health", self._health)
        self.app.router.add_get("/ready", self._ready)
        self.app.router.add_get("/metrics", self._serve_metrics)
        self.app.router.add_get("/v1/models", self._models)
        self.app.router.add_get("/v1/models/{model:.+}", self._model)
        self.app.router.add_get("/v1/capabilities", self._capabilities)
        self.app.router.add_post("/v1/chat/completions", self._completions)
        self.app.router.add_post("/v1/responses", self._responses)
        self.app.router.add_get("/v1/responses/{id}", self._response)
        self.app.router.add_post("/v1/runs", self._start_run)
        self.app.router.add_get("/v1/runs/{id}", self._run_state)
        self.app.router.add_get("/v1/runs/{id}/events", self._run_events)
        self.app.router.add_post("/v1/runs/{id}/stop", self._stop_run)
        self.app.router.add_post("/v1/runs/{id}/approval", self._decide_run)
        self.app.router.add_get("/v1/approvals", self._list_approvals)
        self.app.router.add_get("/api/sessions", self._list_sessions)
        self.app.router.add_get("/api/sessions/{id}/messages", self._session_messages)

    @property
    def requires_token(self) -> bool:
        """Whether requests need a token."""
        return self._guard.token is not None

    async def end_runs(self, grace_s: float) -> None:
        """Let runs, which no client has to wait for, go on for ``grace_s`` seconds, then interrupt them."""
        await self._runs.close(grace_s)

    async def close(self) -> None:
        """Close all conversations; called after the last request."""
        if self._noting is not None:
            self._noting.cancel()
        await self._rooms.close()

    async def _prepare(self, _: web.Application) -> None:
        """Import and connect in advance for the first turn."""
        if (models := self._offer.models) is not None:
            self._preparing = asyncio.create_task(asyncio.to_thread(models.prepare))
            settings = load_settings().memory
            if settings.memory_enabled:
                from hermes_exec_agent.memory.note_writer import write_when_idle

                idle = write_when_idle(self._offer.log, models, settings, lambda: self._rooms.is_idle)
                self._noting = asyncio.create_task(idle)

    @web.middleware
    async def _handle_request(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        began = time.monotonic()
        try:
            refused = self._guard.check(request)
            known = refused is None and request.path not in PUBLIC_PATHS
            with self.connections.serve_request(request.protocol, known=known) as room:
                response = refused or (await handler(request) if room else _full())
        except web.HTTPException as error:
            response = protocol.make_error_response(
                error.status, error.reason, code=error.reason.lower().replace(" ", "_")
            )
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "unknown"
        self._metrics.requests.labels(route, str(response.status)).inc()
        took_ms = round((time.monotonic() - began) * 1e3)
        _log.info("%s %s", request.method, route, extra={"status": response.status, "took_ms": took_ms})
        return response

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        if self.stopping or self._offer.models is None:
            why = "stopping" if self.stopping else "no model is set up"
        else:
            why = await self._memory()
        return web.json_response({"ready": not why, "why": why}, status=503 if why else 200)

    async def _memory(self) -> str:
        """Return the problem of the memory, cached briefly so that public requests do not load the database."""
        async with self._memory_lock:
            if time.monotonic() - self._memory_checked > _FRESH_S:
                self._memory_problem = await self._offer.memory()
                self._memory_checked = time.monotonic()
            return self._memory_problem

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        self._metrics.open.set(len(self._rooms))
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _models(self, _: web.Request) -> web.Response:
        names = self._offer.models.names if self._offer.models is not None else ()
        return web.json_response({"object": "list", "data": [_model_entry(name) for name in names]})

    async def _model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        if self._offer.models is None or name not in self._offer.models.names:
            return protocol.make_error_response(404, "there is no such model", code="model_not_found")
        return web.json_response(_model_entry(name))

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._serve_turn(request, protocol.read_completion, self._answer_chat)

    async def _answer_chat(
        self, request: web.Request, completion: protocol.Completion, conversation: Conversation
    ) -> web.StreamResponse:
        if not completion.stream:
            return await turns.answer_whole(conversation, completion, self._metrics)
        seen = turns.count_calls(conversation, self._metrics)
        create = functools.partial(turns.ChatWriter, conversation, completion, seen=seen)
        return await turns.answer_streamed(
            request,
            conversation,
            completion.request,
            lambda write: create(write=write),
            self._metrics,
            completion.images,
        )

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._serve_turn(request, responses.read_request, self._answer_response)

    async def _answer_response(
        self, request: web.Request, asked: responses.ResponseRequest, conversation: Conversation
    ) -> web.StreamResponse:
        events = await asyncio.to_thread(self._offer.log.events, conversation.id)
        before, previous = responses.count_requests(events), asked.previous_response_id
        if previous and responses.parse_id(previous)[1] != before:
            return protocol.make_error_response(
                400, "previous_response_id: it is not the latest one of its conversation", code="previous_not_latest"
            )
        seen = turns.count_calls(conversation, self._metrics)
        clean = self._offer.log.redact
        create = functools.partial(
            responses.ResponseWriter, conversation, before + 1, clean, seen, previous=previous or None
        )
        if asked.stream:
            return await turns.answer_streamed(
                request, conversation, asked.request, lambda write: create(write=write), self._metrics
            )
        writer = create()
        answer = await turns.ask(conversation, asked.request, writer.update, self._metrics)
        return web.json_response(writer.to_json(answer), headers={turns.CONVERSATION: conversation.id})

    async def _response(self, request: web.Request) -> web.Response:
        try:
            id, number = responses.parse_id(request.match_info["id"])
            check_participant(self._offer.log, id, self._find_participant(request, ""))
        except UsageError as error:
            return protocol.make_error_response(404, str(error), code="not_found")
        events = await asyncio.to_thread(self._offer.log.events, id)
        found = responses.read_response(id, number, events)
        return web.json_response(found) if found is not None else _not_found("response")

    async def _start_run(self, request: web.Request) -> web.StreamResponse:
        if "Idempotency-Key" in request.headers:
            return protocol.make_error_response(400, "Idempotency-Key is not supported", code="invalid_request")
        return await self._serve_turn(request, runs.read_run, None)

    def _find_run(self, request: web.Request) -> runs.Run | None:
        """Return the run that a request names, if it is one of that person's."""
        run = self._runs.find(request.match_info["id"])
        return run if run is not None and self._is_of_person(run, request) else None

    def _is_of_person(self, run: runs.Run, request: web.Request) -> bool:
        if run.conversation is None:
            return False
        try:
            return run.conversation.participant == self._find_participant(request, "")
        except UsageError:
            return False

    async def _run_state(self, request: web.Request) -> web.Response:
        run = self._find_run(request)
        return web.json_response(run.to_json()) if run is not None else _not_found("run")

    async def _run_events(self, request: web.Request) -> web.StreamResponse:
        run = self._find_run(request)
        if run is None:
            return _not_found("run")
        last = parse_number(request.headers.get("Last-Event-ID", "")) or 0
        response = web.StreamResponse(headers=turns.STREAM_HEADERS)
        await response.prepare(request)
        with contextlib.suppress(TimeoutError, ConnectionError):  # the client is gone, and the run goes on
            async for each in run.follow(last):
                await turns.send(response, runs.format_run_event(*each) if each is not None else protocol.KEEPALIVE)
        return response

    async def _stop_run(self, request: web.Request) -> web.Response:
        run = self._find_run(request)
        if run is None:
            return _not_found("run")
        self._runs.stop(run)
        return web.json_response({"run_id": run.id, "status": run.status})

    async def _decide_run(self, request: web.Request) -> web.Response:
        run = self._find_run(request)
        if run is None:
            return _not_found("run")
        try:
            run.decide(protocol.read_model(runs.Decision, await request.read()))
        except UsageError as error:
            return protocol.make_error_response(400, str(error), code="invalid_request")
        return web.json_response({"run_id": run.id, "status": run.status})

    async def _list_approvals(self, request: web.Request) -> web.Response:
        found = [run for run in self._runs.list_all() if self._is_of_person(run, request)]
        clean = self._offer.log.redact
        data = [{**each, "summary": clean(each["summary"])} for run in found for each in run.list_questions()]
        return web.json_response({"object": "list", "data": data})

    async def _list_sessions(self, request: web.Request) -> web.Response:
        try:
            limit = sessions.parse_limit(request.query.get("limit", "50"))
            participant = self._find_participant(request, "")
            before = request.query.get("before")
        except UsageError as error:
            return protocol.make_error_response(400, str(error), code="invalid_request")
        found = await asyncio.to_thread(sessions.list_sessions, self._offer.log, participant, limit, before)
        return web.json_response(found)

    async def _session_messages(self, request: web.Request) -> web.Response:
        try:
            id = self._find_conversation(request.match_info["id"], self._find_participant(request, ""))
        except UsageError as error:
            return protocol.make_error_response(404, str(error), code="not_found")
        return web.json_response(await asyncio.to_thread(sessions.list_messages, self._offer.log, id))

    async def _capabilities(self, _: web.Request) -> web.Response:
        return web.json_response(_CAPABILITIES)

    async def _serve_turn(
        self,
        request: web.Request,
        read: Callable[[bytes], A],
        answer: Callable[[web.Request, A, Conversation], Awaitable[web.StreamResponse]] | None,
    ) -> web.StreamResponse:
        """Read a request for a turn, and answer it; without ``answer`` as a run."""
        if (models := self._offer.models) is None:
            return protocol.make_error_response(503, f"no model is set up: {self._offer.why}", code="no_model")
        if request.content_type != "application/json":  # a page of another site cannot send it without a preflight
            return protocol.make_error_response(415, "the body must be application/json", code="wrong_type")
        try:
            async with asyncio.timeout(_BODY_S):
                body = await request.read()
        except TimeoutError:
            return protocol.make_error_response(408, "the request did not arrive in time", code="too_slow", again=True)
        try:
            asked = read(body)
            name = asked.model or "main"
            if name not in models.names:
                return protocol.make_error_response(
                    404, f"there is no model {name!r}; GET /v1/models lists them", code="model_not_found"
                )
            if asked.images:
                refuse_blind(models.get(name))
            participant = self._find_participant(request, asked.person)
            named = request.headers.get(turns.CONVERSATION, "") or asked.conversation
            id = self._find_conversation(named, participant)
        except UsageError as error:
            return protocol.make_error_response(400, str(error), code="invalid_request")
        return await self._turn(request, asked, name, (id, participant), answer)

    def _find_participant(self, request: web.Request, person: str) -> Participant:
        """Return the person of a request; the configured one, or else the owner, if it names none."""
        name = request.headers.get(turns.PERSON, "") or person
        return choose_participant(load_settings(), name or None) or Participant()

    def _find_conversation(self, prefix: str, participant: Participant) -> str:
        """Return the id of the conversation to continue, which is of that person; empty for a new one."""
        if not prefix:
            return ""
        id = self._offer.log.find(prefix)
        check_participant(self._offer.log, id, participant)
        return id

    async def _turn(
        self,
        request: web.Request,
        asked: A,
        name: str,
        place: tuple[str, Participant],
        answer: Callable[[web.Request, A, Conversation], Awaitable[web.StreamResponse]] | None,
    ) -> web.StreamResponse:
        """Answer in the conversation with that id, or in a new one, of that person."""
        id, participant = place
        options = Options(unattended=True, instructions=asked.instructions, history=() if id else asked.history)
        if self._offer.budget is not None:
            options = replace(options, budget=self._offer.budget)
        if self._offer.most_cost is not None:
            options = replace(options, most_cost=self._offer.most_cost)
        if self._preparing is not None:
            await asyncio.wait([self._preparing])  # opening also imports, and two threads would block each other
        try:
            self._offer.log.refuse_held_turn(id)  # before the target is opened, which may take long
            acquired = self._rooms.acquire(id, options, participant)
            if answer is None:
                run = await self._runs.start(acquired, name, asked.request)
                return web.json_response({"run_id": run.id, "status": "started", **_session(run)}, status=202)
            async with acquired as conversation:
                self._offer.log.refuse_held_turn(id)  # and before a stream begins, after which no status can follow
                conversation.set_model(name)
                await conversation.check_budget()
                return await answer(request, asked, conversation)
        except HermesError as error:
            return _explain_failure(error)

    def _open(self, id: str, options: Options, participant: Participant) -> AbstractAsyncContextManager[Conversation]:
        offer = self._offer
        if offer.models is None:
            raise RuntimeError("a conversation needs a model")
        return open_conversation(
            offer.target,
            models=offer.models,
            person=offer.person,
            log=offer.log,
            repair_skills=offer.improve,
            cwd=offer.cwd,
            resume=id,
            options=options,
            approvals=offer.approvals,
            tell=lambda line: _log.info("%s", line),
            participant=participant,
        )


def _explain_failure(error: HermesError) -> web.Response:
    """Return the response of a turn that could not begin, or failed."""
    if isinstance(error, PoolExhausted | ConversationInUse | TurnHeld):
        status, code = (429, "busy") if isinstance(error, PoolExhausted) else (409, "turn_running")
        busy = protocol.make_error_response(status, str(error), code=code, again=True)
        busy.headers["Retry-After"] = _LATER_S
        return busy
    if isinstance(error, BudgetSpent):
        return protocol.make_error_response(429, str(error), code="budget_spent")
    if isinstance(error, ContextTooLong):
        return protocol.make_error_response(400, str(error), code="context_length_exceeded")
    if isinstance(error, ModelError):
        return protocol.make_error_response(502, str(error), code="model_failed")
    if isinstance(error, HookRefused):
        return protocol.make_error_response(403, str(error), code="hook_refused")
    if isinstance(error, PlaceError):
        return protocol.make_error_response(503, str(error), code="place_failed")
    return protocol.make_error_response(500, str(error), code="failed")


def _session(run: runs.Run) -> dict[str, str]:
    return {"session_id": run.conversation.id} if run.conversation is not None else {}


def _not_found(what: str) -> web.Response:
    return protocol.make_error_response(404, f"there is no such {what}", code="not_found")


def _full() -> web.Response:
    full = protocol.make_error_response(503, "too many connections", code="busy", again=True)
    full.headers["Retry-After"] = _LATER_S
    full.force_close()
    return full


def _model_entry(name: str) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hermes_exec"}

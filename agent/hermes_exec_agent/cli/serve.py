"""``serve``: the agent for programs, over HTTP."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import seconds
from hermes_exec.cli.console import note, say
from hermes_exec.cli.options import Improve, Json, On
from hermes_exec.cli.output import show_json
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec.extras import require

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.tools.tool import Mode

HOST = "127.0.0.1"
PORT = 8080
_TOKEN = "HERMES_EXEC_SERVER_TOKEN"  # noqa: S105  the name of a variable
_TOKEN_FROM = f"env:{_TOKEN}"


@dataclass(frozen=True, slots=True)
class _Wanted:
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
    improve: bool
    json: bool


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(serve)


def serve(  # noqa: PLR0913  one parameter an option
    on: On = None,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = HOST,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 chooses a free one.")] = PORT,
    socket: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Listen at a unix socket instead, which is made for this user alone."),
    ] = None,
    token_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help=f"Where the token is found: env:NAME or file:/path; {_TOKEN_FROM} if left out and set, else a file "
            "that the first start makes.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", metavar="HOST", help="A further name of this server; may be repeated.")
    ] = None,
    approve: Annotated[
        str, typer.Option(metavar="allow|deny", help="What becomes of tools that change something.")
    ] = "deny",
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Conversations that may be open at once.")] = 8,
    keep: Annotated[str, typer.Option(metavar="TIME", help="How long a place stays open after its last turn.")] = "15m",
    idle: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="When a conversation ends after its last turn, with what runs in its background."
        ),
    ] = "24h",
    grace: Annotated[str, typer.Option(metavar="TIME", help="How long turns may go on when the server ends.")] = "30s",
    budget: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Replies of the model that one turn may take.")
    ] = None,
    improve: Improve = True,
    json: Json = False,
) -> int:
    """Serve the agent as OpenAI's chat completions: /v1/chat/completions, /v1/models, /health, /ready, /metrics.

    Clients send the token as their API key (Authorization: Bearer TOKEN). Where none is given, the first start makes
    one in ~/.local/state/hermes_exec/serve-token, readable by this user alone. At a unix socket (--socket) the kernel
    says whose a client is, and no token is needed: curl --unix-socket PATH http://localhost/v1/models. --approve
    decides what tools may do, for there is no person to ask. SIGTERM ends it in good order.
    """
    if approve not in {"allow", "deny"}:
        raise UsageError(f"--approve {approve}: nobody is there to be asked", remedy="--approve allow, --approve deny")
    if socket is not None and (host != HOST or port != PORT):
        raise UsageError("--socket: a server listens at a socket or at an address, not at both", remedy="leave one out")
    times = seconds(keep), seconds(idle), seconds(grace)
    wanted = _Wanted(on, host, port, socket, token_from, name or [], approve, most, *times, budget, improve, json)
    return interruptible.run(_serve(wanted))


async def _serve(wanted: _Wanted) -> int:
    from hermes_exec.cli.open_target import folder_of, hide_environment, planned
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.frontends.chat.approver import Nobody
    from hermes_exec_agent.memory.database import VARIABLE, examine
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals

    require("server", "serve")
    if os.environ.get(VARIABLE):
        require("memory", f"the database of {VARIABLE}")
    from hermes_exec_agent.frontends.http.app import Offer, Server
    from hermes_exec_agent.frontends.http.guard import Guard, is_loopback, names_of
    from hermes_exec_agent.frontends.http.listener import listen

    hide_environment()
    plan = planned(wanted.on)
    names = names_of(wanted.host, wanted.names) if is_loopback(wanted.host) else frozenset[str]()
    token, kept = _token(wanted.token_from, over_socket=wanted.socket is not None)
    guard = Guard(token, names)
    models, why = _models()
    secrets = (*plan.secrets, *(models.secrets if models is not None else ()), *([token] if token else ()))
    with EventLog.of_user(redactor=Redactor(secrets)) as log:
        offer = Offer(
            wanted.on,
            models,
            why,
            log,
            folder_of(plan),
            Approvals(cast("Mode", wanted.approve)),
            Nobody(),
            most=wanted.most,
            keep_s=wanted.keep_s,
            idle_s=wanted.idle_s,
            memory=lambda: examine(os.environ.get(VARIABLE, "")),
            budget=wanted.budget,
            mends=wanted.improve,
        )

        where = wanted.socket.absolute() if wanted.socket is not None else (wanted.host, wanted.port)
        try:
            await listen(
                Server(offer, guard), where, grace_s=wanted.grace_s, listening=_announcer(kept, as_json=wanted.json)
            )
        except asyncio.CancelledError:
            return 0  # it was told to end, and did so in good order
        finally:
            if models is not None:
                await models.close()
    return 0


def _models() -> "tuple[Models | None, NoModel | None]":
    """The models, or why there are none: the server is there all the same, and says that it is not ready."""
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import load_models

    try:
        return load_models(), None
    except NoModel as error:
        say(f"it answers nobody until there is a model: {error}")
        return None, error


def _announcer(kept: Path | None, *, as_json: bool) -> Callable[[str], None]:
    """A function that prints where the server listens, and the file of the token that it made, never the token."""

    def announce(url: str) -> None:
        if as_json:
            show_json({"listening": url, **({"token_file": str(kept)} if kept else {})})
            return
        note(f"listening on {url}")
        if kept:
            note(f"clients send the token in {kept}")

    return announce


def _token(source: str | None, *, over_socket: bool) -> "tuple[Secret | None, Path | None]":
    """The token, and the file that it was made in if none was given. None at a unix socket for which none was given.

    Raises:
        ConfigError: it is missing, too short, or others could read it.
    """
    from hermes_exec.config.secrets import SecretSource, resolve_secrets
    from hermes_exec_agent.frontends.http.guard import SHORTEST_TOKEN
    from hermes_exec_agent.frontends.http.token_file import load_token, token_file

    kept = None
    if source is None and not os.environ.get(_TOKEN):
        if over_socket:
            return None, None
        kept = token_file(os.environ)
        token = load_token(kept)
    else:
        try:
            parsed = SecretSource.parse(source or _TOKEN_FROM)
        except ValueError as error:
            raise UsageError(f"--token-from: {error}") from None
        token = resolve_secrets({_TOKEN: parsed}, os.environ)[_TOKEN]
    if len(token.reveal()) < SHORTEST_TOKEN:
        remedy = f"remove {kept}; the next start makes a new one" if kept else "openssl rand -hex 32"
        raise ConfigError(f"the token is shorter than {SHORTEST_TOKEN} characters", remedy=remedy)
    return token, kept

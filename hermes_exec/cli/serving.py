"""``serve``: the agent for programs, over HTTP."""

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hermes_exec.cli import loop
from hermes_exec.cli.options import Improve, Json, On
from hermes_exec.cli.say import note, say
from hermes_exec.cli.show import show_json
from hermes_exec.cli.words import seconds
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec.extras import require

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.tools.approvals import Mode

PORT = 8080
_TOKEN = "HERMES_EXEC_SERVER_TOKEN"  # noqa: S105  the name of a variable
_TOKEN_FROM = f"env:{_TOKEN}"


@dataclass(frozen=True, slots=True)
class _Wanted:
    on: str | None
    host: str
    port: int
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
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 chooses a free one.")] = PORT,
    token_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE", help=f"Where the token is found: env:NAME or file:/path; {_TOKEN_FROM} if left out."
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

    Beyond this machine a token is required, which clients send as their API key. Nobody is there to be asked, so what
    tools may do is decided by --approve. SIGTERM ends it in good order.
    """
    if approve not in {"allow", "deny"}:
        raise UsageError(f"--approve {approve}: nobody is there to be asked", remedy="--approve allow, --approve deny")
    times = seconds(keep), seconds(idle), seconds(grace)
    wanted = _Wanted(on, host, port, token_from, name or [], approve, most, *times, budget, improve, json)
    return loop.run(_serve(wanted))


async def _serve(wanted: _Wanted) -> int:
    from hermes_exec.cli.places import folder_of, hide_environment, planned
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.chat.person import Nobody
    from hermes_exec_agent.events import EventLog
    from hermes_exec_agent.memory.database import VARIABLE, examine
    from hermes_exec_agent.tools.approvals import Approvals

    require("server", "serve")
    if os.environ.get(VARIABLE):
        require("memory", f"the database of {VARIABLE}")
    from hermes_exec_agent.server.app import Offer, Server
    from hermes_exec_agent.server.guard import Guard, is_loopback, names_of
    from hermes_exec_agent.server.listening import listen

    hide_environment()
    plan = planned(wanted.on)
    private = is_loopback(wanted.host)
    names = names_of(wanted.host, wanted.names) if private else frozenset[str]()
    guard = Guard(_token(wanted.token_from, private=private), names)
    models, why = _models()
    secrets = (*plan.secrets, *(models.secrets if models is not None else ()))
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

        def listening(url: str) -> None:
            if wanted.json:
                show_json({"listening": url})
            else:
                note(f"listening on {url}")

        try:
            await listen(Server(offer, guard), wanted.host, wanted.port, grace_s=wanted.grace_s, listening=listening)
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


def _token(source: str | None, *, private: bool) -> "Secret | None":
    """The token; None where only this machine can ask and none was set up.

    Raises:
        ConfigError: it is missing, or too short to be one.
    """
    from hermes_exec.config.secrets import SecretSource, resolve_secrets
    from hermes_exec_agent.server.guard import SHORTEST_TOKEN

    if source is None and private and not os.environ.get(_TOKEN):
        return None
    try:
        parsed = SecretSource.parse(source or _TOKEN_FROM)
    except ValueError as error:
        raise UsageError(f"--token-from: {error}") from None
    try:
        token = resolve_secrets({_TOKEN: parsed}, os.environ)[_TOKEN]
    except ConfigError as error:
        why = "" if private or source is not None else "beyond this machine a token is required: "
        raise ConfigError(f"{why}{error.what}", remedy=error.remedy) from error
    if len(token.reveal()) < SHORTEST_TOKEN:
        raise ConfigError(f"the token is shorter than {SHORTEST_TOKEN} characters", remedy="openssl rand -hex 32")
    return token

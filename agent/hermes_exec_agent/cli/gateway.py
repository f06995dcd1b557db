"""``gateway``: reach the agent from messengers."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import parse_duration
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec.extras import require
from hermes_exec_agent.agent_shell import refuse_agents_descendant
from hermes_exec_agent.cli.background import run_background

if TYPE_CHECKING:
    from hermes_exec.config.settings import Settings
    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.records import Role
    from hermes_exec_agent.frontends.gateway.store import Store
    from hermes_exec_agent.tools.tool import Mode

_STATES = ("pending", "sending", "sent", "failed", "unknown")
_SHOWN = 60


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/gateway.md.")
    for command in (run, status, pair, people, send, outbox):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def run(
    on: On = None,
    *,
    approve: Annotated[
        str, typer.Option(metavar="ask|deny", help="Ask a person before a tool changes something, or deny it.")
    ] = "ask",
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Let turns continue so long when the gateway ends.")
    ] = "30s",
    json: Json = False,
) -> int:
    """Connect the platforms of [gateway.platforms] with the agent, until SIGTERM or Ctrl-C.

    Only paired persons are answered (hermes-exec gateway pair). Messages are on the disk before they are acknowledged,
    so the next start continues after a kill.
    """
    refuse_agents_descendant()
    if approve not in {"ask", "deny"}:
        raise UsageError(f"--approve {approve}: persons are asked or refused", remedy="--approve ask, --approve deny")
    require("gateway", "gateway run")
    return interruptible.run(_run(on, approve, parse_duration(grace), _make_announcer(as_json=json)))


async def _run(on: str | None, approve: str, grace_s: float, announce: "Callable[[Adapter], None]") -> int:
    import asyncio

    from hermes_exec.cli.open_target import hide_environment, plan_target, start_folder
    from hermes_exec.config.load import load_settings, resolve
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.frontends.gateway.core import Gateway, hold_gateway
    from hermes_exec_agent.frontends.gateway.load import create_adapters, create_listener, find_secrets, hide_tokens
    from hermes_exec_agent.frontends.gateway.turns import TurnConfig, Turns
    from hermes_exec_agent.models import load_models
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals

    settings = load_settings()
    adapters = create_adapters(settings.gateway)
    listener = create_listener(settings.gateway, adapters)
    tokens = find_secrets(settings.gateway)
    hide_tokens(settings.gateway)
    hide_environment()
    plan = plan_target(on)
    models = load_models()
    config = TurnConfig(
        on,
        settings.gateway.guest_target,
        Approvals(cast("Mode", approve)),
        start_folder(plan),
        settings.gateway.max_conversations,
        settings.gateway.keep_s,
        largest_file=settings.gateway.largest_file,
    )
    redactor = Redactor((*plan.secrets, *models.secrets, *tokens))
    with _open_store(settings) as store, hold_gateway(store.path), EventLog.of_user(redactor=redactor) as log:
        gateway = Gateway(
            store,
            adapters,
            Turns(store, log, models, config),
            log,
            check_target=lambda word: resolve(word, load_settings()),
            grace_s=grace_s,
            listener=listener,
        )
        try:
            async with run_background(log):
                await gateway.run(announce)
        except asyncio.CancelledError:
            return 0  # a signal ended it, after its turns
        finally:
            await models.close()
    return 0


def _make_announcer(*, as_json: bool) -> "Callable[[Adapter], None]":
    def announce(adapter: "Adapter") -> None:
        if as_json:
            show_json({"connected": adapter.platform, "account": adapter.account})
        else:
            note(f"connected to {adapter.platform} as {adapter.account}")

    return announce


def _open_store(settings: "Settings | None" = None) -> "Store":
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.frontends.gateway.database import gateway_file
    from hermes_exec_agent.frontends.gateway.records import GuestLimit
    from hermes_exec_agent.frontends.gateway.store import Store

    settings = settings or load_settings()
    return Store(gateway_file(os.environ), guests=GuestLimit(settings.gateway.guest_requests))


def status(*, json: Json = False) -> int:
    """Show whether the gateway runs, the state, lag and last error of each platform, and what waits."""
    from hermes_exec_agent.frontends.gateway.core import is_gateway_running

    with _open_store() as store:
        running, platforms, counts = is_gateway_running(store.path), store.platforms(), store.count_states()
    if not running:
        for each in platforms:
            each["state"] = "stopped"
    if json:
        shown = [format_times(each, "since") for each in platforms]
        show_json({"running": running, "platforms": shown, "outbox": counts})
        return 0
    note("the gateway is running" if running else "the gateway is not running. Try: hermes-exec gateway run")
    if platforms:
        rows = [
            [each["platform"], each["account"], each["state"], f"{each['lag_s']:.0f} s", _format_error(each)]
            for each in platforms
        ]
        show_table(["PLATFORM", "ACCOUNT", "STATE", "LAG", "LAST ERROR"], rows)
    if counts:
        note(", ".join(f"{counts[each]} {each}" for each in _STATES if each in counts))
    return 0


def _format_error(platform: dict[str, Any]) -> str:
    """Return the last error of an account with its age."""
    if not platform["last_error"]:
        return ""
    return f"{platform['last_error']} ({platform['last_error_s']:.0f} s ago)"


def pair(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code that the gateway sent to the person.")],
    *,
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The person; owner is the user of this machine.")],
    role: Annotated[
        str | None,
        typer.Option(metavar="owner|guest", help="The rights: by default owner for the person owner, else guest."),
    ] = None,
) -> int:
    """Let a person in: tie the account that got the code to NAME.

    A guest works in the target of [gateway] guest_target, approves nothing and has a daily limit of requests. A
    person may have an account on each platform; all share one conversation.
    """
    from hermes_exec_agent.memory.persons import parse_person

    refuse_agents_descendant()
    if role not in {None, "owner", "guest"}:
        raise UsageError(f"--role {role}: there is no such role", remedy="--role owner, --role guest")
    chosen = parse_person(name) or "owner"
    if chosen == "owner" and role == "guest":
        raise UsageError("the owner is not a guest", remedy="--as with another name")
    with _open_store() as store:
        person = store.pair(code, chosen, cast("Role | None", role))
    note(f"paired as {person.name}, role {person.role}")
    return 0


def people(
    *,
    remove: Annotated[str | None, typer.Option(metavar="NAME", help="Remove this person with all accounts.")] = None,
    json: Json = False,
) -> int:
    """List the paired persons with their accounts, or remove one."""
    if remove is not None:
        refuse_agents_descendant()
        _check_name(remove)
    with _open_store() as store:
        if remove is not None:
            store.unpair(remove)
            note(f"removed {remove}; their next message gets a new code")
            return 0
        found = store.people()
    if json:
        show_json(found)
    elif found:
        rows = [
            [each["name"], each["role"], ", ".join(f"{a['platform']} {a['sender']}" for a in each["accounts"])]
            for each in found
        ]
        show_table(["NAME", "ROLE", "ACCOUNTS"], rows)
    else:
        note("no person is paired; write to the agent on a platform for a code")
    return 0


def _check_name(name: str) -> None:
    from hermes_exec_agent.memory.persons import parse_person

    parse_person(name)


def send(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A paired person.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message, as Markdown.")],
    *,
    json: Json = False,
) -> int:
    """Send a message to the chat that a person used last. It waits in the outbox until the gateway runs."""
    refuse_agents_descendant()
    if not text.strip():
        raise UsageError("the message is empty")
    _check_name(name)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the message is not UTF-8 text", remedy="a terminal with UTF-8") from None
    with _open_store() as store:
        person = store.person(name)
        if person is None:
            raise UsageError(f"there is no person {name!r}", remedy="hermes-exec gateway people")
        number = store.put(person.name, person.address, text)
    if json:
        show_json({"id": number})
    else:
        note(f"message {number} waits for the gateway")
    return 0


def outbox(
    *,
    state: Annotated[str, typer.Option(metavar="STATE", help=f"Only messages that are {', '.join(_STATES)}.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most so many.")] = 50,
    json: Json = False,
) -> int:
    """List the newest messages to persons with their states; an unknown one may have arrived."""
    if state and state not in _STATES:
        raise UsageError(f"--state {state}: there is no such state", remedy=", ".join(_STATES))
    with _open_store() as store:
        found = store.outbox(state, limit)
    if json:
        show_json([format_times(each, "at", "changed") for each in found])
    elif found:
        show_table(["ID", "CHANGED", "STATE", "PERSON", "PLATFORM", "ERROR", "TEXT"], [_to_row(each) for each in found])
    else:
        note("no messages")
    return 0


def _to_row(piece: dict[str, Any]) -> list[str]:
    changed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(piece["changed"]))
    text = " ".join(str(piece["text"]).split())
    return [
        str(piece["id"]), changed, piece["state"], piece["person"] or "stranger", piece["platform"], piece["error"],
        text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…",
    ]  # fmt: skip

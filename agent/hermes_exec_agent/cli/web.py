"""``web``: show what runs and what happened in a browser."""

import asyncio
import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import print_json_line
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec.extras import require
from hermes_exec_agent.agent_shell import refuse_agents_descendant

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.web.access import Access
    from hermes_exec_agent.frontends.web.approvals import ServedRuns

HOST = "127.0.0.1"
PORT = 8650
_TOKEN = "HERMES_EXEC_WEB_TOKEN"  # noqa: S105  the name of a variable
_GRACE_S = 1.0
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class _WebArguments:
    host: str
    port: int
    allow_input: bool
    server: str | None
    server_token_from: str | None
    token_from: str | None
    names: list[str]
    tls_cert: Path | None
    tls_key: Path | None
    behind_tls: bool
    json: bool


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(web)


def web(  # noqa: PLR0913  one parameter an option
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address.")] = HOST,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Listen on this port; 0 selects a free one.")
    ] = PORT,
    allow_input: Annotated[
        bool, typer.Option("--allow-input", help="Let the page type into jobs and shells, and end them.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Answer the questions of runs of this hermes-exec serve; or unix:PATH."),
    ] = None,
    server_token_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Read the token of that server from env:NAME or file:/path; by default as serve does.",
        ),
    ] = None,
    token_from: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help=f"Read the token that opens the page beyond this machine from env:NAME or file:/path; by default from "
            f"env:{_TOKEN}.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Accept requests for this host name too; may be repeated."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate chain, as PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate, as PEM.")] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy before this server speaks HTTPS with browsers.")
    ] = False,
    json: Json = False,
) -> int:
    """Show terminals, conversations, skills, approvals, slots, messages, the audit and costs on one page.

    The command prints a link that opens the page once; the page can create more. Without --allow-input the page only
    shows terminals. An address beyond this machine needs a token, a host name and HTTPS.
    """
    refuse_agents_descendant()
    arguments = _WebArguments(
        host, port, allow_input, server, server_token_from, token_from, name or [], tls_cert, tls_key, behind_tls, json
    )
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together", remedy="both, or neither")
    if server is not None and not _is_server(server):
        raise UsageError(f"--server {to_printable(server)}: it is not a URL", remedy="--server http://127.0.0.1:8080")
    for each in arguments.names:
        if not _NAME.fullmatch(each):
            raise UsageError(f"--name {to_printable(each)}: it is not a host name", remedy="--name view.example.org")
    return interruptible.run(_web(arguments))


def _is_server(address: str) -> bool:
    """Whether it is the path of a socket, or a URL without a name and a password."""
    try:
        found = urlsplit(address)
        has_host = bool(found.hostname) and (found.port is None or found.port > 0)
    except ValueError:
        return False
    is_url = found.scheme in {"http", "https"} and has_host and "@" not in found.netloc
    return address.startswith("unix:/") or (is_url and not found.query and not found.fragment)


async def _web(arguments: _WebArguments) -> int:
    require("web-view", "web")
    from hermes_exec.cli.global_flags import flags
    from hermes_exec_agent.frontends.http.listener import serve_until_cancelled
    from hermes_exec_agent.frontends.web.app import WebConfig, WebServer
    from hermes_exec_agent.runtime.events import EventLog

    access, tls = _create_access(arguments), _load_tls(arguments)
    with EventLog.of_user() as log:
        config = WebConfig(log, flags.clean, _find_runs(arguments), arguments.allow_input)
        with contextlib.suppress(asyncio.CancelledError):  # a signal ended it
            await serve_until_cancelled(
                WebServer(config, access),
                (arguments.host, arguments.port),
                grace_s=_GRACE_S,
                listening=_make_announcer(access, arguments),
                tls=tls,
            )
    return 0


def _create_access(arguments: _WebArguments) -> "Access":
    """Return the access to the page.

    Raises:
        UsageError: an address beyond this machine lacks a token, a name or HTTPS.
    """
    from hermes_exec.config.paths import state_folder
    from hermes_exec_agent.frontends.http.guard import is_loopback, list_host_names
    from hermes_exec_agent.frontends.http.token_file import load_token
    from hermes_exec_agent.frontends.web.access import Access
    from hermes_exec_agent.state_paths import WEB_ENDED, WEB_KEY

    token = _resolve_token(arguments.token_from)
    is_secure = arguments.tls_cert is not None or arguments.behind_tls
    if is_loopback(arguments.host):
        hosts = list_host_names(arguments.host, arguments.names)
    else:
        hosts = frozenset(each.lower() for each in arguments.names)
        missing = [
            option
            for option, has in (
                ("--token-from SOURCE", token is not None), ("--name HOST", bool(hosts)),
                ("--tls-cert and --tls-key, or --behind-tls", is_secure),
            )
            if not has
        ]  # fmt: skip
        if missing:
            raise UsageError(f"other machines reach {arguments.host}, so more is needed", remedy="; ".join(missing))
    folder = state_folder(os.environ)
    key = load_token(folder / WEB_KEY, remedy="a state folder that you can write to: XDG_STATE_HOME")
    rights = "input" if arguments.allow_input else ""
    return Access(key, hosts, token=token, secure=is_secure, rights=rights, ended=folder / WEB_ENDED)


def _resolve_token(source: str | None) -> "Secret | None":
    from hermes_exec_agent.frontends.http.token_file import resolve_token

    if source is None and not os.environ.get(_TOKEN):
        return None
    return resolve_token(source or f"env:{_TOKEN}", _TOKEN, os.environ)


def _find_runs(arguments: _WebArguments) -> "ServedRuns | None":
    from hermes_exec_agent.cli.serve import resolve_token
    from hermes_exec_agent.frontends.web.approvals import ServedRuns

    if arguments.server is None:
        return None
    needs_token = not arguments.server.startswith("unix:") or arguments.server_token_from is not None
    return ServedRuns(arguments.server, resolve_token(arguments.server_token_from)[0] if needs_token else None)


def _load_tls(arguments: _WebArguments) -> "ssl.SSLContext | None":
    if arguments.tls_cert is None:
        return None
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(arguments.tls_cert, arguments.tls_key, password=lambda: b"")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(f"{arguments.tls_cert}: the certificate cannot be used: {error}") from None
    return context


def _make_announcer(access: "Access", arguments: _WebArguments) -> "Callable[[str], None]":
    """Return a function that prints the address with a link for one session."""

    def announce(url: str) -> None:
        access.use_port(urlsplit(url).port or 0)
        link = f"{_find_address(url, arguments)}/#link={access.create_link()}"
        if arguments.json:
            print_json_line({"listening": url, "link": link})
            return
        print(link, flush=True)
        note(f"the link opens one session within 10 minutes{'' if arguments.allow_input else '; input is off'}")

    return announce


def _find_address(url: str, arguments: _WebArguments) -> str:
    """Return the address for browsers: a server that listens beyond this machine, or behind a proxy, has a name."""
    from hermes_exec_agent.frontends.http.guard import is_loopback

    name = arguments.names[0] if arguments.names else "localhost"
    if arguments.behind_tls:
        return f"https://{name}"
    return url if is_loopback(arguments.host) else f"https://{name}:{urlsplit(url).port}"

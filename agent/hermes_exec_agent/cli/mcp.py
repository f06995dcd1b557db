"""``mcp``: serve a target to other programs, and manage the servers whose tools the agent may use."""

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.confirm import confirm
from hermes_exec.cli.console import CHECK_FAILED, escape_controls, note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.extras import missing_modules, require
from hermes_exec_agent.agent_shell import refuse_agents_descendant
from hermes_exec_agent.cli.mcp_login import login, logout, run_login
from hermes_exec_agent.cli.mcp_serve import serve
from hermes_exec_agent.cli.options import complete_servers
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.examine import Listing, Row
    from hermes_exec_agent.mcp.pins import Pins

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a server.", autocompletion=complete_servers)]
_SHOWN = 60
_ALL = "*"


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/mcp.md.")
    group.command("serve")(serve)
    group.command("add")(add_server)
    group.command("list")(list_servers)
    group.command("test")(examine_server)
    group.command("remove")(remove_server)
    group.command("login")(login)
    group.command("logout")(logout)
    app.add_typer(group, name=name, short_help=summary)


def add_server(  # noqa: PLR0913  the options of one command
    name: Name,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND...]", help="The program of the server, and its arguments.")
    ] = None,
    *,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Use a server over HTTP.")] = None,
    token_from: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="The token for the server of --url: env:NAME or file:/path."),
    ] = None,
    logs_in: Annotated[
        bool, typer.Option("--login", help="Log in at the server first, as mcp login does, with --url.")
    ] = False,
    on: Annotated[
        str | None, typer.Option("--on", metavar="TARGET", help="Run the program in this target, not on this machine.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME", help="Give the program this variable; may be repeated."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="TOOL", help="Let the agent use this tool, or all: '*'; may be repeated."),
    ] = None,
    json: Json = False,
) -> int:
    """Add a server whose tools the agent may use, after it was asked for them once.

    The program follows a --: hermes-exec mcp add files --allow read_file -- npx -y PACKAGE /folder. The
    descriptions of its tools are accepted with that: a later change disables a tool until `mcp test NAME --accept`.
    Nothing is written if the server does not answer.
    """
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.mcp import config_edit, pins

    refuse_agents_descendant()
    require("mcp", "mcp add")
    config_edit.check_name(name)
    if name in load_settings().mcp:
        raise UsageError(f"there is an MCP server {name}", remedy=f"hermes-exec mcp remove {name}, or another name")
    fields = _make_fields(command or [], url, token_from, env or [], allow or [], on)
    text = config_edit.read_file(os.environ)
    settings = _parse(name, config_edit.add_server(text, name, fields))
    if logs_in:
        run_login(name, settings, browser=True)
    listing = _examine(name, settings)
    _check_allowed(allow or [], listing)
    if not allow and not json and sys.stdin.isatty():
        _show_rows(_compare(name, settings, None, listing))
        if confirm(f"let the agent use all {len(listing.tools)} tools?"):
            fields["tools"] = [_ALL]
    changed = config_edit.add_server(config_edit.read_file(os.environ), name, fields)
    settings = _parse(name, changed)
    accepted = pins.write_pins(name, listing.tools, listing.version, os.environ, features=listing.features)
    try:
        config_edit.write_file(changed, os.environ)
    except HermesError:
        pins.remove_pins(name, os.environ)
        raise
    _report(name, settings, accepted, listing, as_json=json)
    if not settings.tools:
        note(f'no tool is allowed yet: add tools = ["NAME"] to [mcp.{name}] of your hermes.toml')
    return 0


def _make_fields(
    command: "Sequence[str]",
    url: str | None,
    token_from: str | None,
    env: "Sequence[str]",
    allow: "Sequence[str]",
    on: str | None,
) -> dict[str, Any]:
    """Return the keys of the server's table."""
    if bool(command) == (url is not None):
        raise UsageError(
            "a server needs either a program or a URL", remedy="mcp add NAME -- PROGRAM…, or mcp add NAME --url URL"
        )
    given: dict[str, Any] = {
        "command": command[0] if command else None, "args": list(command[1:]), "env": list(env), "url": url,
        "token": token_from, "tools": list(dict.fromkeys(allow)), "target": on,
    }  # fmt: skip
    return {key: value for key, value in given.items() if value}


def _parse(name: str, text: str) -> "McpSettings":
    """Return the settings of a server in the text of a file.

    Raises:
        ConfigError: the text would not be valid.
    """
    from hermes_exec.config.files import parse_file
    from hermes_exec.config.settings import Origin
    from hermes_exec_agent.mcp import config_edit

    path = config_edit.find_file(os.environ)
    return parse_file(text.encode(), path, Origin("user", str(path))).mcp[name]


def _check_allowed(allow: "Sequence[str]", listing: "Listing") -> None:
    known = [tool.name for tool in listing.tools]
    for each in allow:
        if each not in (*known, _ALL):
            shown = ", ".join(flatten(name, _SHOWN) for name in known)
            raise UsageError(f"--allow {each}: the server has no such tool", remedy=f"one of {shown}")


def list_servers(*, json: Json = False) -> int:
    """List the servers of your configuration; none of them is started or reached."""
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.mcp.pins import read_pins

    servers = load_settings().mcp
    rows = [_describe_server(name, settings, read_pins(name, os.environ)) for name, settings in servers.items()]
    if json:
        show_json(rows)
    elif rows:
        heads = ("NAME", "SERVER", "TOOLS", "PROTOCOL", "ACCEPTED")
        show_table(
            heads, [[str(row[key]) for key in ("name", "server", "tools", "protocol", "accepted")] for row in rows]
        )
    else:
        note("there is no server. Try: hermes-exec mcp add NAME -- PROGRAM…")
    return 0


def _describe_server(name: str, settings: "McpSettings", pins: "Pins | None") -> dict[str, Any]:
    from hermes_exec_agent.mcp.servers import is_allowed

    where = settings.url or " ".join([settings.command or "", *settings.args])
    known = list(pins.tools) if pins else []
    usable = [tool for tool in known if is_allowed(tool, settings)]
    tools = f"{len(usable)} of {len(known)}" if pins else "not listed yet"
    return {
        "name": name,
        "server": flatten(where, _SHOWN),
        "enabled": settings.enabled,
        "tools": tools if settings.enabled else f"{tools}, disabled",
        "allowed": usable,
        "protocol": pins.version if pins else "-",
        "accepted": time.strftime("%Y-%m-%d %H:%M", time.localtime(pins.at)) if pins else "-",
    }


def examine_server(
    name: Name,
    *,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept the descriptions of its tools as they are now.")
    ] = False,
    json: Json = False,
) -> int:
    """Connect to a server, and compare the descriptions of its tools with the accepted ones.

    The exit code is 1 if an allowed tool is new, has changed or is gone, as a conversation does not have it then.
    """
    from hermes_exec_agent.mcp import pins

    if accept:
        refuse_agents_descendant()
    require("mcp", "mcp test")
    settings = _find(name)
    listing = _examine(name, settings)
    known = pins.read_pins(name, os.environ) if not accept else _read_or_none(name)
    if not json:
        _show_changes(known, listing)
    if known is None or accept:
        known = pins.write_pins(name, listing.tools, listing.version, os.environ, features=listing.features)
    return _report(name, settings, known, listing, as_json=json)


def remove_server(name: Name) -> int:
    """Remove a server from your configuration, with its accepted descriptions and the keys of a login."""
    from hermes_exec_agent.mcp import config_edit, pins

    refuse_agents_descendant()
    if _find(name).url is not None and not missing_modules("mcp"):
        from hermes_exec_agent.mcp.login import remove_login

        remove_login(name, os.environ)
    config_edit.write_file(config_edit.remove_server(config_edit.read_file(os.environ), name), os.environ)
    pins.remove_pins(name, os.environ)
    return 0


def _find(name: str) -> "McpSettings":
    from hermes_exec.config.check import nearest_name
    from hermes_exec.config.load import load_settings

    servers = load_settings().mcp
    if name not in servers:
        near = nearest_name(name, servers)
        raise UsageError(f"there is no MCP server {name!r}", remedy=near or "hermes-exec mcp add NAME -- PROGRAM…")
    return servers[name]


def _read_or_none(name: str) -> "Pins | None":
    """Return the accepted descriptions, or None where that cannot be read, as it is about to be replaced."""
    from hermes_exec.errors import ConfigError
    from hermes_exec_agent.mcp.pins import read_pins

    try:
        return read_pins(name, os.environ)
    except ConfigError:
        return None


def _examine(name: str, settings: "McpSettings") -> "Listing":
    from hermes_exec_agent.mcp.examine import list_server

    found: list[Listing] = []

    async def look() -> int:
        found.append(await list_server(name, settings))
        return 0

    code = interruptible.run(look())
    if not found:
        raise typer.Exit(code)
    return found[0]


def _compare(name: str, settings: "McpSettings", known: "Pins | None", listing: "Listing") -> "list[Row]":
    from hermes_exec_agent.mcp.examine import compare

    return compare(name, settings, known, listing)


def _show_changes(known: "Pins | None", listing: "Listing") -> None:
    """Print the differences of descriptions, which are untrusted text."""
    from hermes_exec_agent.mcp.examine import describe_change

    if known is None:
        return
    now = {tool.name: tool for tool in listing.tools}
    for tool, state in known.compare(listing.tools).items():
        if state != "same":
            for line in describe_change(known.tools.get(tool), now.get(tool)):
                print(flags.clean(escape_controls(line)))


def _report(name: str, settings: "McpSettings", known: "Pins", listing: "Listing", *, as_json: bool) -> int:
    rows = _compare(name, settings, known, listing)
    lost = [row for row in rows if row.allowed and row.state != "same"]
    if as_json:
        facts: Mapping[str, Any] = {
            "name": name, "protocol": listing.version, "program": flatten(listing.program, _SHOWN),
            "took_s": round(listing.took_s, 3), "tools": [row.to_record() for row in rows],
        }  # fmt: skip
        show_json(facts)
    else:
        _show_rows(rows)
        program = f", {flatten(listing.program, _SHOWN)}" if listing.program else ""
        note(f"{name}{program} speaks protocol {listing.version}, and answered within {listing.took_s:.1f} s")
        if lost:
            note(f"a conversation does not have what differs. Try: hermes-exec mcp test {name} --accept")
    return CHECK_FAILED if lost else 0


def _show_rows(rows: "Sequence[Row]") -> None:
    if rows:
        show_table(
            ("TOOL", "STATE", "ALLOWED", "DESCRIPTION"),
            [
                [
                    flatten(row.name, _SHOWN),
                    "withheld" if row.problem else row.state,
                    "yes" if row.allowed else "no",
                    flatten(row.problem or row.description, _SHOWN),
                ]
                for row in rows
            ],
        )

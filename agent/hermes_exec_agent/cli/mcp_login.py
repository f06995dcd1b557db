"""``mcp login``: log in at a server over HTTP by OAuth, with the person's browser."""

import asyncio
import os
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import escape_controls, note
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.errors import UsageError
from hermes_exec.extras import require
from hermes_exec_agent.agent_shell import refuse_agents_descendant
from hermes_exec_agent.cli.options import complete_servers

if TYPE_CHECKING:
    from hermes_exec.config.settings import McpSettings

Scope = Annotated[
    str,
    typer.Option(metavar="RIGHTS", help="Also ask for these rights, which a refused call named; several in quotes."),
]
Browser = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the address of the login, or only print it.")
]


def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a server.", autocompletion=complete_servers)],
    *,
    browser: Browser = True,
    scope: Scope = "",
    json: Json = False,
) -> int:
    """Log in at a server with your browser.

    The keys are kept in the keyring of your desktop, or in a file for you alone, and are renewed by themselves.
    Conversations never ask for a login. A server with a token in the configuration needs no login.
    """
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.mcp.config_edit import check_name

    refuse_agents_descendant()
    require("mcp", "mcp login")
    check_name(name)
    _check_known(name, f"hermes-exec mcp add {name} --url URL --login")
    asked = run_login(name, load_settings().mcp[name], browser=browser, scope=scope)
    if json:
        show_json({"name": name, "logged_in": asked})
    elif not asked:
        note(f"{name} asks for no login")
    else:
        note(f"you are logged in at {name}")
    return 0


def logout(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a server.", autocompletion=complete_servers)],
    *,
    json: Json = False,
) -> int:
    """Remove the keys of a login from the keyring or the file; the server stays in your configuration.

    The authorization server is not told: the keys are valid there until they expire or you revoke them.
    """
    from hermes_exec_agent.mcp.config_edit import check_name

    refuse_agents_descendant()
    require("mcp", "mcp logout")
    check_name(name)
    from hermes_exec_agent.mcp.login import remove_login

    removed = remove_login(name, os.environ)  # also of a server that was removed from the file by hand
    if not removed:
        _check_known(name, "hermes-exec mcp list")
    if json:
        show_json({"name": name, "removed": removed})
    else:
        note(f"the login at {name} is removed" if removed else f"there is no login at {name}")
    return 0


def _check_known(name: str, remedy: str) -> None:
    from hermes_exec.config.load import load_settings

    if name not in load_settings().mcp:
        raise UsageError(f"there is no MCP server {name!r}", remedy=remedy)


def run_login(name: str, settings: "McpSettings", *, browser: bool, scope: str = "") -> bool:
    """Log in; return whether the server asked for it.

    Raises:
        UsageError: the server takes no login.
        PlaceUnavailable: the login failed.
    """
    if settings.url is None:
        raise UsageError(f"{name} is a program, which gets its keys by env", remedy=f'env = ["NAME"] in [mcp.{name}]')
    if settings.token is not None:
        raise UsageError(f"{name} has a token", remedy=f"remove token from [mcp.{name}]")
    asked: list[bool] = []

    async def work() -> int:
        from hermes_exec.config.secrets import resolve_secrets
        from hermes_exec_agent.mcp.login import log_in
        from hermes_exec_agent.mcp.login_page import open_login_page

        sources = {"client_secret": settings.client_secret} if settings.client_secret is not None else {}
        secrets = await asyncio.to_thread(resolve_secrets, sources, os.environ)

        async def show(address: str) -> None:
            page.expect(address)
            note(f"to log in, open {escape_controls(address)}")
            if browser:
                await asyncio.to_thread(webbrowser.open, address)

        async with open_login_page(settings.login_port) as page:
            asked.append(
                await log_in(
                    name, settings, os.environ, redirect=page.redirect, show=show, receive=page.receive,
                    secret=secrets.get("client_secret"), scope=scope,
                )
            )  # fmt: skip
        return 0

    code = interruptible.run(work())
    if not asked:
        raise typer.Exit(code)
    return asked[0]

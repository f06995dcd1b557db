"""``mcp serve``: serve a target's commands and files to programs that speak the Model Context Protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json, On
from hermes_exec.errors import UsageError
from hermes_exec.extras import require

if TYPE_CHECKING:
    from hermes_exec.config.plan import Plan
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec_agent.mcp.served_tools import ServedTool

HOST = "127.0.0.1"
PORT = 8090
_MODEL = "mcp"
"""The mark of shells of a client, whose model is not known."""


def serve(  # noqa: PLR0913  the options of one command
    on: On = None,
    *,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Listen on this address, with --http.")] = HOST,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Listen on this port, with --http; 0 selects a free one.")
    ] = PORT,
    token_from: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="Read the token from env:NAME or file:/path, as the command serve does."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="NAME", help="Offer this tool; may be repeated. By default all are offered."),
    ] = None,
    skills: Annotated[
        bool, typer.Option("--skills", help="Also offer each proven skill as a tool, which runs in a sandbox here.")
    ] = False,
    sync: Annotated[
        Path | None,
        typer.Option("--sync", metavar="FOLDER", help="Also offer the tool sync, for this folder of this machine."),
    ] = None,
    sync_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Let one call of sync copy up to this size, with --sync; by default 1G."),
    ] = None,
    json: Json = False,
) -> int:
    """Serve a target as tools of the Model Context Protocol: commands, shells, jobs and files.

    A client starts this command and talks to it over its standard input and output, or connects with --http and sends a
    token (Authorization: Bearer TOKEN). Commands are recorded as those of an agent. The client decides which calls a
    person approves; every tool states whether it only reads. A call that the client cancels is ended in the target.
    """
    require("mcp", "mcp serve")
    if not http and (host != HOST or port != PORT or token_from is not None):
        raise UsageError("--host, --port and --token-from are for a server over HTTP", remedy="--http")
    if sync is not None and not sync.is_dir():
        raise UsageError(f"--sync {sync}: there is no such folder")
    if sync is None and sync_limit is not None:
        raise UsageError("--sync-limit is for the tool sync", remedy="--sync FOLDER")
    offer = _Offer(tuple(tool or ()), skills, sync, _parse_limit(sync_limit))
    return interruptible.run(_serve(on, (host, port) if http else None, token_from, offer, as_json=json))


@dataclass(frozen=True, slots=True)
class _Offer:
    """The tools to offer."""

    names: tuple[str, ...]
    """All of them, if it is empty."""
    skills: bool
    folder: Path | None
    most_bytes: int | None
    """That a call of ``sync`` may copy; the default if None."""


def _parse_limit(text: str | None) -> int | None:
    from hermes_exec.config.values import parse_size

    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--sync-limit: it {error}", remedy="--sync-limit 1G") from None
    return size if isinstance(size, int) else None


async def _serve(
    on: str | None, where: tuple[str, int] | None, token_from: str | None, offer: _Offer, *, as_json: bool
) -> int:
    from hermes_exec.cli.open_target import hide_environment, plan_target
    from hermes_exec_agent.mcp.served_target import ServedTarget
    from hermes_exec_agent.mcp.served_tools import MOST_SYNCED, TargetTools
    from hermes_exec_agent.mcp.server import TargetServer, choose_tools

    hide_environment()
    plan = plan_target(on)
    target = ServedTarget(on or plan.target, _make_opener(on))
    most_bytes = MOST_SYNCED if offer.most_bytes is None else offer.most_bytes
    offered = TargetTools(target, offer.folder, most_bytes).create()
    if offer.skills:
        offered += await asyncio.to_thread(_create_skill_tools)
    tools = choose_tools(offered, offer.names)
    server = TargetServer(target, tools, flags.clean)
    target.start()
    try:
        if where is None:
            from hermes_exec_agent.mcp.server_stdio import serve_stdio

            await serve_stdio(server.protocol)
        else:
            from hermes_exec_agent.cli.serve import make_announcer, resolve_token
            from hermes_exec_agent.mcp.server_http import serve_http

            token, created = resolve_token(token_from)
            await serve_http(server.protocol, *where, token, make_announcer(created, as_json=as_json))
    finally:
        await target.close()
    return 0


def _create_skill_tools() -> "tuple[ServedTool, ...]":
    from hermes_exec_agent.mcp.served_skills import create_skill_tools
    from hermes_exec_agent.skills.registry.registry import Registry

    return create_skill_tools(Registry())


def _make_opener(on: str | None) -> "Callable[[], Awaitable[Terminal]]":
    """Return a function that opens the target, whose shells are marked as those of an agent."""

    async def open_target() -> "Terminal":
        from hermes_exec.cli.open_target import plan_target, start_folder
        from hermes_exec.terminal.opening import open_plan
        from hermes_exec_agent.agent_shell import mark_plan
        from hermes_exec_agent.runtime.opening import limit_lease

        plan: Plan = plan_target(on)
        plan.cwd = start_folder(plan)
        mark_plan(plan, _MODEL)
        limit_lease(plan)
        return await open_plan(plan, plan.create_audit(wanted=None))

    return open_target

"""``mcp``: serve a target to other programs, and manage the servers whose tools the agent may use."""

import typer

from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec_agent.cli.mcp_serve import serve


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/mcp.md.")
    group.command("serve")(serve)
    app.add_typer(group, name=name, short_help=summary)

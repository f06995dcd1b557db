"""Options and arguments that several commands have.

typer reads annotations at run time, so modules with commands leave `annotations` of `__future__` out.
"""

from typing import Annotated

import typer


def _complete_targets(incomplete: str) -> list[str]:
    from hermes_exec.config.load import load_settings
    from hermes_exec.config.registry import list_types
    from hermes_exec.errors import HermesError

    try:
        known = [*load_settings().profiles, *list_types()]
    except HermesError:
        known = ["local"]
    return sorted({name for name in known if name.startswith(incomplete)})


On = Annotated[
    str | None,
    typer.Option(
        "--on",
        "-o",
        metavar="TARGET",
        help="A profile, or a one-line target such as docker:python:3.11.",
        autocompletion=_complete_targets,
    ),
]
OnSeveral = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        "-o",
        metavar="TARGET",
        help="A profile, a one-line target such as docker:python:3.11, or group:NAME; may be repeated.",
        autocompletion=_complete_targets,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        help="A profile, or a one-line target such as docker:python:3.11.",
        autocompletion=_complete_targets,
    ),
]
Cwd = Annotated[str | None, typer.Option("--cwd", "-C", metavar="DIR", help="Start in this folder of the target.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable; NAME alone copies its value from here."),
]

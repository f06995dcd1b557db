"""Options and arguments that several commands have.

typer reads annotations at run time, so modules with commands leave `annotations` of `__future__` out.
"""

from typing import Annotated

import typer

from hermes_exec.cli.completion.values import complete_targets, complete_targets_or_groups

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        "-o",
        metavar="TARGET",
        help="A profile, or a one-line target such as docker:python:3.11.",
        autocompletion=complete_targets,
    ),
]
OnSeveral = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        "-o",
        metavar="TARGET",
        help="A profile, a one-line target such as docker:python:3.11, or group:NAME; may be repeated.",
        autocompletion=complete_targets_or_groups,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        help="A profile, or a one-line target such as docker:python:3.11.",
        autocompletion=complete_targets,
    ),
]
Cwd = Annotated[str | None, typer.Option("--cwd", "-C", metavar="DIR", help="Start in this folder of the target.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable; NAME alone copies its value from here."),
]

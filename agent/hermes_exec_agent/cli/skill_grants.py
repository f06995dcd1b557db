"""Options that grant access to a skill."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from hermes_exec_policies.folders import SharedFolder
    from hermes_exec_policies.gate.grants import Grants

Data = Annotated[
    list[str] | None, typer.Option("--data", metavar="DIR", help="Grant a folder below /app/data; may be repeated.")
]
Folders = Annotated[
    list[str] | None,
    typer.Option(
        "--folder",
        metavar="NAME=DIR[:rw]",
        help="Grant a folder of this machine, read-only or with :rw; may be repeated.",
    ),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME[:PORT]", help="Grant a host of the network; may be repeated."),
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="NAME=N", help="Grant a limit: limit-memory-mib=1024, limit-seconds=300, …; may be repeated."
    ),
]


def parse_grants(
    data: list[str] | None,
    shared: list[str] | None,
    host: list[str] | None,
    limit: list[str] | None,
    *,
    packages: bool = True,
) -> "Grants":
    """Return the grants of these options.

    Raises:
        UsageError: a limit or a folder is invalid, or there is no such folder.
    """
    from hermes_exec_policies.gate.grants import Grants

    return Grants(
        data=("/app/data", *(data or ())),
        folders=tuple(str(_parse_folder(arg)) for arg in shared or ()),
        hosts=tuple(host or ()),
        packages=packages,
        limits=dict(map(_parse_limit, limit or ())),
    )


def format_grants(grants: "Mapping[str, Any]") -> str:
    """Format recorded grants as a line of text."""
    parts = [
        *grants.get("data", ()),
        *grants.get("folders", ()),
        *grants.get("hosts", ()),
        *(["packages"] if grants.get("packages") else []),
    ]
    return ", ".join([*parts, *(f"{name}={value}" for name, value in grants.get("limits", {}).items())]) or "nothing"


def _parse_folder(arg: str) -> "SharedFolder":
    from hermes_exec_policies.folders import SharedFolder

    folder = SharedFolder.parse_grant(arg)
    if not Path(folder.source).exists():
        raise UsageError(
            f"--folder {arg!r}: there is no such folder", remedy="--folder NAME=DIR with an existing folder"
        )
    return folder


def _parse_limit(arg: str) -> tuple[str, int]:
    from hermes_exec_policies.gate.grants import parse_limit

    name, _, value = arg.partition("=")
    try:
        return name, parse_limit(name, value)
    except ValueError as error:
        raise UsageError(f"--limit {arg!r}: {error}", remedy="--limit limit-seconds=300") from None

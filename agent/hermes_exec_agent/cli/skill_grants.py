"""What a person grants a skill on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from hermes_exec_policies.folders import Folder
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
        "--limit", metavar="NAME=N", help="Grant a bound: limit-memory-mib=1024, limit-seconds=300, …; may be repeated."
    ),
]


def grants_of(
    data: list[str] | None,
    shared: list[str] | None,
    host: list[str] | None,
    limit: list[str] | None,
    *,
    packages: bool = True,
) -> "Grants":
    """What these options grant.

    Raises:
        UsageError: a bound is none, or a folder, or there is no such folder.
    """
    from hermes_exec_policies.gate.grants import Grants

    return Grants(
        data=("/app/data", *(data or ())),
        folders=tuple(str(_folder(word)) for word in shared or ()),
        hosts=tuple(host or ()),
        packages=packages,
        limits=dict(map(_bound, limit or ())),
    )


def told(grants: "Mapping[str, Any]") -> str:
    """What was granted, for a person."""
    words = [
        *grants.get("data", ()),
        *grants.get("folders", ()),
        *grants.get("hosts", ()),
        *(["packages"] if grants.get("packages") else []),
    ]
    return ", ".join([*words, *(f"{name}={value}" for name, value in grants.get("limits", {}).items())]) or "nothing"


def _folder(word: str) -> "Folder":
    from hermes_exec_policies.folders import Folder

    folder = Folder.granted(word)
    if not Path(folder.source).exists():
        raise UsageError(f"--folder {word!r}: there is no such folder")
    return folder


def _bound(word: str) -> tuple[str, int]:
    from hermes_exec_policies.gate.grants import limit_of

    name, _, value = word.partition("=")
    try:
        return name, limit_of(name, value)
    except ValueError as error:
        raise UsageError(f"--limit {word!r}: {error}", remedy="--limit limit-seconds=300") from None

"""``cp`` and ``sync``: files and folders between here and a place, or between two places."""

import asyncio
import os
import tempfile
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import opened, planned
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.progress import moving, size
from hermes_exec.cli.remote_path import Spot, inside, own_name, require_source, spot
from hermes_exec.errors import UsageError
from hermes_exec.files.info import SyncReport, TransferReport
from hermes_exec.terminal.terminal import SyncOptions, Terminal, TransferOptions

if TYPE_CHECKING:
    from collections.abc import Callable


class Links(StrEnum):
    """What to do with links that lead out of a tree."""

    REFUSE = "refuse"
    SKIP = "skip"
    KEEP = "keep"


Ignore = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Leave these out of a folder; as in a .gitignore.")
]
LinksOption = Annotated[Links, typer.Option(help="Links that lead out of the folder: fail, leave out, or make them.")]
Verify = Annotated[
    bool | None,
    typer.Option("--verify/--no-verify", help="Whether SHA-256 hashes are compared.", show_default="not over SSH"),
]
Words = Annotated[str, typer.Argument(metavar="SRC", help="A path here, or TARGET:PATH.")]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add one of the commands to the application."""
    command: Callable[..., int] = cp if name == "cp" else sync
    app.command(name, short_help=summary)(command)


def cp(
    sources: Annotated[list[str], typer.Argument(metavar="SRC... DST", help="Paths here, or TARGET:PATH.")],
    *,
    ignore: Ignore = None,
    links: LinksOption = Links.REFUSE,
    verify: Verify = None,
    json: Json = False,
) -> int:
    """Copy files and folders to a place, from a place, or between two; TARGET:PATH is a path in a place.

    As with cp -R, what is copied to a folder that exists goes into it, and SRC/. is what SRC holds.
    Permissions, times and links are kept. After a failure no file is half written.
    """
    if len(sources) < 2:
        raise UsageError("cp needs a source and a destination", remedy="hermes-exec cp SRC DST")
    *words, last = sources
    options: TransferOptions = {"ignore": ignore or [], "links": links.value, "verify": verify}
    return interruptible.run(_copy([spot(word) for word in words], spot(last), options, json=json))


def sync(
    source: Words,
    destination: Annotated[str, typer.Argument(metavar="DST", help="Likewise; one of the two is in a place.")],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Remove what SRC does not have.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Change nothing; tell what would be done.")] = False,
    ignore: Ignore = None,
    links: LinksOption = Links.REFUSE,
    verify: Verify = None,
    json: Json = False,
) -> int:
    """Make the folder DST like the folder SRC, moving only what changed; one of them is TARGET:PATH."""
    options: SyncOptions = {
        "ignore": ignore or [],
        "links": links.value,
        "verify": verify,
        "delete": delete,
        "dry_run": dry_run,
    }
    here, there = spot(source), spot(destination)
    if (here.target is None) == (there.target is None):
        raise UsageError("sync is between here and one place", remedy="hermes-exec sync src/ TARGET:/srv/src")
    require_source(here)
    return interruptible.run(_sync(here, there, options, json=json))


async def _copy(sources: list[Spot], to: Spot, options: TransferOptions, *, json: bool) -> int:
    if to.target is None and all(source.target is None for source in sources):
        raise UsageError("none of these is in a place", remedy="TARGET:PATH, as in local:/tmp/x")
    for source in sources:
        require_source(source)
    reports: list[dict[str, Any]] = []
    for source in sources:
        report = await _copy_one(source, to, options)
        for skipped in report.skipped:
            note(f"left out: {skipped.path}: {skipped.reason}")
        reports.append({"from": str(source), "to": str(to), **asdict(report)})
        if not json:
            note(f"{source}: {report.files} file{'s' * (report.files != 1)}, {size(report.bytes)}")
    if json:
        show_json(reports)
    return 0


async def _copy_one(source: Spot, to: Spot, options: TransferOptions) -> TransferReport:
    if source.target is not None and to.target is not None:
        with tempfile.TemporaryDirectory(prefix="hermes-exec-") as between:
            way = Spot(None, f"{between}/{own_name(source.path)}")
            await _copy_one(source, way, options)
            return await _copy_one(way, to, options)
    with moving(own_name(source.path) or source.path) as progress:
        wanted: TransferOptions = {**options, "progress": progress}
        if to.target is not None:
            async with opened(planned(to.target)) as terminal:
                path = await _path_there(terminal, to.path)
                if await _is_folder(terminal, path):
                    path = inside(path, source.path)
                return await terminal.upload(source.path, path, **wanted)
        async with opened(planned(source.target)) as terminal:
            is_folder = await asyncio.to_thread(Path(to.path).is_dir) or to.path.endswith("/")
            path = inside(to.path, source.path) if is_folder else to.path
            return await terminal.download(await _path_there(terminal, source.path), path, **wanted)


async def _path_there(terminal: Terminal, path: str) -> str:
    if path != "~" and not path.startswith("~/"):
        return path
    home = (await terminal.run(["sh", "-c", 'printf %s "$HOME"'], check=True)).stdout
    return os.fsdecode(home) + path[1:]


async def _is_folder(terminal: Terminal, path: str) -> bool:
    try:
        return (await terminal.files.stat(path)).is_folder
    except (FileNotFoundError, NotADirectoryError):
        return path.endswith("/")


async def _sync(source: Spot, to: Spot, options: SyncOptions, *, json: bool) -> int:
    up = to.target is not None
    here, there = (source, to) if up else (to, source)
    dry_run = bool(options.get("dry_run"))
    async with opened(planned(there.target)) as terminal:
        with moving(str(source)) as progress:
            wanted: SyncOptions = {**options, "direction": "up" if up else "down", "progress": progress}
            report = await terminal.sync(here.path, await _path_there(terminal, there.path), **wanted)
    if json:
        show_json({"from": str(source), "to": str(to), "dry_run": dry_run, **asdict(report)})
    else:
        _tell(report, dry_run=dry_run)
    return 0


def _tell(report: SyncReport, *, dry_run: bool) -> None:
    if dry_run:
        for change in report.changes:
            print(f"{change.action}  {change.path}")
    for skipped in report.skipped:
        note(f"left out: {skipped.path}: {skipped.reason}")
    done = "would be " if dry_run else ""
    note(
        f"{done}copied: {report.copied} ({size(report.bytes)}), {done}deleted: {report.deleted}, "
        f"{done}touched: {report.touched}, unchanged: {report.unchanged}"
    )

"""``cp`` and ``sync``: copy files and folders to, from or between targets."""

import asyncio
import tempfile
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.completion.paths import complete_paths
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import open_planned, plan_target
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.progress import format_size, show_progress
from hermes_exec.cli.remote_path import (
    RemotePath,
    check_source,
    expand_home,
    join_name,
    last_name,
    parse_path,
)
from hermes_exec.errors import UsageError
from hermes_exec.files.info import SyncReport, TransferReport
from hermes_exec.terminal.terminal import SyncOptions, Terminal, TransferOptions

if TYPE_CHECKING:
    from collections.abc import Callable


class Links(StrEnum):
    """The treatment of symbolic links that lead out of a tree."""

    REFUSE = "refuse"
    SKIP = "skip"
    KEEP = "keep"


Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Skip paths that match, as in a .gitignore; may be repeated."),
]
LinksOption = Annotated[Links, typer.Option(help="Refuse, skip or keep links that lead out of the folder.")]
Verify = Annotated[
    bool | None,
    typer.Option("--verify/--no-verify", help="Compare SHA-256 hashes, or do not.", show_default="not over SSH"),
]
Source = Annotated[
    str, typer.Argument(metavar="SRC", help="A local path, or TARGET:PATH.", autocompletion=complete_paths)
]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add one of the commands to the application."""
    command: Callable[..., int] = cp if name == "cp" else sync
    app.command(name, short_help=summary)(command)


def cp(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SRC... DST", help="Local paths, or TARGET:PATH.", autocompletion=complete_paths),
    ],
    *,
    ignore: Ignore = None,
    links: LinksOption = Links.REFUSE,
    verify: Verify = None,
    recursive: Annotated[  # noqa: ARG001  a habit of cp, where it is needed
        bool, typer.Option("--recursive", "-r", "-R", help="Does nothing: folders are copied whole.")
    ] = False,
    json: Json = False,
) -> int:
    """Copy files and folders to a target, from a target, or between two; TARGET:PATH is a path in a target.

    As with cp -R, an existing folder DST receives the copy under its own name, and SRC/. stands for the content of
    SRC. Permissions, times and links are kept. A failure leaves no file half written.
    """
    if len(sources) < 2:
        raise UsageError("cp needs a source and a destination", remedy="hermes-exec cp SRC DST")
    *paths, last = sources
    options: TransferOptions = {"ignore": ignore or [], "links": links.value, "verify": verify}
    return interruptible.run(_copy([parse_path(path) for path in paths], parse_path(last), options, json=json))


def sync(
    source: Source,
    destination: Annotated[
        str,
        typer.Argument(metavar="DST", help="The other: TARGET:PATH, or a local path.", autocompletion=complete_paths),
    ],
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete files that SRC does not have.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Change nothing; print the changes.")] = False,
    ignore: Ignore = None,
    links: LinksOption = Links.REFUSE,
    verify: Verify = None,
    json: Json = False,
) -> int:
    """Make the folder DST equal to the folder SRC, copying only changes; one of the two is TARGET:PATH."""
    options: SyncOptions = {
        "ignore": ignore or [],
        "links": links.value,
        "verify": verify,
        "delete": delete,
        "dry_run": dry_run,
    }
    here, there = parse_path(source), parse_path(destination)
    if (here.target is None) == (there.target is None):
        raise UsageError(
            "sync needs one local path and one TARGET:PATH", remedy="hermes-exec sync src/ TARGET:/srv/src"
        )
    check_source(here)
    if here.target is None and not Path(here.path).is_dir():
        raise UsageError(f"{here.path} is not a folder", remedy="hermes-exec cp, which copies files too")
    return interruptible.run(_sync(here, there, options, json=json))


async def _copy(sources: list[RemotePath], to: RemotePath, options: TransferOptions, *, json: bool) -> int:
    if to.target is None and all(source.target is None for source in sources):
        raise UsageError("all paths are local", remedy="write one as TARGET:PATH, as in local:/tmp/x")
    for source in sources:
        check_source(source)
    reports: list[dict[str, Any]] = []
    for source in sources:
        report = await _copy_one(source, to, options)
        for skipped in report.skipped:
            note(f"skipped: {skipped.path}: {skipped.reason}")
        reports.append({"from": str(source), "to": str(to), **asdict(report)})
        if not json:
            note(f"{source}: {report.files} file{'s' * (report.files != 1)}, {format_size(report.bytes)}")
    if json:
        show_json(reports)
    return 0


async def _copy_one(source: RemotePath, to: RemotePath, options: TransferOptions) -> TransferReport:
    if source.target is not None and to.target is not None:
        with tempfile.TemporaryDirectory(prefix="hermes-exec-") as folder:
            copy = RemotePath(None, f"{folder}/{last_name(source.path)}")
            await _copy_one(source, copy, options)
            return await _copy_one(copy, to, options)
    with show_progress(last_name(source.path) or source.path) as progress:
        all_options: TransferOptions = {**options, "progress": progress}
        if to.target is not None:
            async with open_planned(plan_target(to.target)) as terminal:
                path = await expand_home(terminal, to.path)
                if await _is_folder(terminal, path):
                    path = join_name(path, source.path)
                return await terminal.upload(source.path, path, **all_options)
        async with open_planned(plan_target(source.target)) as terminal:
            is_folder = await asyncio.to_thread(Path(to.path).is_dir) or to.path.endswith("/")
            path = join_name(to.path, source.path) if is_folder else to.path
            return await terminal.download(await expand_home(terminal, source.path), path, **all_options)


async def _is_folder(terminal: Terminal, path: str) -> bool:
    try:
        return (await terminal.files.stat(path)).is_folder
    except (FileNotFoundError, NotADirectoryError):
        return path.endswith("/")


async def _sync(source: RemotePath, to: RemotePath, options: SyncOptions, *, json: bool) -> int:
    up = to.target is not None
    here, there = (source, to) if up else (to, source)
    dry_run = bool(options.get("dry_run"))
    async with open_planned(plan_target(there.target)) as terminal:
        with show_progress(str(source)) as progress:
            all_options: SyncOptions = {**options, "direction": "up" if up else "down", "progress": progress}
            report = await terminal.sync(here.path, await expand_home(terminal, there.path), **all_options)
    if json:
        show_json({"from": str(source), "to": str(to), "dry_run": dry_run, **asdict(report)})
    else:
        _show_report(report, dry_run=dry_run)
    return 0


def _show_report(report: SyncReport, *, dry_run: bool) -> None:
    if dry_run:
        for change in report.changes:
            print(f"{change.action}  {change.path}")
    for skipped in report.skipped:
        note(f"skipped: {skipped.path}: {skipped.reason}")
    done = "would be " if dry_run else ""
    note(
        f"{done}copied: {report.copied} ({format_size(report.bytes)}), {done}deleted: {report.deleted}, "
        f"{done}touched: {report.touched}, unchanged: {report.unchanged}"
    )

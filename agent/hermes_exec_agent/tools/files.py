"""Files in the target: read, write, change."""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema  # noqa: TC002  pydantic reads it

from hermes_exec.errors import TransferError, UsageError
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope
from hermes_exec_agent.tools.instruction_files import check_instruction_files, is_instruction_file
from hermes_exec_agent.tools.reader import FileReader
from hermes_exec_agent.tools.workspace_bounds import paths_stay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.tools import v4a
    from hermes_exec_agent.tools.tool import Context

_PIECE = 1 << 20
_LARGEST = 16 << 20
"""Bytes of a file that can be changed."""
_SEARCHED = 256 << 20
"""Bytes of a file in which lines are counted."""
_LONGEST_LINE = 2000
_MOST_SHOWN = 60_000


class ReadFileArguments(ToolArguments):
    """Read a text file; each line follows its number and a bar."""

    path: str = Field(min_length=1)
    offset: int = Field(1, ge=1, description="First line")
    limit: int = Field(500, ge=1, le=2000, description="Lines")


class ReadFile(BaseTool[ReadFileArguments]):
    """Reads files."""

    name = "read_file"
    position = 30
    changes = False
    only_reads = True
    arguments_type = ReadFileArguments

    async def run(self, args: ReadFileArguments, context: Context) -> Envelope:
        """Read the requested lines, whatever the size of the file."""
        path = await context.workspace.path(args.path)
        last = args.offset + args.limit - 1
        text = await _lines(path, last, FileReader(self.name, context))
        if text is None:
            message = f"{path} is not text. Try: the tool terminal with file, xxd or head -c"
            return Envelope(ok=False, place=context.place, error=Failure("binary", message))
        lines = text.split("\n")
        if lines[-1] == "":  # nothing follows the last line break
            lines.pop()
        whole = len(lines) <= last
        shown: list[str] = []
        room = _MOST_SHOWN
        for number, each in enumerate(lines[args.offset - 1 : last], args.offset):
            cut = each if len(each) <= _LONGEST_LINE else f"{each[:_LONGEST_LINE]}[... {len(each)} characters]"
            room -= len(cut)
            if room < 0:
                whole = False
                break
            shown.append(f"{number}|{cut}")
        note = "" if whole else f"there is more: offset {args.offset + len(shown)}"
        if not shown and args.offset > 1:
            note = f"it has {len(lines)} lines"
        return Envelope(ok=True, place=context.place, output="\n".join(shown), truncated=not whole, note=note)


async def _lines(path: str, last: int, reader: FileReader) -> str | None:
    """Return the text up to the line after the last requested one; None if the file is not text."""
    data = bytearray()
    while piece := await reader.read(path, len(data), _PIECE):
        if not data and b"\0" in piece[:8192]:
            return None
        data += piece
        if len(piece) != _PIECE or data.count(b"\n") > last:
            break
        if len(data) >= _SEARCHED:
            raise UsageError(f"line {last} is too far into {path}", remedy="the tool terminal with sed -n")
    return data.decode("utf-8", "replace")


class WriteFileArguments(ToolArguments):
    """Replace or create a file; missing folders are created."""

    path: str = Field(min_length=1)
    content: str
    create: SkipJsonSchema[bool] = False  # refuses to replace a file; not in the schema


class WriteFile(BaseTool[WriteFileArguments]):
    """Writes files."""

    name = "write_file"
    position = 40
    arguments_type = WriteFileArguments

    def needs_approval(self, args: WriteFileArguments) -> bool:
        """Whether the tool's mode decides; a file that gives orders to later programs is asked for by `run`."""
        return not is_instruction_file(args.path)

    async def stays_inside(self, args: WriteFileArguments, context: Context) -> bool:
        """Whether the file is in the workspace."""
        return await super().stays_inside(args, context) or await paths_stay([args.path], context)

    def summary(self, args: WriteFileArguments) -> str:
        """Return the path and the content."""
        verb = "create" if args.create else "write"
        return f"{verb} {args.path} ({len(args.content)} characters): {args.content}"

    async def run(self, args: WriteFileArguments, context: Context) -> Envelope:
        """Write the file atomically: readers see the old or the new content."""
        path = await context.workspace.path(args.path)
        if no := await check_instruction_files(self.name, self.summary(args), (args.path, path), context):
            return failure_envelope(context.place, no)
        if args.create and await _current(path, FileReader(self.name, context, seen=(path,))) is not None:
            raise UsageError(f"{path} is there already", remedy="write_file without create gives it a new content")
        data = args.content.encode("utf-8", "surrogatepass")
        await context.keep_files({path: data})
        await _write(path, data, context)
        return Envelope(ok=True, place=context.place, output=f"wrote {len(data)} bytes to {path}")


async def _write(path: str, data: bytes, context: Context) -> None:
    if context.terminal.capabilities.file_transfer:
        await context.terminal.files.write(path, data, parents=True)
        return
    await context.terminal.run(["mkdir", "-p", "--", posixpath.dirname(path)], timeout=60)
    await context.terminal.write(path, data)


class PatchArguments(ToolArguments):
    """Change files. replace: old_string, which occurs once, becomes new_string. patch: V4A text, many files at once."""

    mode: Literal["replace", "patch"]
    path: str = Field("", description="For replace")
    old_string: str = ""
    new_string: str = ""
    replace_all: bool = False
    patch: str = Field("", description="*** Begin Patch / *** Update File: / @@ / *** End Patch")


class Patch(BaseTool[PatchArguments]):
    """Changes files."""

    name = "patch"
    position = 50
    arguments_type = PatchArguments

    def needs_approval(self, args: PatchArguments) -> bool:
        """Whether the tool's mode decides; files that give orders to later programs are asked for by `run`."""
        return not any(map(is_instruction_file, _list_paths(_parse_operations(args))))

    async def stays_inside(self, args: PatchArguments, context: Context) -> bool:
        """Whether the files are in the workspace."""
        if await super().stays_inside(args, context):
            return True
        return await paths_stay(_list_paths(_parse_operations(args)), context)

    def summary(self, args: PatchArguments) -> str:
        """Return the files and their changes."""
        if args.mode == "replace":
            return f"in {args.path}: {args.old_string!r} becomes {args.new_string!r}"
        return args.patch

    async def run(self, args: PatchArguments, context: Context) -> Envelope:
        """Compute all new contents before writing: a patch that does not fit changes nothing."""
        operations = _parse_operations(args)
        named = _list_paths(operations)
        paths = [*named, *[await context.workspace.path(each) for each in named]]
        if no := await check_instruction_files(self.name, self.summary(args), paths, context):
            return failure_envelope(context.place, no)
        plan: list[tuple[str, v4a.FileChange]] = []
        for operation in operations:
            path = await context.workspace.path(operation.path)
            reader = FileReader(self.name, context, seen=(path,))
            plan.append((path, operation.change(await _current(path, reader))))
        await context.keep_files(await _list_changes(plan, context))
        done: list[str] = []
        try:
            for path, change in plan:
                done.append(await _apply(path, change, context))
        except TransferError as error:
            error.state = f"done before that: {', '.join(done) or 'nothing'}"
            raise
        return Envelope(ok=True, place=context.place, output="\n".join(done))


def _parse_operations(args: PatchArguments) -> list[v4a.PatchOperation]:
    from hermes_exec_agent.tools import v4a

    if args.mode == "patch":
        return v4a.parse(args.patch)
    if not args.path:
        raise UsageError("replace needs a path")
    return [v4a.Replace(args.path, args.old_string, args.new_string, everywhere=args.replace_all)]


def _list_paths(operations: list[v4a.PatchOperation]) -> list[str]:
    """Return the paths that operations write, as the call has them."""
    from hermes_exec_agent.tools import v4a

    moved = [each.moved for each in operations if isinstance(each, v4a.Update) and each.moved]
    return [*(each.path for each in operations), *moved]


async def _current(path: str, reader: FileReader) -> str | None:
    """Return the content of a file; None if it does not exist."""
    try:
        data = await reader.read(path, 0, _LARGEST + 1)
    except TransferError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    if len(data) > _LARGEST:
        raise UsageError(f"{path} has more than {_LARGEST >> 20} MiB", remedy="the tool terminal with sed")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text, and would be damaged", remedy="the tool terminal") from error


async def _list_changes(plan: Sequence[tuple[str, v4a.FileChange]], context: Context) -> dict[str, bytes | None]:
    """Return the new content of each path; None if it is removed."""
    changes: dict[str, bytes | None] = {}
    for path, change in plan:
        content = None if change.text is None else change.text.encode()
        if content is not None and change.moved:
            changes |= {path: None, await context.workspace.path(change.moved): content}
        else:
            changes[path] = content
    return changes


async def _apply(path: str, change: v4a.FileChange, context: Context) -> str:
    if change.text is None:
        await context.terminal.run(["rm", "--", path], timeout=60, check=True)
        return f"deleted {path}"
    if change.moved:
        target = await context.workspace.path(change.moved)
        await _write(target, change.text.encode(), context)
        await context.terminal.run(["rm", "--", path], timeout=60, check=True)
        return f"moved {path} to {target}"
    await _write(path, change.text.encode(), context)
    return f"changed {path} ({change.summary})"

"""Search files in the target, with a program that runs there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from hermes_exec.errors import Unsupported, UsageError
from hermes_exec_agent.tools import reader
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.target_python import NO_PYTHON, build_argv
from hermes_exec_agent.tools.tool import to_safe_line

if TYPE_CHECKING:
    from hermes_exec.result import Result
    from hermes_exec_agent.tools.tool import Context

_LIMIT_S = 120
_ASK = 3
"""The program's exit code if a person must approve the search."""


class SearchFilesArguments(ToolArguments):
    """Search below a folder: content for lines by a Python regular expression, files for names by a glob."""

    pattern: str = Field(min_length=1)
    target: Literal["content", "files"] = "content"
    path: str = "."
    file_glob: str = Field("", description="For content, as in *.py")
    output_mode: Literal["lines", "files", "count"] = "lines"
    context: int = Field(0, ge=0, le=20, description="Lines around a hit")
    offset: int = Field(0, ge=0)
    limit: int = Field(100, ge=1, le=1000)


class SearchFiles(BaseTool[SearchFilesArguments]):
    """Searches files."""

    name = "search_files"
    position = 60
    changes = False
    only_reads = True
    arguments_type = SearchFilesArguments

    async def run(self, args: SearchFilesArguments, context: Context) -> Envelope:
        """Search."""
        workspace = context.workspace
        path = await workspace.path(args.path)
        request = {**args.model_dump(), **reader.limits_for(context), "path": path, "agreed": ""}
        request["anywhere"] = context.approvals.of(self.name) == "allow"
        result = await self._run_search(request, context)
        if result.exit_code == _ASK:
            root, kind = _parse_question(result.stdout)
            await reader.ask(self.name, "search", path, root, kind, context)
            result = await self._run_search({**request, "agreed": root, "path": root}, context)
        if result.exit_code == 127:
            raise Unsupported("there is no python3 on the PATH of this target", remedy=NO_PYTHON)
        if result.exit_code == 1:
            raise UsageError(" ".join(result.stderr_text.split())[-400:])
        if not result.ok:
            return await workspace.envelope(result, "")
        text, reference = await workspace.shorten(result.stdout_text.rstrip("\n"))
        return Envelope(
            ok=True, place=context.place, output=text, output_ref=reference, truncated=bool(reference),
            note="; ".join(filter(None, ["" if text else "nothing was found", _describe_left_out(result.stderr)])),
        )  # fmt: skip

    async def _run_search(self, request: dict[str, Any], context: Context) -> Result:
        argv = build_argv(context.terminal, "search", "-I", "-S")
        return await context.terminal.run(argv, stdin=json.dumps(request), timeout=_LIMIT_S)


def _parse_question(data: bytes) -> tuple[str, str]:
    """Parse the folder that a person must approve, and why. The target's answer is not trusted."""
    try:
        fields = json.loads(data)
        return str(fields["path"]), str(fields["secret"])
    except (ValueError, KeyError, TypeError):
        return "", "an invalid answer of the target"


def _describe_left_out(data: bytes) -> str:
    """Describe the files that the search left out."""
    try:
        fields = json.loads(data.splitlines()[-1])
        secrets, named, elsewhere = (
            int(fields["secrets"]),
            [str(each) for each in fields["named"]],
            int(fields["elsewhere"]),
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return ""
    notes: list[str] = []
    if secrets:
        more = f" and {secrets - len(named)} more" if secrets > len(named) else ""
        notes.append(f"left out as secrets: {to_safe_line(', '.join(named))}{more}; read_file asks the person for one")
    if elsewhere:
        notes.append(f"{elsewhere} {'link leads' if elsewhere == 1 else 'links lead'} out of the workspace")
    return "; ".join(notes)

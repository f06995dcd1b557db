"""Search in files of the place, by a program that runs there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hermes_exec.errors import Unsupported, UsageError
from hermes_exec_agent.tools.asking import Asked, BaseTool
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.python import NO_PYTHON, words

if TYPE_CHECKING:
    from hermes_exec_agent.tools.tool import Context

_LIMIT_S = 120


class Searching(Asked):
    """Search below a folder: content for lines by a Python regular expression, files for names by a glob."""

    pattern: str = Field(min_length=1)
    target: Literal["content", "files"] = "content"
    path: str = "."
    file_glob: str = Field("", description="For content, as in *.py")
    output_mode: Literal["lines", "files", "count"] = "lines"
    context: int = Field(0, ge=0, le=20, description="Lines around a hit")
    offset: int = Field(0, ge=0)
    limit: int = Field(100, ge=1, le=1000)


class SearchFiles(BaseTool[Searching]):
    """Searches files."""

    name = "search_files"
    changes = False
    only_reads = True
    takes = Searching

    async def run(self, asked: Searching, context: Context) -> Envelope:
        """Search."""
        workspace = context.workspace
        wish = {**asked.model_dump(), "path": await workspace.path(asked.path)}
        argv = words(context.terminal, "search", "-I", "-S")
        result = await context.terminal.run(argv, stdin=json.dumps(wish), timeout=_LIMIT_S)
        if result.exit_code == 127:
            raise Unsupported("there is no python3 on the PATH of this place", remedy=NO_PYTHON)
        if result.exit_code == 1:
            raise UsageError(" ".join(result.stderr_text.split())[-400:])
        if not result.ok:
            return await workspace.envelope(result, "")
        text, reference = await workspace.shortened(result.stdout_text.rstrip("\n"))
        return Envelope(
            ok=True, place=context.place, output=text, output_ref=reference, truncated=bool(reference),
            note="" if text else "nothing was found",
        )  # fmt: skip

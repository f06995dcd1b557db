"""The tool ``send_file`` of conversations in a messenger: sends a file of the target to the person."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.errors import Unsupported
from hermes_exec_agent.frontends.gateway.attachments import make_safe_name
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.reader import FileReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec_agent.tools.tool import Context


class SendFileArguments(ToolArguments):
    """Send a file of the target to the person, in the chat of this request."""

    path: str = Field(min_length=1)


class SendFile(BaseTool[SendFileArguments]):
    """Puts a file into the outbox. Reads outside of the workspace, and of secrets, need an approval."""

    name = "send_file"
    changes = False
    tool_set = "gateway"
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = SendFileArguments

    def __init__(self, find_limit: Callable[[], int], put: Callable[[str, bytes], Awaitable[None]]) -> None:
        """``find_limit`` returns the bytes that the chat takes, and ``put`` records a file for it."""
        super().__init__()
        self._find_limit = find_limit
        self._put = put

    async def run(self, args: SendFileArguments, context: Context) -> Envelope:
        """Read the file, and put it into the outbox."""
        limit = self._find_limit()
        if not limit:
            raise Unsupported("this chat takes no files", remedy="send the content as text, if it is short")
        path = await context.workspace.path(args.path)
        content = await FileReader(self.name, context).read(path, 0, limit + 1)
        if len(content) > limit:
            raise Unsupported(f"the file has more than {limit:,} bytes, which this chat takes", remedy="a smaller one")
        if not content:
            raise Unsupported("the file is empty, and messengers take no empty files")
        name = make_safe_name(posixpath.basename(path))
        await self._put(name, content)
        return Envelope(ok=True, place=context.place, output=f"{name}: {len(content):,} bytes are being sent")

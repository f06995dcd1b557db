"""Files of messages: read from platforms, placed in the target, and sent from it by the tool ``send_file``."""

from __future__ import annotations

import asyncio
import logging
import posixpath
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.errors import HermesError, Unsupported, UsageError
from hermes_exec_agent.frontends.gateway.adapter import PlatformDown, Rejected
from hermes_exec_agent.frontends.gateway.records import ReceivedFile
from hermes_exec_agent.models.images import MAX_IMAGES, is_image, parse_image
from hermes_exec_agent.models.protocol import takes_images
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.reader import FileReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_exec_agent.frontends.gateway.adapter import Adapter, Incoming, IncomingFile
    from hermes_exec_agent.frontends.gateway.records import Message
    from hermes_exec_agent.frontends.gateway.store import Store
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.runtime import Conversation
    from hermes_exec_agent.tools.tool import Context

_log = logging.getLogger("hermes_exec.gateway")
FOLDER = "received"
"""The folder of received files, in the working folder of the target."""
_MOST_FILES = 10
"""Files of one message that are read."""
_READ_S = 60.0
"""Seconds in which a file is read."""
_TRIES = 3
"""How often a message is refused because a file cannot be read; then it is recorded without that file."""
_LONGEST_NAME = 80
_KIND = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,80}")
_LONGEST_ERROR = 200


class FileIntake:
    """Reads the files of messages that are wanted."""

    def __init__(self, store: Store, largest: int) -> None:
        """``largest`` is the limit of bytes of a file; all files of a message have twice as many at most."""
        self._store = store
        self._largest = largest
        self._failures: Counter[tuple[str, str, str, str]] = Counter()

    async def read(self, adapter: Adapter, incoming: Incoming) -> list[ReceivedFile]:
        """Return the files of a message; none if it is a stranger's, was recorded before, or is not for the gateway.

        Raises:
            PlatformDown: a file cannot be read now, so the message must not be acknowledged.
        """
        if not incoming.files or incoming.is_edit:
            return []
        if not await asyncio.to_thread(self._store.is_wanted, adapter.platform, adapter.account, incoming):
            return []
        key = (adapter.platform, adapter.account, incoming.chat, incoming.message)
        found: list[ReceivedFile] = []
        rest = 2 * self._largest
        for number, file in enumerate(incoming.files):
            if number >= _MOST_FILES:
                found.append(_to_unread(file, f"a message may have {_MOST_FILES} files"))
                continue
            try:
                content = await _read(file, min(self._largest, rest))
            except Rejected as error:
                found.append(_to_unread(file, str(error)))
            except (HermesError, TimeoutError) as error:
                self._failures[key] += 1
                if self._failures[key] < _TRIES:
                    raise PlatformDown(f"a file could not be read: {str(error) or 'it took too long'}") from error
                found.append(_to_unread(file, "the platform did not deliver it"))
            else:
                rest -= len(content)
                found.append(ReceivedFile(file.name, file.kind, len(content), "", content))
        del self._failures[key]
        return found


async def _read(file: IncomingFile, limit: int) -> bytes:
    """Return the content of a file.

    Raises:
        Rejected: it is larger than ``limit``.
    """
    if file.size is not None and file.size > limit:
        raise Rejected(f"it has {file.size:,} bytes, and {limit:,} are allowed")
    async with asyncio.timeout(_READ_S):
        content = await file.read(limit)
    if len(content) > limit:
        raise Rejected(f"it has more than {limit:,} bytes, which are allowed")
    return content


def _to_unread(file: IncomingFile, error: str) -> ReceivedFile:
    _log.warning("a file was not read: %s", error)
    flat = "".join(each if each.isprintable() else " " for each in error)
    return ReceivedFile(file.name, file.kind, file.size or 0, flat[:_LONGEST_ERROR])


def make_safe_name(name: str) -> str:
    """Return a name for a file that is safe in a path and in a shell, and ends as the given one does."""
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    safe = "".join(each if each.isalnum() or each in "._-" else "_" for each in last).lstrip("._-")
    while len(safe.encode()) > _LONGEST_NAME:
        stem, dot, end = safe.rpartition(".")
        safe = f"{stem[:-1]}{dot}{end}" if len(stem) > 1 and len(end) < 16 else safe[:-1]
    return safe or "file"


def find_path(message: Message, number: int) -> str:
    """Return the path of a file of a message, which is the same whenever its turn begins."""
    return f"{FOLDER}/{message.seq}-{number + 1}-{make_safe_name(message.files[number].name)}"


def describe_files(message: Message) -> str:
    """Return a line for each file of a message, as the request has them."""
    lines: list[str] = []
    for number, file in enumerate(message.files):
        if file.error:
            lines.append(f"[Attached file {make_safe_name(file.name)} was not read: {file.error}]")
            continue
        kind = f"{file.kind}, " if _KIND.fullmatch(file.kind) else ""
        lines.append(f"[Attached file: {find_path(message, number)} ({kind}{file.size:,} bytes)]")
    return "\n".join(lines)


async def place_files(conversation: Conversation, message: Message, files: Sequence[ReceivedFile]) -> None:
    """Write the files of a message into the working folder of the conversation's target.

    Raises:
        HermesError: the target does not take one.
    """
    terminal = conversation.terminal
    for number, file in enumerate(files):
        if file.content is None:
            continue
        path = find_path(message, number)
        if terminal.capabilities.file_transfer:
            await terminal.files.write(path, file.content, parents=True)
        else:
            await terminal.run(["mkdir", "-p", "--", FOLDER], timeout=60)
            await terminal.write(path, file.content)


def find_images(files: Sequence[ReceivedFile], model: Model) -> list[Image]:
    """Return the images that the model can be shown; others are files only."""
    if not takes_images(model):
        return []
    images: list[Image] = []
    for file in files:
        if file.content is not None and is_image(file.content):
            try:
                images.append(parse_image(file.content, make_safe_name(file.name)))
            except UsageError as error:
                _log.info("an image is a file only: %s", error)
    return images[:MAX_IMAGES]


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

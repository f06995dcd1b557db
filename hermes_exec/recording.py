"""Terminals that record real runs in a file, and terminals that replay them without the target, for tests.

    with hermes_exec.sync.open("server") as terminal, record(terminal, "build.json") as recorded:
        build(recorded)                      # once, with the target

    with replay("build.json") as terminal:   # afterwards, without it
        build(terminal)

The calls that can be recorded are ``run``, ``read`` and ``write`` of a terminal, and ``run`` of its sessions. A file
has commands, folders, outputs and contents that were read, as they were; of input, variables and contents that were
written it has digests alone. docs/howto-pytest.md has examples.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from hermes_exec import errors
from hermes_exec._async import awaitable_context_manager
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.result import Result, ShellState, Truncation
from hermes_exec.terminal.encoding import describe_kind
from hermes_exec.terminal.requests import raise_if_failed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping, Sequence

    import hermes_exec.sync
    from hermes_exec.terminal.terminal import Terminal

    Argument = str | bytes | os.PathLike[str]
    Command = Argument | Sequence[Argument]

__all__ = [
    "AsyncRecordedSession",
    "AsyncRecordedTerminal",
    "NotRecorded",
    "RecordedSession",
    "RecordedTerminal",
    "Recording",
    "record",
    "record_async",
    "replay",
    "replay_async",
]
_FORMAT = 1
_MATCHED = ("stdin", "env", "cwd", "merge_stderr", "limits")
"""The options of a command that a recorded one must have too; others, such as ``timeout``, do not count."""
_OTHERS = (errors.CommandFailed, errors.GatherFailed)
"""Errors with further arguments, which no recorded call raises."""
_LONGEST = 200


class NotRecorded(UsageError):
    """A call was not recorded, so it cannot be replayed; nothing ran."""


class Recording:
    """Recorded calls. Equal calls are answered in the order in which they were recorded, each answer once."""

    def __init__(self, target: str, kind: str, calls: Sequence[Mapping[str, Any]] = (), path: str = "") -> None:
        self.target = target
        self.kind = kind
        self.path = path
        self._calls = list(calls)
        self._taken = Counter[str]()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a recording.

        Raises:
            UsageError: there is no such file, or it is not a recording.
        """
        _validate_file(path)
        try:
            document: Any = json.loads(Path(path).read_bytes())
            if document["format"] != _FORMAT:
                raise ValueError(f"format {document['format']}")  # noqa: TRY301  reported with the rest
            calls = [{**each, "request": dict(each["request"])} for each in document["calls"]]
            return cls(str(document["target"]), str(document["kind"]), calls, os.fspath(path))
        except FileNotFoundError as error:
            raise UsageError(f"there is no recording {os.fspath(path)}", remedy="record it with the target") from error
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{os.fspath(path)} is not a recording of this version: {error}", remedy="record it again"
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording, replacing an older one."""
        document = {"format": _FORMAT, "target": self.target, "kind": self.kind, "calls": self._calls}
        file = Path(path)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        draft.write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n", encoding="ascii")
        draft.replace(file)

    def add(self, request: Mapping[str, Any], **answer: Any) -> None:
        """Record a call and its answer."""
        self._calls.append({"request": dict(request), **answer})

    def take(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the next answer of a call.

        Raises:
            NotRecorded: there is none.
        """
        key = json.dumps(request, sort_keys=True)
        found = [each for each in self._calls if json.dumps(each["request"], sort_keys=True) == key]
        taken = self._taken[key]
        if taken >= len(found):
            times = f"was recorded {len(found)} times, and this is one more" if found else "was not recorded"
            raise NotRecorded(f"{_describe(request)} {times} in {self.path}", remedy="record it again with the target")
        self._taken[key] += 1
        return found[taken]


def _validate_file(path: Any) -> None:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"path: {describe_kind(path)} is not the path of a file", remedy="str(…)")


def _begin(terminal: Any, path: Any) -> Recording:
    """Return an empty recording; raise UsageError before anything runs if it could not be written at the end."""
    _validate_file(path)
    if not (hasattr(terminal, "target") and hasattr(terminal, "kind")):
        raise UsageError(f"terminal: {describe_kind(terminal)} is not a terminal", remedy="hermes_exec.open(…)")
    file = Path(path)
    if not file.parent.is_dir() or file.is_dir():
        raise UsageError(f"path: {file} is not a file in an existing folder", remedy="create the folder first")
    return Recording(terminal.target, terminal.kind, path=str(file))


def _describe(request: Mapping[str, Any]) -> str:
    what: Any = request.get("command", request.get("path"))
    text = f"{request['call']} {json.dumps(what)}"
    more = [f"{name}={request[name]!r}" for name in (*_MATCHED, "session") if name in request]
    return f"{text:.{_LONGEST}}" + (f" ({', '.join(more)})" if more else "")


# Values in JSON


def _to_text(value: Any) -> Any:
    """Return bytes and paths as JSON: text where it is text, else base64."""
    if isinstance(value, str):
        return value
    data = os.fsencode(value)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _to_bytes(value: Any) -> bytes:
    return b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()  # pyright: ignore[reportUnknownArgumentType]  JSON


def _digest(value: Any) -> str:
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _build_request(call: str, command: Command, options: Mapping[str, Any], session: str) -> dict[str, Any]:
    """Return what identifies a command."""
    single = isinstance(command, str | bytes | os.PathLike)
    request: dict[str, Any] = {"call": call}
    request["command"] = _to_text(command) if single else [_to_text(each) for each in cast("Sequence[Any]", command)]
    given = {name: options[name] for name in _MATCHED if options.get(name)}
    if "stdin" in given:
        request["stdin"] = _digest(given["stdin"])
    if "env" in given:
        request["env"] = {name: _digest(value) for name, value in given["env"].items()}
    if "cwd" in given:
        request["cwd"] = _to_text(given["cwd"])
    if "merge_stderr" in given:
        request["merge_stderr"] = True
    if "limits" in given:
        request["limits"] = repr(given["limits"])
    return request | ({"session": session} if session else {})


def _result_to_json(result: Result) -> dict[str, Any]:
    shown = {each.name: getattr(result, each.name) for each in fields(result)}
    shown["stdout"], shown["stderr"] = _to_text(result.stdout), _to_text(result.stderr)
    shown["shell"] = result.shell.value
    shown["truncated"] = {name: [each.total, each.omitted] for name, each in result.truncated.items()}
    return shown


def _result_from_json(values: Mapping[str, Any]) -> Result:
    given = dict(values)
    given["stdout"], given["stderr"] = _to_bytes(given["stdout"]), _to_bytes(given["stderr"])
    given["shell"] = ShellState(given["shell"])
    given["truncated"] = {name: Truncation(total, omitted) for name, (total, omitted) in given["truncated"].items()}
    return Result(**given)


def _error_to_json(error: HermesError) -> dict[str, Any]:
    facts = {"type": type(error).__name__, "what": error.what, "remedy": error.remedy, "state": error.state}
    more = {name: getattr(error, name) for name in ("errno", "filename") if getattr(error, name, None) is not None}
    return facts | {name: value if isinstance(value, int) else _to_text(value) for name, value in more.items()}


def _error_from_json(values: Mapping[str, Any]) -> HermesError:
    from hermes_exec.files.errors import path_error

    what, remedy, state = str(values["what"]), str(values["remedy"]), str(values["state"])
    if "filename" in values:
        path, code = os.fsdecode(_to_bytes(values["filename"])), int(values["errno"])
        kind = type(path_error("", path, code, ""))
        return kind(what, path=path, code=code, remedy=remedy, state=state)
    named: object = getattr(errors, str(values["type"]), HermesError)
    kind_of_error: Any = HermesError
    if isinstance(named, type) and issubclass(named, HermesError) and named not in _OTHERS:
        kind_of_error = named
    error: HermesError = kind_of_error(what, remedy=remedy, state=state)
    return error


def _answer(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an answer, or raise the error that was recorded."""
    if "error" in answer:
        raise _error_from_json(answer["error"])
    return answer


def _check(command: Command, result: Result, options: Mapping[str, Any]) -> Result:
    if options.get("check"):
        raise_if_failed(command, result, merged=bool(options.get("merge_stderr")))
    return result


@contextmanager
def _recording_errors(recording: Recording, request: Mapping[str, Any]) -> Generator[None]:
    try:
        yield
    except HermesError as error:
        recording.add(request, error=_error_to_json(error))
        raise


class _Recorded:
    """The base of terminals and sessions: a recording, and the calls that have none."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._sessions = 0

    @property
    def target(self) -> str:
        """The one-line target that was recorded."""
        return self.recording.target

    @property
    def kind(self) -> str:
        """The type of the target that was recorded."""
        return self.recording.kind

    def __repr__(self) -> str:
        """Return the class and the target."""
        return f"<{type(self).__name__} {self.target}>"

    def __getattr__(self, name: str) -> Any:
        """Refuse every other call of a terminal."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotRecorded(
            f"{name} of a terminal cannot be recorded", remedy="run, read, write and session, or test with the target"
        )

    def _name_session(self) -> str:
        self._sessions += 1
        return str(self._sessions)


class RecordedSession(_Recorded):
    """A session whose commands are recorded or replayed. Created by ``RecordedTerminal.session``."""

    def __init__(self, recording: Recording, name: str, inner: Any = None) -> None:
        super().__init__(recording)
        self._name = name
        self._inner = inner

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the real session, if there is one."""
        if self._inner is not None:
            self._inner.close()

    def run(self, command: Command, **options: Any) -> Result:
        """Run a command; the options are those of ``Session.run``."""
        request = _build_request("run", command, options, self._name)
        if self._inner is None:
            return _check(command, _result_from_json(_answer(self.recording.take(request))["result"]), options)
        with _recording_errors(self.recording, request):
            result: Result = self._inner.run(command, **{**options, "check": False})
        self.recording.add(request, result=_result_to_json(result))
        return _check(command, result, options)


class RecordedTerminal(RecordedSession):
    """A blocking terminal that records or replays. Created by ``record`` and ``replay``."""

    def __init__(self, recording: Recording, inner: hermes_exec.sync.Terminal | None = None) -> None:
        super().__init__(recording, "", inner)

    def __exit__(self, *_: object) -> None:
        """Leave the real terminal open: it belongs to the caller."""

    def session(self, name: str | None = None, **options: Any) -> RecordedSession:
        """Open a session. Commands belong to a session by the order in which it was opened."""
        inner = None if self._inner is None else self._inner.session(name, **options)
        return RecordedSession(self.recording, self._name_session(), inner)

    def read(self, path: Argument) -> bytes:
        """Return the content of a file."""
        request = {"call": "read", "path": _to_text(path)}
        if self._inner is None:
            return _to_bytes(_answer(self.recording.take(request))["content"])
        with _recording_errors(self.recording, request):
            content: bytes = self._inner.read(path)
        self.recording.add(request, content=_to_text(content))
        return content

    def write(self, path: Argument, data: bytes) -> None:
        """Replace the content of a file."""
        request = {"call": "write", "path": _to_text(path), "content": _digest(data)}
        if self._inner is None:
            _answer(self.recording.take(request))
            return
        with _recording_errors(self.recording, request):
            self._inner.write(path, data)
        self.recording.add(request)


@contextmanager
def record(terminal: hermes_exec.sync.Terminal, path: str | os.PathLike[str]) -> Generator[RecordedTerminal]:
    """Record the calls of a terminal in a file, which is written at the end of the block."""
    recording = _begin(terminal, path)
    try:
        yield RecordedTerminal(recording, terminal)
    finally:
        recording.save(path)


@contextmanager
def replay(path: str | os.PathLike[str]) -> Generator[RecordedTerminal]:
    """Return a terminal that answers from a recording.

    Raises:
        UsageError: the file is not a recording.
    """
    yield RecordedTerminal(Recording.load(path))


# The same for asyncio


class AsyncRecordedSession(_Recorded):
    """A session of ``AsyncRecordedTerminal``."""

    def __init__(self, recording: Recording, name: str, inner: Any = None) -> None:
        super().__init__(recording)
        self._name = name
        self._inner = inner

    async def __aenter__(self) -> Self:
        """Return the session."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the real session, if there is one."""
        if self._inner is not None:
            await self._inner.close()

    async def run(self, command: Command, **options: Any) -> Result:
        """Run a command; the options are those of ``Session.run``."""
        request = _build_request("run", command, options, self._name)
        if self._inner is None:
            return _check(command, _result_from_json(_answer(self.recording.take(request))["result"]), options)
        with _recording_errors(self.recording, request):
            result: Result = await self._inner.run(command, **{**options, "check": False})
        self.recording.add(request, result=_result_to_json(result))
        return _check(command, result, options)


class AsyncRecordedTerminal(AsyncRecordedSession):
    """A terminal of asyncio that records or replays. Created by ``record_async`` and ``replay_async``."""

    def __init__(self, recording: Recording, inner: Terminal | None = None) -> None:
        super().__init__(recording, "", inner)

    async def __aexit__(self, *_: object) -> None:
        """Leave the real terminal open: it belongs to the caller."""

    @awaitable_context_manager
    async def session(self, name: str | None = None, **options: Any) -> AsyncRecordedSession:
        """Open a session. Commands belong to a session by the order in which it was opened."""
        inner = None if self._inner is None else await self._inner.session(name, **options)
        return AsyncRecordedSession(self.recording, self._name_session(), inner)

    async def read(self, path: Argument) -> bytes:
        """Return the content of a file."""
        request = {"call": "read", "path": _to_text(path)}
        if self._inner is None:
            return _to_bytes(_answer(self.recording.take(request))["content"])
        with _recording_errors(self.recording, request):
            content: bytes = await self._inner.read(path)
        self.recording.add(request, content=_to_text(content))
        return content

    async def write(self, path: Argument, data: bytes) -> None:
        """Replace the content of a file."""
        request = {"call": "write", "path": _to_text(path), "content": _digest(data)}
        if self._inner is None:
            _answer(self.recording.take(request))
            return
        with _recording_errors(self.recording, request):
            await self._inner.write(path, data)
        self.recording.add(request)


@asynccontextmanager
async def record_async(terminal: Terminal, path: str | os.PathLike[str]) -> AsyncGenerator[AsyncRecordedTerminal]:
    """Record the calls of a terminal of asyncio; see ``record``."""
    recording = _begin(terminal, path)
    try:
        yield AsyncRecordedTerminal(recording, terminal)
    finally:
        recording.save(path)


@asynccontextmanager
async def replay_async(path: str | os.PathLike[str]) -> AsyncGenerator[AsyncRecordedTerminal]:
    """Return a terminal of asyncio that answers from a recording; see ``replay``."""
    yield AsyncRecordedTerminal(Recording.load(path))

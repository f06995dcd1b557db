"""Build requests from the arguments of callers, parse answers into Results, and record each command.

Shared by terminals, sessions, streams, jobs and PTYs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from hermes_exec._arguments import unknown_parameter
from hermes_exec.errno_hints import errno_remedy
from hermes_exec.errors import (
    Closed,
    CommandFailed,
    HermesError,
    PlaceError,
    ProtocolError,
    Unsupported,
    UsageError,
)
from hermes_exec.guest.core.wire import WINDOW
from hermes_exec.result import Result, ShellState, Truncation
from hermes_exec.terminal.encoding import (
    Argument,
    describe_kind,
    encode,
    encode_command,
    encode_env,
    encode_input,
    validate_count,
    validate_flag,
    validate_name,
    validate_seconds,
)
from hermes_exec.terminal.output import DEFAULT_MAX_OUTPUT, OutputCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from hermes_exec.observe.audit import Audit
    from hermes_exec.observe.hooks import CommandHooks
    from hermes_exec.terminal.limits import Limits
    from hermes_exec.terminal.output import SpoolFolder
    from hermes_exec.transport import Transport
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import RunningCommand


_STATES = (ShellState.KEPT, ShellState.RESTORED, ShellState.ROLLED_BACK, ShellState.NONE)
"""The meanings of the field ``shell`` of an answer."""
NO_SHELL = _STATES.index(ShellState.NONE)
DEFAULT_JOB_LEASE_S = 86400.0
PYTHON_REMEDY = "install Python 3.6 or later there"
CAPABILITIES_REMEDY = "Terminal.capabilities and Terminal.limits(), which list what this target supports"
_LONGEST = 300
"""Characters of a target's text that an error shows."""
_LAST_LINES = 8
"""Lines of an output that an error shows."""
_LOOKED_AT = 64 << 10
"""Bytes in which secrets are searched; a secret cut at this limit is far from the part that is shown."""
_MAX_TIMEOUT_S = 10 * 365 * 86400.0


@dataclass(slots=True)
class TerminalContext:
    """The state that the commands of one terminal share."""

    carrier: Transport
    target: str
    spools: SpoolFolder
    audit: Audit | None
    max_output: int = DEFAULT_MAX_OUTPUT
    timeout_s: float | None = None
    """For commands that are started without a time limit."""
    job_lease_s: float = DEFAULT_JOB_LEASE_S
    """For jobs that are started without a cap."""
    closed: bool = False
    suspended: bool = False
    """Whether the caller has suspended the target, so that a missing answer is not a failure."""
    redact: Callable[[str], str] = str
    """Removes known secrets from a text."""
    hooks: CommandHooks | None = None

    def check_open(self) -> None:
        """Raise Closed if the terminal is closed."""
        if self.closed:
            raise Closed("the terminal is closed", remedy="open a new one")

    def require_guest(self, what: str) -> Link:
        """Return the link to the guest, for an operation that the plain transport does not have."""
        self.check_open()
        if self.carrier.link is None:
            raise Unsupported(f"this target cannot {what} without a Python", remedy=PYTHON_REMEDY)
        return self.carrier.link


class CommandOptions(TypedDict, total=False):
    """The options of every command; ``Terminal.run`` describes them."""

    timeout: float | str | None
    stdin: bytes | str | None
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    merge_stderr: bool
    limits: Limits | None
    grace_s: float | str | None


class RunOptions(CommandOptions, total=False):
    """The further options of a command that is run to its end."""

    check: bool
    max_output: int | None


class StreamOptions(CommandOptions, total=False):
    """The further options of a command whose output is streamed."""

    interactive: bool


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The options of one command, with their defaults."""

    timeout: float | str | None = None
    stdin: bytes | str | None = None
    env: Mapping[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    merge_stderr: bool = False
    limits: Limits | None = None
    grace_s: float | str | None = None
    interactive: bool = False
    """Whether standard input stays open for ``Stream.write``."""
    check: bool = False
    max_output: int | None = None


def choose_options(options: Mapping[str, Any]) -> CommandSettings:
    """Return the options of a call.

    Raises:
        UsageError: there is no such option; the message suggests one.
    """
    try:
        return CommandSettings(**options)
    except TypeError:
        known = CommandSettings.__slots__
        unknown = next(name for name in options if name not in known)
        raise unknown_parameter(unknown, known) from None


def encode_limits(limits: Any) -> dict[str, int | float]:
    """Return the fields of limits for a request."""
    from hermes_exec.terminal.limits import Limits

    if not isinstance(limits, Limits):
        raise UsageError(
            f"limits: {describe_kind(limits)} is not a Limits", remedy="hermes_exec.Limits(memory_mib=512)"
        )
    return limits.as_fields()


def build_fields(context: TerminalContext, options: CommandSettings) -> dict[str, Any]:
    """Return the fields of a request; a missing field has the guest's default."""
    fields: dict[str, Any] = {}
    if options.limits is not None:
        fields["limits"] = encode_limits(options.limits)
        context.require_guest("enforce limits").load_part("limits")
    timeout = context.timeout_s if options.timeout is None else options.timeout
    if timeout is not None:
        fields["timeout"] = validate_seconds(timeout, "timeout", _MAX_TIMEOUT_S)
    if options.stdin is not None or options.interactive:
        fields["stdin"] = True
    if options.env:
        fields["env"] = encode_env(options.env)
    if options.cwd is not None:
        fields["cwd"] = encode(options.cwd, "cwd")
    validate_flag(options.check, "check")
    validate_flag(options.interactive, "interactive")
    if validate_flag(options.merge_stderr, "merge_stderr"):
        fields["merge"] = True
    if options.grace_s is not None:
        fields["grace"] = validate_seconds(options.grace_s, "grace_s", _MAX_TIMEOUT_S, zero=True)
    return fields


async def send_input(call: RunningCommand, data: bytes) -> None:
    """Send all of a command's standard input."""
    await call.write(data)
    call.write_eof()


async def send_input_or_end(call: RunningCommand, data: bytes) -> None:
    """Send all of a command's standard input; end the command when that is cancelled."""
    try:
        await send_input(call, data)
    except asyncio.CancelledError:
        await call.end()
        raise


async def run_command(
    context: TerminalContext,
    operation: str,
    fields: dict[str, Any],
    command: Argument | Sequence[Argument],
    options: CommandSettings,
    session: str,
) -> Result:
    """Run one command to its end and return its output."""
    most = context.max_output if options.max_output is None else options.max_output
    collector = OutputCollector(validate_count(most, "max_output"), context.spools)
    stdin = encode_input(options.stdin)
    call = context.carrier.start(operation, fields, collector)
    record = record_start(context, call, command, options, session)
    feeding: asyncio.Task[None] | None = None
    if stdin is not None and len(stdin) >= WINDOW // 2:
        feeding = asyncio.get_running_loop().create_task(send_input(call, stdin))
    try:
        if stdin is not None and feeding is None:
            await send_input_or_end(call, stdin)
        answer = await call.result()
        result = parse_result(answer, command, collector)
    except BaseException as error:
        if record is not None:
            record.record_failure(error, collector.stdout.total, collector.stderr.total)
        raise
    finally:
        if feeding is not None:
            feeding.cancel()
    if record is not None:
        asyncio.get_running_loop().call_soon(record.record_end, result, collector.stdout.total, collector.stderr.total)
    if options.check:
        raise_if_failed(command, result, merged=options.merge_stderr, redact=context.redact)
    return result


def raise_if_failed(command: Any, result: Result, *, merged: bool = False, redact: Callable[[str], str] = str) -> None:
    """Raise ``CommandFailed`` unless the command succeeded; ``merged`` is whether ``stdout`` has both outputs."""
    if not result.ok:
        output = result.stdout if merged else result.stderr
        text = redact(output.rstrip()[-_LOOKED_AT:].decode("utf-8", "replace"))
        raise CommandFailed(redact(format_command(command)), result, _end_of(text), _last_lines(text))


def _end_of(text: str) -> str:
    """Return the end of an output for an error: shortened, control characters escaped."""
    end = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text[-_LONGEST:])
    return f"…{end}" if len(text) > _LONGEST else end


def _last_lines(text: str) -> list[str]:
    """Return the last lines of an output, each as ``_end_of`` returns it."""
    return [_end_of(line.rstrip()) for line in text.split("\n") if line.strip()][-_LAST_LINES:]


def parse_result(
    answer: dict[str, Any], command: Argument | Sequence[Argument], collector: OutputCollector | None
) -> Result:
    """Build the Result from an answer, which is untrusted: an invalid field raises ProtocolError."""
    if "error" in answer and answer["error"] != "program":
        raise parse_error(answer, command)
    stdout, lost_out = collector.stdout.finish() if collector else (b"", None)
    stderr, lost_err = collector.stderr.finish() if collector else (b"", None)
    note = answer.get("note", "")
    if answer.get("error") == "program":
        name = format_command(command if isinstance(command, str | bytes) else command[0])
        note = f"{name}: {answer.get('message', 'cannot be started')}"
        stderr += note.encode("utf-8", "surrogateescape") + b"\n"
    code, signal, state = answer.get("code"), answer.get("signal"), answer.get("shell", 0)
    duration, limit = answer.get("duration", 0.0), answer.get("limit")
    if ((code is None) == (signal is None) and not answer.get("cancelled") and not answer.get("timed_out")) or not (
        isinstance(code, int | None)
        and isinstance(signal, int | None)
        and isinstance(duration, float)
        and isinstance(note, str)
        and isinstance(limit, str | None)
        and state in range(len(_STATES))
    ):
        raise ProtocolError(f"the guest sent an invalid result: {answer!r:.300}")
    truncated: dict[Literal["stdout", "stderr"], Truncation] = {}
    if lost_out:
        truncated["stdout"] = lost_out
    if lost_err:
        truncated["stderr"] = lost_err
    return Result(
        exit_code=code,
        signal=signal,
        timed_out=bool(answer.get("timed_out")),
        cancelled=bool(answer.get("cancelled")),
        limit=limit,
        stdout=stdout,
        stderr=stderr,
        duration_s=duration,
        truncated=truncated,
        shell=_STATES[state] if isinstance(command, str | bytes) else ShellState.NONE,  # pyright: ignore[reportUnknownArgumentType]  membership in the range shows that it is a number
        note=note,
    )


def parse_error(answer: dict[str, Any], command: Argument | Sequence[Argument]) -> HermesError:
    """Return the error for a failed answer; nothing ran in any of these cases."""
    kind, message = str(answer.get("error")), str(answer.get("message", ""))
    if kind == "cwd":
        return UsageError(f"no folder to run in: {message:.{_LONGEST}}", remedy="create it, or pass another cwd")
    if kind == "closed":
        return Closed(message)
    if kind == "unsupported":
        return Unsupported(f"{format_command(command)[:80]}: {message}", remedy=CAPABILITIES_REMEDY)
    what = f"{format_command(command)[:80]}: {message:.{_LONGEST}}"
    return PlaceError(what, remedy=errno_remedy(answer.get("errno")), state="nothing ran")


_log = logging.getLogger("hermes_exec.command")


def format_command(command: Argument | Sequence[Argument]) -> str:
    """Return a command as a shell would spell it."""
    if isinstance(command, str | bytes):
        return os.fsdecode(command)
    return shlex.join(os.fsdecode(argument) for argument in command)


class CommandRecord:
    """Reports one command that was sent to the audit, the debug log and the hooks.

    Exactly one of ``ended`` and ``failed`` is called, once, at its end.
    """

    __slots__ = ("_context", "_since", "id")

    def __init__(self, context: TerminalContext, id: str) -> None:
        self._context = context
        self.id = id
        self._since = time.monotonic()

    def record_end(self, result: Result, out: int, err: int) -> None:
        """Report its result; ``out`` and ``err`` are the bytes received of its two streams."""
        why = "cancelled" if result.cancelled else ""
        self._report(result.exit_code, result.signal, result.timed_out, result.duration_s, out, err, why)
        if _log.isEnabledFor(logging.DEBUG):
            self._write_debug(
                "ended", how=result.reason, duration_s=round(result.duration_s, 6), stdout=out, stderr=err
            )

    def record_failure(self, error: BaseException, out: int, err: int) -> None:
        """Report that it was refused or cancelled, or that its outcome is unknown."""
        why = "cancelled" if isinstance(error, asyncio.CancelledError) else str(error) or type(error).__name__
        self._report(None, None, False, time.monotonic() - self._since, out, err, why)
        if _log.isEnabledFor(logging.DEBUG):
            self._write_debug("did not end as it should", why=why)

    def _report(self, *facts: Any) -> None:
        context = self._context
        if context.audit is not None:
            context.audit.record_end(self.id, *facts)
        if context.hooks is not None:
            context.hooks.record_end(self.id, context.target, *facts)

    def _write_debug(self, event: str, **facts: object) -> None:
        _log.debug("command %s %s", self.id, event, extra={"target": self._context.target, **facts})


def record_start(
    context: TerminalContext,
    call: RunningCommand,
    command: Argument | Sequence[Argument],
    options: CommandSettings,
    session: str,
) -> CommandRecord | None:
    """Report the start of a command after its request was sent, so that no command waits for the disk.

    Returns None when there is no audit, no hook and no debug log.
    """
    if context.audit is None and context.hooks is None and not _log.isEnabledFor(logging.DEBUG):
        return None
    kind = "shell" if isinstance(command, str | bytes) else "argv"
    return _start(context, str(call.number), kind, format_command(command), options.cwd, session)


def _start(
    context: TerminalContext, id: str, kind: str, text: str, cwd: str | os.PathLike[str] | None, session: str
) -> CommandRecord:
    folder = "" if cwd is None else os.fspath(cwd)
    if context.audit is not None:
        context.audit.record_start(id, context.target, session, kind, text, folder)
    if context.hooks is not None:
        context.hooks.record_start(id, context.target, session, kind, text, folder)
    if _log.isEnabledFor(logging.DEBUG):
        facts = {"target": context.target, "session": session, "cwd": folder, "command": text}
        _log.debug("command %s sent", id, extra={key: value for key, value in facts.items() if value})
    return CommandRecord(context, id)


@contextlib.contextmanager
def record_launch(
    context: TerminalContext,
    id: str,
    kind: str,
    command: Argument | Sequence[Argument],
    cwd: str | os.PathLike[str] | None,
    name: str,
) -> Generator[CommandRecord]:
    """Report the start of a job or a PTY, and its failure if the block raises; its holder reports its end."""
    encode_command(command)
    validate_name(name, "name")
    if cwd is not None:
        encode(cwd, "cwd")
    record = _start(context, id, kind, format_command(command), cwd, name)
    try:
        yield record
    except BaseException as error:
        record.record_failure(error, 0, 0)
        raise

"""What a tool is, and what it is given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, cast

from hermes_exec.errors import ConfigError, HermesError
from hermes_exec_agent.tools.envelope import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from pathlib import Path

    from hermes_exec import Terminal
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.protocol import ToolSpec, Usage
    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.workspace import Workspace
    from hermes_exec_policies.gate.cases import Case


S = TypeVar("S")

Mode = Literal["ask", "allow", "deny"]
MODES: tuple[Mode, ...] = ("ask", "allow", "deny")
_LONGEST = 2000


class Denied(HermesError):
    """A read that may not be done; nothing of it reached the model."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """``mode`` holds for every tool that can change something, unless ``tools`` says otherwise for one by its name."""

    mode: Mode = "ask"
    tools: Mapping[str, Mode] = field(default_factory=dict[str, Mode])

    def __post_init__(self) -> None:
        for mode in (self.mode, *self.tools.values()):
            if mode not in MODES:
                raise ConfigError(f"approvals: {mode!r}", remedy=f"one of {', '.join(MODES)}")

    def of(self, tool: str) -> Mode:
        """How it is with a tool."""
        return self.tools.get(tool, self.mode)


async def refusal(
    tool: str, summary: str, context: Context, *, scope: str = "", always: bool = False
) -> Failure | None:
    """Why a call may not be made, or None. Where nobody is there to be asked, the answer is no.

    Args:
        tool: its name.
        summary: what is to be done.
        context: of the conversation.
        scope: what a lasting yes holds for; the tool, if it is empty.
        always: ask also where the tool is allowed.
    """
    mode = context.approvals.of(tool)
    if mode == "allow" and not always:
        return None
    line = safe(summary)
    if mode == "deny":
        what = (
            f"{tool} may not {line}: denied by the settings" if scope else f"{tool} is not allowed in this conversation"
        )
        answer, why = "denied by the settings", f"{what}; do without it"
    else:
        answer, why = await _asked(tool, line, scope, context)
    context.record("approval", {"tool": tool, "summary": line, "answer": answer})
    return Failure("denied", why) if why else None


async def _asked(tool: str, line: str, scope: str, context: Context) -> tuple[str, str]:
    """The answer for the log, and the reason of a no."""
    try:
        if await approve(tool, line, context, scope):
            return "approved", ""
    except HermesError as error:
        what = f"{tool} needs somebody's approval" + (f" to {line}" if scope else "")
        return "nobody there", f"{what}: {error}"
    return "denied", "the person said no. Do not try the same in another way; ask what they want instead"


async def approve(tool: str, line: str, context: Context, scope: str = "") -> bool:
    """Ask the person; the time in which they think is not the call's.

    Raises:
        Unsupported: nobody is there.
    """
    with pause_stopwatches():
        return await context.person.approve(tool, line, scope)


def safe(text: str) -> str:
    """One line of bounded length that moves no cursor: what is quoted comes from a model.

    Of a longer one the end is shown too, and how much is missing: nothing can be hidden behind a long beginning.
    """
    flat = " ".join(text.split())
    clean = "".join(each if each.isprintable() else "?" for each in flat)
    if len(clean) <= _LONGEST:
        return clean
    half = _LONGEST // 2
    return f"{clean[:half]} [... {len(clean) - 2 * half} characters are not shown ...] {clean[-half:]}"


class Person(Protocol):
    """Whom the agent works for. Where nobody is there, both raise `Unsupported`: nothing is done in their name."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        """Whether this may be done; ``summary`` is a line, safe to print.

        A yes that lasts holds for the tool; with ``scope``, for the same tool with the same scope alone.
        """
        ...

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        """Their answer, one of the choices or in their own words."""
        ...


def _drop(*_: Any) -> None:
    """Whoever wants to be told says so."""


@dataclass(slots=True)
class Context:
    """What a conversation gives to each of its tools."""

    terminal: Terminal
    """The conversation's one terminal; there is no other, and none is opened in its stead."""
    place: str
    """Its target, as the person wrote it."""
    person: Person
    conversation: str
    """The id of the conversation in the event log."""
    model: str = ""
    """The name of the model; shells are told it, and skills are signed with it."""
    approvals: Approvals = field(default_factory=Approvals)
    tell: Callable[[str], None] = _drop
    """Shows the person one line."""
    notify: Callable[[Update], None] = _drop
    """Tells the listener of the turn what a tool does meanwhile."""
    record: Callable[[Kind, dict[str, Any]], None] = _drop
    """Appends to the log of events."""
    spend: Callable[[Usage], None] = _drop
    """Counts what a model took that a tool asked by itself."""
    request: str = ""
    """What the person said last, in their own words: examples in it are cases that a skill has to hold."""
    data: Path | None = None
    """Where files come that a skill leaves; the environment's PERSISTENT_DIR, or ./data, if left out."""
    models: Models | None = None
    """The models that tools may ask; without any, no tool asks a model."""
    cases: Sequence[Case] = ()
    """A person's, which the skills of this conversation have to hold."""
    repair_skills: bool = True
    """Whether a skill that fails in use may be improved and run once more."""
    tools: Sequence[Tool] = ()
    """All tools of the conversation."""
    delegate: Callable[[str, Context], Awaitable[tuple[bool, str]]] | None = None
    """Hands a request to a conversation of its own; returns whether that one answered, and its last message."""
    _workspace: Workspace | None = None
    _services: dict[object, object] = field(default_factory=dict[object, object])

    def service(self, create: Callable[[Context], S]) -> S:
        """Return what ``create`` makes of this context: once, so that tools of one conversation share it."""
        if create not in self._services:
            self._services[create] = create(self)
        return cast("S", self._services[create])

    def fork(self) -> Context:
        """Return the context of another conversation over the same terminal, with a shell and state of its own."""
        return replace(self, conversation="", request="", tools=(), _workspace=None, _services={})

    @property
    def workspace(self) -> Workspace:
        """The shell of this conversation in its place, made when it is first needed."""
        from hermes_exec_agent.tools.workspace import Workspace

        if self._workspace is None:
            self._workspace = Workspace(self.terminal, self.place, self.model)
        return self._workspace

    @property
    def background(self) -> bool:
        """Whether something was started in the background that ends with this conversation."""
        return self._workspace is not None and bool(self._workspace.background)

    async def end_background(self) -> list[str]:
        """End what runs in the background and was not started as a job on purpose; tells and gives a line for each."""
        ended = await self._workspace.end_background() if self._workspace is not None else []
        for each in ended:
            self.tell(f"ended with the conversation: {each}")
        return ended

    async def close(self) -> None:
        """End what runs and the shell, and remove what tools kept; the terminal stays. Safe to call twice."""
        await self.end_background()
        if self._workspace is not None:
            for id in await self._workspace.close():
                self.tell(f"job {id} goes on in {self.place}: hermes-exec jobs")


class Tool(Protocol):
    """Something that a model can ask for."""

    @property
    def spec(self) -> ToolSpec:
        """As a model sees it."""
        ...

    @property
    def changes(self) -> bool:
        """Whether a call can change anything. Calls of tools that change nothing run side by side."""
        ...

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Do it, if it may be done. A cancelled call leaves nothing running.

        A `HermesError` of the place becomes an envelope with a `Failure`; it is never shown as a command's output.
        """
        ...


_running: ContextVar[tuple[Stopwatch, ...]] = ContextVar("the stopwatches that a task runs in", default=())


class Stopwatch:
    """``with Stopwatch() as watch:`` measures a block, and the tasks that begin in it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ended: float | None = None
        self._paused_s = 0.0
        self._pauses = 0
        """Pauses that last: a script, or another conversation, may ask several questions at once."""
        self._pause_began = 0.0

    def __enter__(self) -> Self:
        self._token = _running.set((*_running.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _running.reset(self._token)
        self._ended = time.monotonic()

    @property
    def paused_s(self) -> float:
        """Seconds in which it stood still."""
        return self._paused_s + (time.monotonic() - self._pause_began if self._pauses else 0.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds in which it ran."""
        return (time.monotonic() if self._ended is None else self._ended) - self._began - self.paused_s

    def pause(self) -> None:
        """Stand still until as many calls of `resume`."""
        if not self._pauses:
            self._pause_began = time.monotonic()
        self._pauses += 1

    def resume(self) -> None:
        """End a `pause`."""
        self._pauses -= 1
        if not self._pauses:
            self._paused_s += time.monotonic() - self._pause_began


@contextmanager
def pause_stopwatches() -> Generator[None]:
    """Let every stopwatch that this task runs in stand still for the block."""
    watches = _running.get()
    for watch in watches:
        watch.pause()
    try:
        yield
    finally:
        for watch in watches:
            watch.resume()

"""The interfaces of tools, persons and contexts; approvals; and the stopwatch that approvals pause."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, cast, runtime_checkable

from hermes_exec.errors import ConfigError, HermesError
from hermes_exec_agent.memory.persons import Participant
from hermes_exec_agent.tools.command_rules import CommandRules, describe_scope
from hermes_exec_agent.tools.envelope import Failure
from hermes_exec_agent.tools.provenance import Provenance, describe_strangers, describe_untrusted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from pathlib import Path

    from hermes_exec import Terminal
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.memory.longterm.service import LongTermMemory
    from hermes_exec_agent.memory.longterm.skill_meaning import SkillMeaning
    from hermes_exec_agent.memory.user_model import UserModel
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.protocol import ToolSpec
    from hermes_exec_agent.runtime.cost_meter import CostMeter
    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.hooks import ConversationHooks
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.delegated_tasks import DelegatedTasks, Task, TaskAnswer
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.file_checkpoints import FileCheckpoints
    from hermes_exec_agent.tools.workspace import Workspace
    from hermes_exec_policies.gate.cases import Case


S = TypeVar("S")

Mode = Literal["ask", "allow", "deny"]
MODES: tuple[Mode, ...] = ("ask", "allow", "deny")
_LONGEST = 2000


class ReadDenied(HermesError):
    """A read was not approved; the model received nothing of it."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """``mode`` applies to every tool that can change something, unless ``tools`` has another one for its name."""

    mode: Mode = "ask"
    tools: Mapping[str, Mode] = field(default_factory=dict[str, Mode])
    commands: CommandRules = field(default_factory=CommandRules)
    """Rules for commands of ``terminal``, which come before the mode."""

    def __post_init__(self) -> None:
        for mode in (self.mode, *self.tools.values()):
            if mode not in MODES:
                raise ConfigError(f"approvals: {mode!r}", remedy=f"one of {', '.join(MODES)}")

    def of(self, tool: str) -> Mode:
        """Return the mode of a tool."""
        return self.tools.get(tool, self.mode)


async def check_approval(
    tool: str,
    summary: str,
    context: Context,
    *,
    scope: str = "",
    always: bool = False,
    command: str = "",
    stays: bool = False,
) -> Failure | None:
    """Return why a call may not run, or None. If no person can be asked, the answer is no.

    After the conversation read text of a skill that no person trusts, each call is asked for, whatever was allowed;
    after text from the web or from another server, each call that may act outside of the workspace. A rule that denies
    a command comes before that, and one that allows it after that.

    Args:
        tool: its name.
        summary: describes the call.
        context: of the conversation.
        scope: what a lasting approval covers; the tool, if it is empty.
        always: ask even if the tool is allowed.
        command: shell text, which rules for commands cover.
        stays: whether the call certainly acts in the workspace alone.
    """
    mode, rules = context.approvals.of(tool), context.approvals.commands
    line = to_safe_line(summary)
    denial = rules.find_denial(command) if command and rules.deny else ""
    if denial and denial != "?":
        return _record_denial(tool, line, denial, context)
    always = always or bool(denial)
    untrusted = context.provenance.find_untrusted()
    strangers = [] if stays or untrusted else list(context.provenance.strangers)
    if not always and not untrusted and not strangers:
        if mode == "allow":
            return None
        if command and (permission := rules.find_permission(command)):
            context.record("approval", {"tool": tool, "summary": line, "answer": f"allowed by {permission}"})
            return None
    if command and not scope:
        scope = describe_scope(command) or line
    if mode == "deny":
        what = (
            f"{tool} may not {line}: denied by the settings" if scope else f"{tool} is not allowed in this conversation"
        )
        answer, why = "denied by the settings", f"{what}; do without it"
    else:
        if untrusted or strangers:  # a lasting approval of before does not cover it, and one of now covers this alone
            line = f"{line} ({describe_untrusted(untrusted) if untrusted else describe_strangers(strangers)})"
            scope = line
        answer, why = await _ask_person(tool, line, scope, context)
    record: dict[str, Any] = {"tool": tool, "summary": line, "answer": answer}
    record |= context.provenance.sources_record(context.conversation)
    if untrusted:
        record["origins"] = [each.to_record() for each in untrusted]
    if strangers:
        record["strangers"] = strangers
    context.record("approval", record)
    return Failure("denied", why) if why else None


def _record_denial(tool: str, line: str, pattern: str, context: Context) -> Failure:
    """Record that a rule denied a command, and return the refusal."""
    context.record("approval", {"tool": tool, "summary": line, "answer": f"denied by {pattern}"})
    return Failure("denied", f"the person's rule {pattern!r} denies this command; do without it")


async def _ask_person(tool: str, line: str, scope: str, context: Context) -> tuple[str, str]:
    """Return the answer for the log, and the reason of a refusal."""
    try:
        if await approve(tool, line, context, scope):
            return "approved", ""
    except HermesError as error:
        what = f"{tool} needs a person's approval" + (f" to {line}" if scope else "")
        return "no person there", f"{what}: {error}"
    return "denied", "the person said no. Do not try the same in another way; ask what they want instead"


async def approve(tool: str, line: str, context: Context, scope: str = "") -> bool:
    """Ask the person; stopwatches pause meanwhile.

    Raises:
        Unsupported: no person can be asked.
    """
    with pause_stopwatches():
        return await context.person.approve(tool, line, scope)


def to_safe_line(text: str) -> str:
    """Return untrusted text as one line of bounded length that moves no cursor.

    The beginning and the end of a longer text are shown, with the number of characters between them, so that nothing
    hides behind a long beginning.
    """
    flat = " ".join(text.split())
    clean = "".join(each if each.isprintable() else "?" for each in flat)
    if len(clean) <= _LONGEST:
        return clean
    half = _LONGEST // 2
    return f"{clean[:half]} [... {len(clean) - 2 * half} characters are not shown ...] {clean[-half:]}"


class Person(Protocol):
    """The person whom the agent works for. If none can be asked, both methods raise `Unsupported`."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        """Return whether the call may run; ``summary`` is a line that is safe to print.

        A lasting approval covers the tool; with ``scope``, the same tool with the same scope alone.
        """
        ...

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        """Return the person's answer: one of the choices, or their own text."""
        ...


def _ignore(*_: Any) -> None:
    """Ignore the call."""


async def _list_nothing() -> list[str]:
    return []


@dataclass(slots=True)
class Context:
    """What a conversation provides to its tools."""

    terminal: Terminal
    """The conversation's terminal; no tool opens another one."""
    place: str
    """The target, as the person wrote it."""
    person: Person
    conversation: str
    """The id of the conversation in the event log."""
    model: str = ""
    """The name of the model, for the environment of shells and the author of skills."""
    approvals: Approvals = field(default_factory=Approvals)
    tell: Callable[[str], None] = _ignore
    """Shows the person one line."""
    notify: Callable[[Update], None] = _ignore
    """Sends an update to the listener of the turn."""
    record: Callable[[Kind, dict[str, Any]], None] = _ignore
    """Appends to the log of events."""
    spend: Callable[..., None] = _ignore
    """Counts the usage of a model that a tool asked by itself, or with ``conversation`` that of a delegated task."""
    meter: CostMeter | None = None
    """Counts the cost of the turn, with that of delegated tasks; None without a budget of dollars."""
    request: str = ""
    """The person's last request, verbatim: examples in it are test cases of skills."""
    list_requests: Callable[[], Sequence[str]] = tuple
    """Returns what the person wrote in this conversation, verbatim."""
    data: Path | None = None
    """The folder for files of skills; the environment's PERSISTENT_DIR, or ./data, if left out."""
    models: Models | None = None
    """The models that tools may ask; without any, no tool asks a model."""
    cases: Sequence[Case] = ()
    """A person's test cases for skills of this conversation."""
    repair_skills: bool = True
    """Whether a skill that fails in use may be improved and run once more."""
    tools: Sequence[Tool] = ()
    """All tools of the conversation."""
    provenance: Provenance = field(default_factory=Provenance)
    """The sources of the conversation's text; a delegated conversation begins with those of its parent."""
    journal: Journal | None = None
    """The journal that the conversation reads and may change; a delegated conversation and a guest's have none."""
    past: EventLog | None = None
    """The log of earlier conversations that the model may search; a delegated conversation and a guest's have none."""
    longterm: LongTermMemory | None = None
    """The long-term memory that requests are compared with; a delegated conversation and a guest's have none."""
    skill_meaning: SkillMeaning | None = None
    """Compares requests with skills by meaning; a guest's conversation has none."""
    user_model: UserModel | None = None
    """What is known about the conversation's person; a delegated conversation and a guest's have none."""
    project: str = ""
    """The end of the system message with the project's files for agents."""
    folder: str = ""
    """The folder of the target in which the conversation's shell begins; that of the terminal if empty."""
    participant: Participant = field(default_factory=Participant)
    """The person that the conversation belongs to."""
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Configured descriptions of tools, by name."""
    proposals: EventLog | None = None
    """The log with the queue of proposals to change the configuration; None if the agent may not propose any."""
    remind: Callable[[str], None] = _ignore
    """Lets the model read a notice of the program with its next results, or with the next request."""
    hooks: ConversationHooks | None = None
    """The configured hooks, which a delegated conversation shares; None without any."""
    is_delegate: bool = False
    """Whether another conversation delegated this one, so that a model wrote its requests."""
    proposes_jobs: bool = False
    """Whether the agent may propose scheduled jobs; not in a delegated conversation and a guest's."""
    checkpoints: FileCheckpoints | None = None
    """Keeps files before they change; None if nothing is kept."""
    delegate: Callable[[Task, Context], Awaitable[TaskAnswer]] | None = None
    """Hands a task to a conversation of its own, and returns how that one ended."""
    new_tools: Callable[[], Sequence[Tool]] = tuple
    """Returns the tools that this conversation gets in addition, since the last call."""
    servers: Callable[[], list[str]] = list
    """Describes the servers whose tools the conversation has, a line for each."""
    list_prompts: Callable[[], Awaitable[list[str]]] = _list_nothing
    """Lists the prompts of these servers, a line for each."""
    _workspace: Workspace | None = None
    _delegated: DelegatedTasks | None = None
    _services: dict[object, object] = field(default_factory=dict[object, object])

    def service(self, create: Callable[[Context], S]) -> S:
        """Return ``create(context)``, created once, so that the tools of a conversation share it."""
        if create not in self._services:
            self._services[create] = create(self)
        return cast("S", self._services[create])

    def fork(self) -> Context:
        """Return the context of another conversation over the same terminal, with a shell and state of its own."""
        return replace(
            self,
            conversation="",
            request="",
            is_delegate=True,
            tools=(),
            journal=None,
            past=None,
            longterm=None,
            user_model=None,
            proposals=None,
            proposes_jobs=False,
            new_tools=tuple,
            _workspace=None,
            _delegated=None,
            _services={},
        )

    @property
    def workspace(self) -> Workspace:
        """The conversation's shell in the target, created on first use."""
        from hermes_exec_agent.tools.workspace import Workspace

        if self._workspace is None:
            self._workspace = Workspace(self.terminal, self.place, self.model, self.folder)
        return self._workspace

    @property
    def delegated(self) -> DelegatedTasks:
        """The delegated tasks in the background, created on first use."""
        from hermes_exec_agent.tools.delegated_tasks import DelegatedTasks

        if self._delegated is None:
            self._delegated = DelegatedTasks(self)
        return self._delegated

    @property
    def background(self) -> bool:
        """Whether processes or tasks were started in the background that end with this conversation."""
        has_processes = self._workspace is not None and bool(self._workspace.background)
        return has_processes or self.has_running_tasks

    @property
    def has_running_tasks(self) -> bool:
        """Whether a delegated task runs in the background."""
        return self._delegated is not None and bool(self._delegated.running)

    async def list_running(self) -> list[str]:
        """List the delegated tasks and the processes in the background that still run, one line each."""
        tasks = self._delegated.list_running() if self._delegated is not None else []
        return [*tasks, *(await self.workspace.list_running())]

    async def end_tasks(self) -> list[str]:
        """End the delegated tasks in the background; return a line for each that still ran."""
        return await self._delegated.end_all() if self._delegated is not None else []

    async def stop_background(self) -> list[str]:
        """End tasks and processes in the background, except for jobs started with ``keep``; return a line for each."""
        tasks = await self.end_tasks()
        return [*tasks, *(await self._workspace.end_background() if self._workspace is not None else [])]

    async def keep_files(self, changes: Mapping[str, bytes | None]) -> None:
        """Keep files before they change, if this is enabled; see `FileCheckpoints.keep`."""
        if self.checkpoints is not None:
            await self.checkpoints.keep(changes)

    async def begin_command(self, folder: str = "") -> None:
        """Note that a command begins in ``folder``, or in the shell's folder; see `FileCheckpoints.begin_command`."""
        if self.checkpoints is not None:
            await self.checkpoints.begin_command(folder or await self.workspace.cwd())

    async def end_background(self) -> list[str]:
        """Do the same, and show each line, as the conversation ends."""
        ended = await self.stop_background()
        for each in ended:
            self.tell(f"ended with the conversation: {each}")
        return ended

    async def close(self) -> None:
        """End background processes and the shell, and remove kept outputs; the terminal stays open. Idempotent."""
        await self.end_background()
        if self._workspace is not None:
            for id in await self._workspace.close():
                self.tell(f"job {id} goes on in {self.place}: hermes-exec jobs")


class Tool(Protocol):
    """A tool that a model can call."""

    @property
    def spec(self) -> ToolSpec:
        """The tool's description for a model."""
        ...

    @property
    def changes(self) -> bool:
        """Whether a call can change anything. Calls of tools that change nothing run concurrently."""
        ...

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Run the call if it is approved. A cancelled call leaves nothing running.

        A `HermesError` of the target becomes an envelope with a `Failure`; it is never shown as a command's output.
        """
        ...


@runtime_checkable
class IndirectTool(Protocol):
    """A tool whose calls are calls of other tools, which are not among those of the request."""

    def find_tool(self, name: str) -> Tool | None:
        """Return the tool of that name; None if there is none."""
        ...

    def find_call(self, arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]]:
        """Return the tool that a call means, and its arguments.

        Raises:
            UsageError: there is none.
        """
        ...


_running: ContextVar[tuple[Stopwatch, ...]] = ContextVar("the stopwatches that a task runs in", default=())


class Stopwatch:
    """``with Stopwatch() as watch:`` measures a block, and the tasks that start in it, without pauses."""

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
        """Seconds of pauses."""
        return self._paused_s + (time.monotonic() - self._pause_began if self._pauses else 0.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds without pauses."""
        return (time.monotonic() if self._ended is None else self._ended) - self._began - self.paused_s

    def pause(self) -> None:
        """Pause until as many calls of `resume`."""
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
    """Pause every stopwatch of the current task for the block."""
    watches = _running.get()
    for watch in watches:
        watch.pause()
    try:
        yield
    finally:
        for watch in watches:
            watch.resume()

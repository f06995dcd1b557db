"""Tasks that a conversation delegated, and those of them that run in the background."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import HermesError, Unsupported, UsageError
from hermes_exec_agent.quoting import quote
from hermes_exec_agent.tools.absent_person import AbsentPerson
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope, to_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_agent.runtime.cost_meter import CostMeter
    from hermes_exec_agent.tools.provenance import PartOrigin
    from hermes_exec_agent.tools.tool import Context, Person

AT_ONCE = 3
"""Tasks of one call, or in the background of one conversation, that run at once."""
MOST = 8
"""Tasks of one call, and unfinished ones in the background."""
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Task:
    """A task for another conversation."""

    request: str
    id: str = ""
    """Tells it from the others that run at once; empty if it is the only one."""
    person: Person | None = None
    """The person that it may ask; that of the delegating conversation if None."""
    meter: CostMeter | None = None
    """Counts its cost for the turn that started it; that of the delegating conversation if None."""

    @property
    def title(self) -> str:
        """The first line of the request."""
        return self.request.partition("\n")[0]


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The end of a task."""

    is_answered: bool
    text: str
    """The last message of the other conversation, or the reason why there is none."""
    origins: Sequence[PartOrigin] = ()
    """The untrusted skills that it read and the delegating conversation did not."""


async def run_task(task: Task, context: Context) -> TaskAnswer:
    """Run a task to its end.

    Raises:
        Unsupported: the conversation cannot delegate.
        HermesError: the model or the target failed.
    """
    if context.delegate is None:
        raise Unsupported("this conversation cannot delegate", remedy="do it here")
    return await context.delegate(task, context)


async def run_side_by_side(tasks: Iterable[Task], context: Context) -> list[TaskAnswer]:
    """Run tasks, `AT_ONCE` at once, each to its end: one that fails ends no other. Cancelled, all of them end."""
    room = asyncio.Semaphore(AT_ONCE)

    async def run(task: Task) -> TaskAnswer:
        async with room:
            return await _run_or_describe(task, context)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(run(each)) for each in tasks]
    return [each.result() for each in running]


async def _run_or_describe(task: Task, context: Context) -> TaskAnswer:
    try:
        return await run_task(task, context)
    except HermesError as error:
        return TaskAnswer(False, to_failure(error).message)


async def to_envelope(answers: Sequence[TaskAnswer], context: Context, *, session_id: str = "") -> Envelope:
    """Return the result of tasks for the delegating model; each of several is numbered."""
    texts = [each.text for each in answers]
    if len(texts) > 1:
        texts = [f"Task {number}:\n{text}" for number, text in enumerate(texts, 1)]
    failed = [str(number) for number, each in enumerate(answers, 1) if not each.is_answered]
    text, reference = await context.workspace.shorten("\n\n".join(texts))
    error = None
    if failed:
        which = f"task {', '.join(failed)}" if len(answers) > 1 else "it"
        error = Failure("unfinished", f"{which} came to no answer; output is its last word")
    return Envelope(
        ok=not failed, place=context.place, output=text, output_ref=reference, session_id=session_id, error=error,
        origins=tuple(each for answer in answers for each in answer.origins),
    )  # fmt: skip


def _create_absent_person() -> AbsentPerson:
    """Return the person of a task in the background, which must not ask while the person writes something else."""
    remedy = "delegate it without background"
    return AbsentPerson("a task in the background cannot ask", to_approve=remedy, to_clarify=remedy)


class DelegatedTasks:
    """The tasks in the background of one conversation; they end with it, or with an interrupted turn."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks: dict[str, tuple[Task, asyncio.Task[TaskAnswer]]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._awaited: set[str] = set()
        """Tasks whose end the model waits for."""

    @property
    def running(self) -> list[Task]:
        """The tasks that have not ended."""
        return [task for task, work in self._tasks.values() if not work.done()]

    def has(self, id: str) -> bool:
        """Whether there is such a task."""
        return id in self._tasks

    def start(self, requests: Sequence[str]) -> list[str]:
        """Start a task for each request, and return their ids.

        Raises:
            UsageError: too many tasks run.
        """
        if len(self.running) + len(requests) > MOST:
            raise UsageError(
                f"at most {MOST} delegated tasks run at once, and {len(self.running)} do",
                remedy="process with action wait, and then again",
            )
        return [self._start(each) for each in requests]

    def _start(self, request: str) -> str:
        meter = self._context.meter.share() if self._context.meter is not None else None
        task = Task(request, f"task-{len(self._tasks) + 1}", _create_absent_person(), meter)
        work = asyncio.create_task(self._run(task))
        self._tasks[task.id] = task, work
        work.add_done_callback(lambda done: self._tell(task, done))
        return task.id

    async def _run(self, task: Task) -> TaskAnswer:
        async with self._room:
            return await _run_or_describe(task, self._context)

    def _tell(self, task: Task, done: asyncio.Task[TaskAnswer]) -> None:
        if done.cancelled():
            return
        how = "failed" if done.exception() is not None or not done.result().is_answered else "is done"
        self._context.tell(f"{task.id} {how}: {quote(task.title, _SHOWN)}")
        if task.id not in self._awaited:
            self._context.remind(f"The delegated {task.id} {how}. process with action poll returns its last message.")

    async def poll(self, id: str, timeout_s: float = 0) -> Envelope:
        """Return the result of a task, or that it still runs after ``timeout_s``."""
        task, work = self._tasks[id]
        if timeout_s:
            self._awaited.add(id)
            try:
                await asyncio.wait([work], timeout=timeout_s)
            finally:
                self._awaited.discard(id)
        if not work.done():
            return Envelope(ok=True, place=self._context.place, session_id=id, note="running")
        if work.cancelled():
            return failure_envelope(self._context.place, Failure("ended", f"{task.id} was ended before its answer"))
        return await to_envelope([work.result()], self._context, session_id=id)

    async def end(self, id: str) -> None:
        """End a task with all that it runs."""
        await cancel_and_wait([self._tasks[id][1]])

    async def end_all(self) -> list[str]:
        """End all tasks; return a line for each that still ran."""
        running = self.running
        lines = self.list_running()
        await cancel_and_wait([self._tasks[each.id][1] for each in running])
        return lines

    def list_running(self) -> list[str]:
        """Return a line for each task that has not ended."""
        return [f"{each.id}: {quote(each.title, _SHOWN)}" for each in self.running]

    def list_all(self) -> list[str]:
        """Return a line for each task, with its state."""
        states = {id: "running" if not work.done() else "ended" for id, (_, work) in self._tasks.items()}
        return [f"{id} {states[id]}: {quote(task.title, _SHOWN)}" for id, (task, _) in self._tasks.items()]

"""Tools that run in the agent itself: keep a list, ask the person, delegate a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from hermes_exec.errors import Unsupported, UsageError
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.delegated_tasks import AT_ONCE, MOST, Task, run_side_by_side, run_task, to_envelope
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope
from hermes_exec_agent.tools.prepared import PreparedTool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_agent.tools.tool import Context, Tool

HERE = "agent"
"""The location of tools that run in the agent."""
_MOST = 50
_MARKS = {"pending": " ", "in_progress": ">", "completed": "x", "cancelled": "-"}


class Item(BaseModel):
    """One item of the list."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    content: str
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"
    id: SkipJsonSchema[str] = ""  # as in Hermes Agent's tool; not in the schema


class TodoArguments(ToolArguments):
    """Keep a to-do list: send the whole list each time, or nothing to read it."""

    todos: list[Item] = Field([], max_length=_MOST)
    merge: SkipJsonSchema[bool] = False


class Todo(BaseTool[TodoArguments]):
    """Keeps the list of one conversation."""

    name = "todo"
    position = 120
    in_agent = True
    callable_from_scripts = False
    changes = False
    arguments_type = TodoArguments

    def __init__(self) -> None:
        super().__init__()
        self._items: list[Item] = []

    async def run(self, args: TodoArguments, context: Context) -> Envelope:  # noqa: ARG002  it runs in the agent
        """Replace or merge the list, if one is given, and show it."""
        if args.todos:
            self._items = _merge_items(self._items, args.todos) if args.merge else args.todos
        return Envelope(ok=True, place=HERE, output="\n".join(self.list_items()) or "empty")

    def list_items(self) -> list[str]:
        """Return a line for each item."""
        return [f"{number}. [{_MARKS[each.status]}] {each.content}" for number, each in enumerate(self._items, 1)]


def list_todo(tools: Iterable[Tool]) -> list[str]:
    """Return the lines of the to-do list of a conversation with these tools; none before the first call of ``todo``."""
    found = next((each for each in tools if each.spec.name == Todo.name), None)
    tool = found.loaded if isinstance(found, PreparedTool) else found
    return tool.list_items() if isinstance(tool, Todo) else []


def _merge_items(items: list[Item], changes: list[Item]) -> list[Item]:
    """Return the list with ``changes`` applied by id, and new items at its end.

    Raises:
        UsageError: an item has no id of its own.
    """
    places = {item.id: place for place, item in enumerate(items)}
    if not all(each.id for each in [*items, *changes]) or len(places) < len(items):
        raise UsageError(
            "merge needs an id of its own for each item of the list", remedy="send all of it without merge"
        )
    merged = list(items)
    for change in changes:
        if change.id in places:
            values = {key: getattr(change, key) for key in change.model_fields_set}
            merged[places[change.id]] = merged[places[change.id]].model_copy(update=values)
        else:
            places[change.id] = len(merged)
            merged.append(change)
    if len(merged) > _MOST:
        raise UsageError(
            f"the list would have more than {_MOST} items", remedy="send those that are left without merge"
        )
    return merged


class ClarifyArguments(ToolArguments):
    """Ask the person when you cannot go on without an answer."""

    question: str = Field(min_length=1)
    choices: list[str] = Field([], max_length=8)


class Clarify(BaseTool[ClarifyArguments]):
    """Asks the person."""

    name = "clarify"
    position = 130
    in_agent = True
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = ClarifyArguments

    def needs_approval(self, args: ClarifyArguments) -> bool:  # noqa: ARG002  the person answers it
        """A question needs no approval."""
        return False

    async def run(self, args: ClarifyArguments, context: Context) -> Envelope:
        """Ask, and wait for the answer."""
        try:
            answer = await context.person.clarify(args.question, args.choices)
        except Unsupported:
            why = "no person can be asked. Take the most careful choice, and say at the end what you assumed"
            return failure_envelope(HERE, Failure("nobody", why))
        return Envelope(ok=True, place=HERE, output=answer)


class DelegateArguments(ToolArguments):
    """Delegate a task to another agent with the same tools in the same target; you get only its last message."""

    goal: str = ""
    context: str = Field("", description="All that it needs to know; it sees nothing else")
    tasks: list[Annotated[str, Field(min_length=1)]] = Field(
        [],
        max_length=MOST,
        description=f"In place of goal: several, {AT_ONCE} run at once",
    )
    background: bool = Field(False, description="Return at once; the tool process has the results")

    def list_requests(self) -> list[str]:
        """Return the request of each task.

        Raises:
            UsageError: there is no task, or both ``goal`` and ``tasks`` are given.
        """
        if bool(self.goal) == bool(self.tasks):
            raise UsageError("delegate_task takes either goal or tasks", remedy="goal and context for one task")
        return [f"{each}\n\n{self.context}".strip() for each in self.tasks or [self.goal]]


class Delegate(BaseTool[DelegateArguments]):
    """Delegates tasks, each to a conversation of its own, with a budget of its own."""

    name = "delegate_task"
    position = 140
    callable_from_scripts = False
    available_to_delegates = False
    arguments_type = DelegateArguments

    def summary(self, args: DelegateArguments) -> str:
        """Return the goals."""
        return args.goal or "; ".join(args.tasks)

    def needs_approval(self, args: DelegateArguments) -> bool:  # noqa: ARG002  each call of the delegate needs its own
        """Delegating needs no approval, as each call of the other conversation does."""
        return False

    async def run(self, args: DelegateArguments, context: Context) -> Envelope:
        """Wait for the other conversations, or start them; those that are waited for end if this call is cancelled."""
        requests = args.list_requests()
        if args.background:
            ids = context.delegated.start(requests)
            return Envelope(ok=True, place=context.place, output="\n".join(ids), note="started; see the tool process")
        if len(requests) == 1:
            return await to_envelope([await run_task(Task(requests[0]), context)], context)
        tasks = [Task(request, str(number)) for number, request in enumerate(requests, 1)]
        return await to_envelope(await run_side_by_side(tasks, context), context)

"""Questions of a server during a call: text of the model (sampling), and answers of the person (elicitation).

Both are off unless the settings of the server enable them. The model has no tools for them, and reads nothing of the
conversation; its replies count into the budgets of the turn. The person approves each question first.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    TextContent,
)

from hermes_exec.errors import HermesError, Unsupported, UsageError
from hermes_exec_agent.mcp.definitions import PREFIX
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import complete
from hermes_exec_agent.models.wrapped import CountedModel
from hermes_exec_agent.quoting import flatten, quote
from hermes_exec_agent.tools.tool import check_approval, pause_stopwatches

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Mapping
    from contextvars import Context as Variables

    from mcp.client.session import ElicitationFnT, SamplingFnT

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.tools.tool import Context

    Value = str | int | float | bool | list[str] | None

T = TypeVar("T")
MOST_QUESTIONS = 10
"""Questions of a server during one request of the person."""
_MOST_TOKENS = 4000
_LONGEST = 100_000
"""Characters of all messages of one question."""
_MOST_FIELDS = 20
_MOST_CHOICES = 50
_SHOWN = 300
_INSTRUCTIONS = (
    "You write text for another program, a server of tools. You have no tools, and know nothing of any conversation."
)


@dataclass(eq=False, slots=True)
class _Caller:
    """A request of ours, and the questions that the server has before it answers."""

    variables: Variables
    questions: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])


class ServerQuestions:
    """Answers the questions of one server, as its settings and the person allow."""

    def __init__(self, server: str, settings: McpSettings, context: Context) -> None:
        self._server = server
        self._settings = settings
        self._context = context
        self._request = ""
        self._count = 0
        self._callers: list[_Caller] = []
        """Our requests that the server has not answered."""
        self.waiting = 0
        """Questions that are not answered yet, so that a call which takes long is not a failure of the server."""
        self.answered = 0

    @property
    def are_enabled(self) -> bool:
        """Whether the server may ask anything."""
        return self._settings.sampling or self._settings.elicitation

    @property
    def sampling(self) -> SamplingFnT | None:
        """Answers requests for text of the model; None if they are off."""
        return self._sample if self._settings.sampling and self._context.models is not None else None

    @property
    def elicitation(self) -> ElicitationFnT | None:
        """Answers requests for answers of the person; None if they are off."""
        return self._elicit if self._settings.elicitation else None

    @contextmanager
    def allow(self) -> Generator[None]:
        """Let the server ask while it answers a request. At the end, also by a cancellation, questions are withdrawn.

        Otherwise the person's next line, which is meant for the agent, would answer a question of the server.
        """
        caller = _Caller(copy_context())
        self._callers.append(caller)
        try:
            yield
        finally:
            self._callers.remove(caller)
            for question in caller.questions:
                question.cancel()

    @contextmanager
    def _count_waiting(self) -> Generator[None]:
        """Count a question as waiting meanwhile, and then as answered."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting, self.answered = self.waiting - 1, self.answered + 1

    async def _sample(
        self,
        context: object,  # noqa: ARG002  the SDK gives it
        params: CreateMessageRequestParams,
    ) -> CreateMessageResult | ErrorData:
        if refusal := self._count_question():
            return refusal
        try:
            with self._count_waiting():
                return await self._run_for_caller(self._ask_model(params))
        except HermesError as error:
            return ErrorData(code=INVALID_REQUEST, message=flatten(error.what, _SHOWN))

    async def _ask_model(self, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        context = self._context
        messages = _to_messages(params)
        if context.models is None:
            raise Unsupported("there is no model")
        if context.meter is not None and (ended := await context.meter.find_end()):
            return ErrorData(code=INVALID_REQUEST, message=ended)
        text = " / ".join(message.content for message in messages[1:])
        summary = f"have the model write up to {min(params.max_tokens, _MOST_TOKENS)} tokens for it: {text}"
        if no := await check_approval(f"{PREFIX}{self._server}:sampling", summary, context):
            return ErrorData(code=INVALID_REQUEST, message=no.message)
        model: Model = CountedModel(context.models.auxiliary, context.spend)
        reply = await complete(model, messages, max_tokens=max(1, min(params.max_tokens, _MOST_TOKENS)))
        return CreateMessageResult(
            role="assistant",
            content=TextContent(type="text", text=reply.message.content),
            model=reply.model or model.name,
            stop_reason="maxTokens" if reply.finish == "length" else "endTurn",
        )

    async def _elicit(
        self,
        context: object,  # noqa: ARG002  the SDK gives it
        params: ElicitRequestParams,
    ) -> ElicitResult | ErrorData:
        if refusal := self._count_question():
            return refusal
        if not isinstance(params, ElicitRequestFormParams):
            return ElicitResult(action="decline")
        try:
            with self._count_waiting():
                return await self._run_for_caller(self._ask_person(params))
        except UsageError as error:
            self._context.tell(f"the MCP server {self._server} got no answer: {error.what}")
            return ElicitResult(action="decline")
        except HermesError:  # no person can be asked
            return ElicitResult(action="cancel")

    async def _ask_person(self, params: ElicitRequestFormParams) -> ElicitResult:
        schema = cast("Mapping[str, Any]", params.requested_schema)
        if problem := _find_fault(schema):
            raise UsageError(f"its form {problem}")
        with pause_stopwatches():
            return await self._fill_form(params, schema)

    async def _fill_form(self, params: ElicitRequestFormParams, schema: Mapping[str, Any]) -> ElicitResult:
        fields = cast("dict[str, Any]", schema.get("properties", {}))
        required = cast("list[Any]", schema.get("required", []))
        ask = self._context.person.clarify
        question = f"The MCP server {self._server} asks you: {quote(params.message)} What you answer is sent to it."
        answer = "answer"
        if await ask(question, [answer, "decline"]) != answer:
            return ElicitResult(action="decline")
        content: dict[str, Value] = {}
        for name, form in fields.items():
            given = await ask(f"For the MCP server {self._server}: {_describe_field(name, form)}", _list_choices(form))
            value = _parse_value(name, given, form)
            if value is not None:
                content[name] = value
            elif name in required:
                raise UsageError(f"{quote(name)} is required")
        return ElicitResult(action="accept", content=content)

    async def _run_for_caller(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the context of the request that it belongs to, whose time limits pause meanwhile.

        Raises:
            Unsupported: the request has ended before.
        """
        caller = self._callers[-1]
        question = asyncio.create_task(work, context=caller.variables.copy())
        caller.questions.add(question)
        try:
            return await question
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unsupported("the request has ended") from None
        finally:
            caller.questions.discard(question)

    def _count_question(self) -> ErrorData | None:
        """Return why the server may ask no more; None if it may."""
        if not self._callers:
            return ErrorData(code=INVALID_REQUEST, message="a server may ask only while it answers a request")
        if self._request != self._context.request:
            self._request, self._count = self._context.request, 0
        self._count += 1
        if self._count <= MOST_QUESTIONS:
            return None
        return ErrorData(code=INVALID_REQUEST, message=f"a server may ask {MOST_QUESTIONS} questions for one request")


def _to_messages(params: CreateMessageRequestParams) -> list[Message]:
    """Return the messages for the model.

    Raises:
        UsageError: they have another form than text, or are too long.
    """
    system = f"{_INSTRUCTIONS}\n\n{params.system_prompt or ''}".strip()
    messages = [Message("system", system)]
    for each in params.messages:
        parts = each.content if isinstance(each.content, list) else [each.content]
        texts = [part.text for part in parts if isinstance(part, TextContent)]
        if len(texts) < len(parts):
            raise UsageError("only text can be given to the model")
        messages.append(Message(each.role, "\n".join(texts)))
    if len(messages) == 1 or sum(len(each.content) for each in messages) > _LONGEST:
        raise UsageError(f"there is no message, or more than {_LONGEST} characters")
    return messages


def _find_fault(schema: Mapping[str, Any]) -> str:
    """Return why a person cannot be asked for the values of a form; empty if they can."""
    fields: Any = schema.get("properties", {})
    if not isinstance(fields, dict):
        return "is not valid"
    forms = cast("dict[str, Any]", fields).values()
    if len(forms) > _MOST_FIELDS:
        return f"has more than {_MOST_FIELDS} fields"
    for form in forms:
        if not isinstance(form, dict) or not isinstance(form.get("default"), str | int | float | list | None):  # pyright: ignore[reportUnknownMemberType]  JSON
            return "is not valid"
        choices = _list_choices(cast("dict[str, Any]", form))
        if len(choices) > _MOST_CHOICES or any(len(each) > _SHOWN or not each.isprintable() for each in choices):
            return f"has more than {_MOST_CHOICES} choices, or one that cannot be shown"
    return ""


def _describe_field(name: str, form: Mapping[str, Any]) -> str:
    about = form.get("description") or form.get("title") or ""
    kind = form.get("type")
    default = f" Empty: {flatten(str(form['default']), _SHOWN)}." if "default" in form else ""
    return f"{quote(name, _SHOWN)} ({flatten(str(kind), _SHOWN)}): {quote(str(about), _SHOWN)}.{default}"


def _list_choices(form: Mapping[str, Any]) -> list[str]:
    """Return the values of an enumeration; none for a field of any text."""
    if form.get("type") == "boolean":
        return ["true", "false"]
    inner: Any = form.get("items") if form.get("type") == "array" else form
    if not isinstance(inner, dict):
        return []
    found = cast("dict[str, Any]", inner)
    titled = cast("list[Any]", found.get("oneOf") or found.get("anyOf") or [])
    consts = [cast("dict[str, Any]", each).get("const") for each in titled if isinstance(each, dict)]
    values: Any = found.get("enum") or consts
    return [str(each) for each in values] if isinstance(values, list) else []  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]  JSON


def _parse_value(name: str, text: str, form: Mapping[str, Any]) -> Value:
    """Return the value of a field; None if the person left it out.

    Raises:
        UsageError: the text is none.
    """
    text = text.strip()
    if not text:
        return cast("Value", form.get("default"))
    choices, kind = _list_choices(form), form.get("type")
    values = [each.strip() for each in text.split(",")] if kind == "array" else [text]
    try:
        if kind == "boolean":
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        if kind == "integer":
            return int(text)
        if kind == "number":
            return _parse_number(text)
        if choices:
            values = [{each: each for each in choices}[value] for value in values]
    except (KeyError, ValueError):
        raise UsageError(f"{quote(text, _SHOWN)} is not a value of {quote(name, _SHOWN)}") from None
    return values if kind == "array" else values[0]


def _parse_number(text: str) -> float:
    """Return a number that JSON has.

    Raises:
        ValueError: it is none.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number

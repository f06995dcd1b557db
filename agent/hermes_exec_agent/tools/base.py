"""The common part of tools: from the arguments that a model wrote to a call that may be made."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from hermes_exec.errors import HermesError
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.tools.envelope import Envelope, Failure
from hermes_exec_agent.tools.tool import Denied, refusal

if TYPE_CHECKING:
    from hermes_exec_agent.tools.tool import Context

_SHOWN = 80
_COMPLAINTS = 3


class ToolArguments(BaseModel):
    """The arguments of a tool. Its docstring and its fields' descriptions are what a model reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=ToolArguments)


class BaseTool(Generic[A]):
    """A tool whose arguments are a model of pydantic: they are the schema, the check and the type."""

    name: str
    changes: bool = True
    only_reads: bool = False
    """Whether a call cannot even change what the agent keeps, so that one in broken JSON may be repaired."""
    arguments_type: type[ToolArguments]
    tool_set: str = ""
    """The set that a tool of another distribution belongs to; named like the distribution if empty."""
    position: int = 1000
    """Where a model reads it among the tools: smaller numbers first, equal ones by name."""
    callable_from_scripts: bool = True
    """Whether a script of ``execute_code`` may call it; not if it asks a model or a person, which a budget counts."""
    available_to_delegates: bool = True
    """Whether a conversation that a task was delegated to has it, too."""

    def __init__(self) -> None:
        self.spec = ToolSpec(self.name, described(self.arguments_type), schema_of(self.arguments_type))

    @classmethod
    def is_available(cls, context: Context) -> bool:  # noqa: ARG003  most tools are always available
        """Whether the conversation has what this tool needs; a tool that is not available is not offered."""
        return True

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Check the arguments, ask whether it may be done, and do it."""
        try:
            args: Any = self.arguments_type.model_validate(arguments)
        except ValidationError as error:
            return failed("agent", Failure("arguments", complaint(self.name, self.arguments_type, error)))
        try:
            if self.needs_approval(args) and (no := await refusal(self.name, self.summary(args), context)):
                return failed(context.place, no)
            return await self.run(args, context)
        except Denied as error:
            return failed(context.place, Failure("denied", error.what))
        except HermesError as error:
            return failed(context.place, failure_of(error))

    async def run(self, args: A, context: Context) -> Envelope:
        """Do it. A `HermesError` becomes the envelope's failure."""
        raise NotImplementedError

    def needs_approval(self, args: A) -> bool:  # noqa: ARG002  most tools need no look
        """Whether this very call can change something, so that it needs an approval."""
        return self.changes

    def summary(self, args: A) -> str:
        """What a person reads before they approve."""
        return json.dumps(args.model_dump(exclude_defaults=True), ensure_ascii=False)


def failed(place: str, failure: Failure) -> Envelope:
    """A result that is a failure and nothing else."""
    return Envelope(ok=False, place=place, error=failure)


def failure_of(error: HermesError) -> Failure:
    """An error of ours, as a model can act on it."""
    from hermes_exec.errors import Closed, PlaceGone, PlaceUnavailable

    name = type(error).__name__
    kind = "".join(f"_{each.lower()}" if each.isupper() else each for each in name).strip("_")
    again = isinstance(error, PlaceUnavailable) and not isinstance(error, PlaceGone | Closed)
    return Failure(kind, f"{error} ({error.state})", retryable=again)


def described(takes: type[BaseModel]) -> str:
    """A docstring as one paragraph, because a model pays for every blank."""
    return " ".join((takes.__doc__ or "").split())


def schema_of(takes: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a tool's arguments: no titles, no references, no further properties."""
    schema = takes.model_json_schema()
    parts: dict[str, Any] = schema.pop("$defs", {})
    schema.pop("description", None)
    plain: dict[str, Any] = _plain(schema, parts)
    return plain


def _plain(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(each, parts) for each in node]  # pyright: ignore[reportUnknownVariableType]  JSON
    if not isinstance(node, dict):
        return node
    schema = cast("dict[str, Any]", node)
    if "$ref" in schema:
        part = dict(parts[str(schema["$ref"]).rpartition("/")[2]])
        part.pop("description", None)
        return _plain(part, parts)
    plain: dict[str, Any] = {
        key: _plain(value, parts) for key, value in schema.items() if key not in {"title", "properties"}
    }
    if "properties" in schema:
        plain["properties"] = {key: _plain(value, parts) for key, value in schema["properties"].items()}
        plain["additionalProperties"] = False
    return plain


def complaint(name: str, takes: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with the arguments, and what they should be."""
    shown = schema_of(takes)["properties"]
    fields = {field: value for field, value in takes.model_fields.items() if field in shown}
    problems: list[str] = []
    for each in error.errors(include_url=False, include_context=False)[:_COMPLAINTS]:
        where = ".".join(map(str, each["loc"]))
        if each["type"] == "extra_forbidden":
            guess = difflib.get_close_matches(where, list(fields), 1)
            problems.append(
                f"there is no argument {where!r}" + (f" (the nearest one is {guess[0]!r})" if guess else "")
            )
        elif each["type"] == "missing":
            problems.append(f"{where!r} is missing")
        else:
            given = json.dumps(each["input"], default=str)[:_SHOWN]
            problems.append(f"{where!r} is {given}: {each['msg']}" if where else each["msg"])
    takes_what = ", ".join(field if value.is_required() else f"[{field}]" for field, value in fields.items())
    return f"{name}: {'; '.join(problems)}. It takes: {takes_what or 'nothing'}. Nothing was done; call it again"

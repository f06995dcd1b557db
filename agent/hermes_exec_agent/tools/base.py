"""The common part of tools: from the arguments of a model to a call that may run."""

from __future__ import annotations

import difflib
import functools
import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from hermes_exec.errors import HermesError
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope, to_failure
from hermes_exec_agent.tools.prepared import ToolTraits, find_prepared_schema
from hermes_exec_agent.tools.provenance import is_inward
from hermes_exec_agent.tools.tool import ReadDenied, check_approval

if TYPE_CHECKING:
    from hermes_exec_agent.tools.tool import Context

_SHOWN = 80
_OBVIOUS = frozenset({("minLength", 1), ("minimum", 0), ("minimum", 1)})
"""Bounds that a model keeps unasked. They are checked all the same, and each request would pay for their bytes."""
_COMPLAINTS = 3


class ToolArguments(BaseModel):
    """The arguments of a tool. A model reads its docstring, and the descriptions of its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


A = TypeVar("A", bound=ToolArguments)


class BaseTool(ToolTraits, Generic[A]):
    """A tool whose arguments are a pydantic model, which is the schema, the validation and the type."""

    arguments_type: type[ToolArguments]
    in_agent: bool = False
    """Whether it acts in the agent's process and not on the target, so that its failures say ``agent``, too."""

    def __init__(self) -> None:
        self.spec = ToolSpec(self.name, describe(self.arguments_type), find_schema(self.arguments_type))

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Validate the arguments, ask for approval if needed, and run."""
        try:
            args: Any = self.arguments_type.model_validate(arguments)
        except ValidationError as error:
            return failure_envelope(
                "agent", Failure("arguments", describe_errors(self.name, self.arguments_type, error))
            )
        place = "agent" if self.in_agent else context.place
        try:
            if self.needs_approval(args):
                summary, command = self.summary(args), self.find_command(args)
                stays = not context.provenance.strangers or await self.stays_inside(args, context)
                if no := await check_approval(self.name, summary, context, command=command, stays=stays):
                    return failure_envelope(place, no)
            return await self.run(args, context)
        except ReadDenied as error:
            return failure_envelope(place, Failure("denied", error.what))
        except HermesError as error:
            return failure_envelope(place, to_failure(error))

    async def run(self, args: A, context: Context) -> Envelope:
        """Run the call. A `HermesError` becomes the envelope's failure."""
        raise NotImplementedError

    def needs_approval(self, args: A) -> bool:  # noqa: ARG002  most tools decide by their class
        """Whether this call can change something."""
        return self.changes

    async def stays_inside(self, args: A, context: Context) -> bool:  # noqa: ARG002  most tools act on all of a target
        """Whether this call certainly acts in the workspace alone; a target that is not a machine is one as a whole."""
        return is_inward(self.name) or not context.workspace.is_machine

    def find_command(self, args: A) -> str:  # noqa: ARG002  most tools run none
        """Return the shell text that the call runs, which rules for commands cover; empty without any."""
        return ""

    def summary(self, args: A) -> str:
        """Return a description of the call for the person who approves it."""
        return json.dumps(args.model_dump(exclude_defaults=True), ensure_ascii=False)


def describe(takes: type[BaseModel]) -> str:
    """Return the docstring as one paragraph, as a model pays for every character."""
    return " ".join((takes.__doc__ or "").split())


def class_name(takes: type[BaseModel]) -> str:
    """Return the full name of a class of arguments."""
    return f"{takes.__module__}.{takes.__qualname__}"


def find_schema(takes: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, which is not to be changed: the prepared one of our own tools."""
    return find_prepared_schema(class_name(takes)) or build_schema(takes)


@functools.lru_cache(maxsize=512)
def build_schema(takes: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: no titles, no references, no obvious bounds, no further properties.

    It is built once for each class, and not to be changed.
    """
    schema = takes.model_json_schema()
    parts: dict[str, Any] = schema.pop("$defs", {})
    schema.pop("description", None)
    plain: dict[str, Any] = _inline_references(schema, parts)
    return plain


def _inline_references(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline_references(each, parts) for each in node]  # pyright: ignore[reportUnknownVariableType]  JSON
    if not isinstance(node, dict):
        return node
    schema = cast("dict[str, Any]", node)
    if "$ref" in schema:
        part = dict(parts[str(schema["$ref"]).rpartition("/")[2]])
        part.pop("description", None)
        return _inline_references(part, parts)
    plain: dict[str, Any] = {
        key: _inline_references(value, parts)
        for key, value in schema.items()
        if key not in {"title", "properties"} and (isinstance(value, list | dict) or (key, value) not in _OBVIOUS)
    }
    if "properties" in schema:
        plain["properties"] = {key: _inline_references(value, parts) for key, value in schema["properties"].items()}
        plain["additionalProperties"] = False
    return plain


def describe_errors(name: str, takes: type[BaseModel], error: ValidationError) -> str:
    """Describe the errors in the arguments, and the arguments that the tool takes."""
    shown = find_schema(takes)["properties"]
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

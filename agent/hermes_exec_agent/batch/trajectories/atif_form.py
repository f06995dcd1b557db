"""Trajectories in ATIF 1.8, the Agent Trajectory Interchange Format.

Each segment is a document, which names its continuation. The conversations of delegated tasks are embedded in the first
one, and the result of the call that delegated names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.batch.trajectories.message_forms import parse_arguments
from hermes_exec_agent.models.protocol import read_thought
from hermes_exec_agent.runtime.token_record import DamagedTokens, TokenReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_agent.batch.trajectories.reading import RecordedConversation, SegmentMessage, Trajectory
    from hermes_exec_agent.models.call_trace import TokenIds
    from hermes_exec_agent.models.messages import Message, ToolCall
    from hermes_exec_agent.runtime.events.event import Event

_VERSION = "ATIF-v1.8"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_DELEGATE = "delegate_task"


def to_atif(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield a document for each segment."""
    documents = list_documents(trajectory.conversation, trajectory.trial.key, trajectory.trial.model)
    for document in documents:
        document["extra"] = trajectory.describe()
        yield document


def list_documents(conversation: RecordedConversation, id: str, model: str) -> list[dict[str, Any]]:
    """Return a document for each segment of a conversation; ``id`` names the first one."""
    tokens = _read_tokens(conversation)
    names = {child.id: f"{id}/{number}" for number, child in enumerate(conversation.children, 1)}
    started = conversation.events[0].data
    agent: dict[str, Any] = {
        "name": "hermes_exec",
        "version": str(started.get("version") or "unknown"),
        "model_name": str(started.get("model") or model),
        "tool_definitions": list(conversation.schemas),
    }
    segments = conversation.list_segments()
    documents: list[dict[str, Any]] = []
    for number, segment in enumerate(segments, 1):
        steps = _list_steps(segment, conversation, names, tokens)
        document: dict[str, Any] = {
            "schema_version": _VERSION,
            "session_id": conversation.id,
            "trajectory_id": id if number == 1 else f"{id}.{number}",
            "agent": agent,
            "steps": steps,
            "final_metrics": _sum_metrics(steps),
        }
        if number < len(segments):
            document["continued_trajectory_ref"] = f"{id}.{number + 1}"
        documents.append(document)
    embedded = [
        document for child in conversation.children for document in list_documents(child, names[child.id], model)
    ]
    if embedded and documents:
        documents[0]["subagent_trajectories"] = embedded
    return documents


def _list_steps(
    segment: Sequence[SegmentMessage],
    conversation: RecordedConversation,
    names: Mapping[str, str],
    tokens: Mapping[int, TokenIds],
) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    calls: dict[str, ToolCall] = {}
    for each in segment:
        message = each.message
        if message.role == "tool":
            result: dict[str, Any] = {"source_call_id": message.tool_call_id, "content": message.content}
            if children := _find_children(calls.get(message.tool_call_id), conversation):
                result["subagent_trajectory_ref"] = [{"trajectory_id": names[child]} for child in children]
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            continue
        step: dict[str, Any] = {"step_id": len(steps) + 1, "source": _SOURCES[message.role], "message": message.content}
        if each.copied:
            step["is_copied_context"] = True
        if message.role == "assistant":
            calls = {call.id: call for call in message.tool_calls}
            step |= _describe_reply(message, each.event, tokens)
        steps.append(step)
    return steps


def _describe_reply(message: Message, event: Event | None, tokens: Mapping[int, TokenIds]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if message.tool_calls:
        fields["tool_calls"] = [_to_call(call) for call in message.tool_calls]
    if event is None:
        return {**fields, "llm_call_count": 0}
    if thought := read_thought(message.extras):
        fields["reasoning_content"] = thought
    data = event.data
    usage: dict[str, Any] = data.get("usage") or {}
    metrics: dict[str, Any] = {
        "prompt_tokens": usage.get("prompt"),
        "completion_tokens": usage.get("completion"),
        "cached_tokens": usage.get("cached"),
        "cost_usd": usage.get("cost"),
    }
    if (found := tokens.get(event.number)) is not None:
        metrics["prompt_token_ids"] = list(found.prompt)
        metrics["completion_token_ids"] = list(found.completion)
        metrics["logprobs"] = list(found.logprobs)
    fields["metrics"] = {name: value for name, value in metrics.items() if value is not None}
    fields["model_name"] = str(data.get("model") or "unknown")
    fields["timestamp"] = datetime.fromtimestamp(event.at, UTC).isoformat()
    extra = {name: data[name] for name in ("finish", "sampling", "request_id") if data.get(name)}
    return {**fields, "llm_call_count": 1, "extra": extra}


def _to_call(call: ToolCall) -> dict[str, Any]:
    arguments = parse_arguments(call.arguments)
    record: dict[str, Any] = {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}
    return record if arguments or call.arguments.strip() == "{}" else {**record, "extra": {"raw": call.arguments}}


def _find_children(call: ToolCall | None, conversation: RecordedConversation) -> list[str]:
    """Return the ids of the conversations that a call delegated its tasks to; none for other calls."""
    if call is None or call.name != _DELEGATE:
        return []
    arguments = parse_arguments(call.arguments)
    tasks: Any = arguments.get("tasks")
    goals = cast("list[object]", tasks) if isinstance(tasks, list) and tasks else [arguments.get("goal", "")]
    requests = [f"{each}\n\n{arguments.get('context', '')}".strip() for each in goals]
    by_request = {child.request: child.id for child in reversed(conversation.children)}
    return [by_request[each] for each in requests if each in by_request]


def _read_tokens(conversation: RecordedConversation) -> dict[int, TokenIds]:
    """Return the tokens of the calls by the numbers of their events; none from a damaged record on."""
    reader, found = TokenReader(), dict[int, "TokenIds"]()
    for event in conversation.events:
        if record := event.data.get("tokens"):
            try:
                tokens = reader.unpack(record)
            except DamagedTokens:
                return found
            if tokens is not None:
                found[event.number] = tokens
    return found


def _sum_metrics(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    metrics = [step["metrics"] for step in steps if "metrics" in step]
    costs = [each["cost_usd"] for each in metrics if "cost_usd" in each]
    return {
        "total_prompt_tokens": sum(each.get("prompt_tokens", 0) for each in metrics),
        "total_completion_tokens": sum(each.get("completion_tokens", 0) for each in metrics),
        "total_cached_tokens": sum(each.get("cached_tokens", 0) for each in metrics),
        **({"total_cost_usd": sum(costs)} if costs else {}),
        "total_steps": len(steps),
    }

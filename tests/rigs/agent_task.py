"""One task of an agent, from a person's words to the answer: the same in every place, but for the place's name.

The model is a script behind real HTTP, so all of ours takes part: the SDK, the loop, the tools, the terminal.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_exec.testing import Behaviours
from hermes_exec_agent.models import Models, ask
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime.system_prompt import system_prompt
from hermes_exec_agent.tools.tool import Context
from hermes_exec_agent.tools.toolset import create_tools
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import ScriptedEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec_agent.models.protocol import Reply
    from tests.rigs.endpoint import Written

REQUEST = "make a.py return 2, and show it"
ANSWER = "It returns 2."
Step = tuple[str, dict[str, Any], dict[str, Any]]
"""A tool, what it is asked, and its result, in which ``DIR`` is the task's folder and ``JOB`` the process of before."""


def _no(kind: str, why: str) -> dict[str, Any]:
    return {"ok": False, "error": {"type": kind, "message": why, "retryable": False}}


ANYWHERE: list[list[Step]] = [
    [("write_file", {"path": "DIR/a.py", "content": "def one():\n    return 1\n"},
      {"ok": True, "output": "wrote 24 bytes to DIR/a.py"})],
    [("read_file", {"path": "DIR/a.py"}, {"ok": True, "output": "1|def one():\n2|    return 1"}),
     ("read_file", {"path": "DIR/b.py"},
      _no("missing", "cannot read DIR/b.py: No such file or directory (nothing was changed)"))],
    [("patch", {"mode": "replace", "path": "DIR/a.py", "old_string": "return 1", "new_string": "return 2"},
      {"ok": True, "output": "changed DIR/a.py (1 replaced)"})],
    [("terminal", {"command": "pwd; cat a.py; exit 3", "workdir": "DIR"},
      {"ok": False, "output": "DIR\ndef one():\n    return 2\n", "exit_code": 3, "cwd": "DIR"})],
    [("terminal", {"command": "rm DIR/a.py"},
      _no("denied", "the person said no. Do not try the same in another way; ask what they want instead"))],
]  # fmt: skip
WITH_A_GUEST: list[list[Step]] = [
    [("terminal", {"command": "cd DIR && kept=yes"}, {"ok": True, "exit_code": 0, "cwd": "DIR"})],
    [("terminal", {"command": "echo $kept; tail -n 1 a.py"},
      {"ok": True, "output": "yes\n    return 2\n", "exit_code": 0, "cwd": "DIR"})],
    [("search_files", {"pattern": r"return \d"}, {"ok": True, "output": "a.py:2:    return 2"}),
     ("search_files", {"pattern": "*.py", "target": "files"}, {"ok": True, "output": "a.py"})],
    [("execute_code", {"code": "import tools\nprint(tools.read_file('a.py')['output'].count('return'))"},
      {"ok": True, "output": "1\n", "exit_code": 0, "cwd": "DIR", "note": "1 call of tools"})],
    [("terminal", {"command": "cat; echo over", "background": True},
      {"ok": True, "output": "started", "cwd": "DIR", "session_id": "JOB", "note": "see the tool process"})],
    [("process", {"action": "submit", "session_id": "JOB", "data": "typed"}, {"ok": True, "session_id": "JOB"})],
    [("process", {"action": "close", "session_id": "JOB"}, {"ok": True, "session_id": "JOB"})],
    [("process", {"action": "wait", "session_id": "JOB"}, {"ok": True, "session_id": "JOB"})],
    [("process", {"action": "log", "session_id": "JOB"},
      {"ok": True, "output": "typed\nover", "exit_code": 0, "session_id": "JOB", "note": "ended exit code 0"})],
]  # fmt: skip


class Wary:
    """A person who allows all but to remove something."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        return not summary.startswith("rm ")

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        raise NotImplementedError


class AgentTask(Behaviours):
    """For a column of the conformance run: an agent at work in its place."""

    @thorough
    async def test_a_task_of_the_agent_has_the_same_transcript_as_anywhere(
        self, terminal: Terminal, folder: str, tmp_path: Path
    ) -> None:
        steps = [*ANYWHERE, *WITH_A_GUEST] if terminal.capabilities.carrier == "guest" else ANYWHERE
        replies: list[Written] = [_asking(step, folder) for step in steps]
        with EventLog(tmp_path / "log.sqlite") as log, ScriptedEndpoint([*replies, ANSWER]) as rig:
            models = Models(Endpoint("scripted", base_url=rig.url))
            context = Context(terminal, terminal.target, Wary(), "", models=models, delegate=Delegator(models, log))
            conversation = Conversation(models=models, tools=create_tools(context), context=context, log=log)
            try:
                await conversation.begin()
                answer = await conversation.ask(REQUEST)
            finally:
                await context.close()
                await models.close()
        system, request, *said = rig.requests[-1]["messages"]
        assert system["content"] == system_prompt(terminal.target)
        assert request["content"] == REQUEST
        assert _transcript(said, terminal.target, folder) == [
            each for step in steps for each in ([call[:2] for call in step], *(result for _, _, result in step))
        ]
        assert (answer.text, answer.outcome, answer.calls) == (ANSWER, "answered", sum(map(len, steps)))
        assert not rig.complaints


def _asking(step: list[Step], folder: str) -> Callable[[dict[str, Any]], Reply]:
    """What the model says, once it is known which process it is about."""

    def reply(request: dict[str, Any]) -> Reply:
        told = {"DIR": folder, "JOB": _job(request["messages"])}
        return ask(*((name, _replaced(given, told)) for name, given, _ in step))

    return reply


def _transcript(messages: list[dict[str, Any]], target: str, folder: str) -> list[Any]:
    """What was called and what came of it, without what differs from run to run."""
    told = {folder: "DIR", _job(messages) or "JOB": "JOB"}
    calls: dict[str, dict[str, Any]] = {}
    transcript: list[Any] = []
    for message in messages:
        if message["role"] == "assistant":
            calls |= {call["id"]: json.loads(call["function"]["arguments"]) for call in message["tool_calls"]}
            asked = [(call["function"]["name"], calls[call["id"]]) for call in message["tool_calls"]]
            transcript.append([(name, _replaced(given, told)) for name, given in asked])
            continue
        result: dict[str, Any] = json.loads(message["content"])
        result.pop("duration_s", None)
        if calls[message["tool_call_id"]].get("action") in {"submit", "close", "wait"}:
            for news in ("output", "exit_code", "note"):  # which of these says what first is the process's own affair
                result.pop(news, None)
        assert result.pop("backend") == target
        transcript.append(_replaced(result, told))
    return transcript


def _job(messages: list[dict[str, Any]]) -> str:
    """The process that was started in the background."""
    results = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
    return next((result["session_id"] for result in results if "session_id" in result), "")


def _replaced(value: dict[str, Any], words: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(value)
    for word, other in words.items():
        text = text.replace(word, other)
    told: dict[str, Any] = json.loads(text)
    return told

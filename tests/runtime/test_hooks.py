"""Hooks: real scripts at the events of real conversations, with the user's own configuration."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.files import parse_file
from hermes_exec.config.settings import HookSettings, Origin
from hermes_exec.errors import ConfigError
from hermes_exec_agent.errors import ContextTooLong, HookRefused
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.models.messages import ToolCall
from hermes_exec_agent.runtime import Conversation, open_conversation
from hermes_exec_agent.runtime import hooks as hooks_module
from hermes_exec_agent.runtime.hooks import LIMIT_S, MOST_STOPS, ConversationHooks
from hermes_exec_agent.tools.dispatch import perform
from hermes_exec_agent.tools.tool import Approvals, Context
from tests.rigs.bounded import PATIENCE_S, until, within
from tests.runtime.conftest import Nobody, shell

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.models.scripted import ScriptEntry
    from hermes_exec_agent.runtime.events import EventLog

    Talk = Callable[..., AbstractAsyncContextManager[Conversation]]

RAN = ask(("terminal", {"command": "echo ran > ran"}))


class Hooks:
    """Writes scripts and the configuration that names them, and collects the lines that the person is shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: list[str] = []
        self._tables: list[str] = []

    def add(self, event: str, script: str, matcher: str = "") -> None:
        path = self.folder / f"hook-{len(self._tables)}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        match = f"matcher = {json.dumps(matcher)}\n" if matcher else ""
        self._tables.append(f'[[agent.hooks]]\nevent = "{event}"\ncommand = {json.dumps(str(path))}\n{match}')
        own = self.folder / "config" / "hermes_exec"
        own.mkdir(parents=True, exist_ok=True)
        (own / "hermes.toml").write_text("[agent]\nproject_files = false\n" + "".join(self._tables))

    def save(self, event: str, name: str) -> None:
        """Add a hook that appends its input to a file."""
        self.add(event, f"cat >> {self.folder}/{name}; echo >> {self.folder}/{name}")

    def read(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return Hooks(tmp_path)


@pytest.fixture
def hold(hooks: Hooks, log: EventLog, tmp_path: Path) -> Talk:
    @asynccontextmanager
    async def holding(replies: Sequence[ScriptEntry] | ScriptedModel, **more: Any) -> AsyncGenerator[Conversation]:
        model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies)
        async with open_conversation(
            "local", models=Models(model), person=Nobody(), log=log, tools=more.pop("tools", [shell()]),
            cwd=str(tmp_path), approvals=Approvals("allow"), tell=hooks.shown.append, **more,
        ) as conversation:  # fmt: skip
            yield conversation

    return holding


def results(conversation: Conversation) -> list[dict[str, Any]]:
    return [json.loads(message.content) for message in conversation.messages if message.role == "tool"]


def refusal(conversation: Conversation) -> str:
    (result,) = results(conversation)
    assert not result["ok"]
    assert result["error"]["type"] == "denied"
    return str(result["error"]["message"])


class TestTheShape:
    def test_each_event_has_the_fields_of_its_kind(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        events = ("session-start", "user-prompt", "pre-tool", "post-tool", "stop", "session-end")
        for event in events:
            hooks.save(event, "all")

        async def work() -> str:
            async with hold([ask(("terminal", {"command": "echo hello"})), say("done")]) as conversation:
                await conversation.ask("greet me")
                return conversation.id

        id = within(PATIENCE_S)(work())
        found = hooks.read("all")
        assert [each["hook_event_name"] for each in found] == [
            "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
        ]  # fmt: skip
        assert {(each["session_id"], each["cwd"], each["target"]) for each in found} == {(id, str(tmp_path), "local")}
        start, prompt, before, after, stop, end = found
        assert start["source"] == "startup"
        assert prompt["prompt"] == "greet me"
        assert (before["tool_name"], before["tool_input"]) == ("terminal", {"command": "echo hello"})
        assert after["tool_response"]["output"] == "hello\n"
        assert stop["stop_hook_active"] is False
        assert stop["last_assistant_message"] == "done"
        assert end["reason"] == "other"

    def test_a_matcher_is_for_the_whole_name(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        hooks.add("pre-tool", "exit 2", "term|terminal2")

        async def work() -> None:
            async with hold([RAN, say("done")]) as conversation:
                await conversation.ask("go")

        within(PATIENCE_S)(work())
        assert (tmp_path / "ran").exists()

    def test_a_resumed_conversation_says_so(self, hooks: Hooks, hold: Talk) -> None:
        hooks.save("session-start", "starts")

        async def work() -> None:
            async with hold([say("one")]) as conversation:
                await conversation.ask("go")
            async with hold([], resume=conversation.id):
                pass

        within(PATIENCE_S)(work())
        assert [each["source"] for each in hooks.read("starts")] == ["startup", "resume"]

    def test_a_secret_is_in_neither_the_environment_nor_the_input(
        self, hooks: Hooks, hold: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
        monkeypatch.setenv("GITHUB_TOKEN", "ghp-very-secret-token")
        hooks.add("user-prompt", f"env > {tmp_path}/environment")

        async def work() -> None:
            async with hold([say("done")]) as conversation:
                await conversation.ask("go")

        within(PATIENCE_S)(work())
        assert "PATH=" in (tmp_path / "environment").read_text()
        assert "very-secret" not in (tmp_path / "environment").read_text()


class TestBlocking:
    @pytest.mark.parametrize(
        "script",
        [
            "echo not today >&2; exit 2",
            """echo '{"decision": "block", "reason": "not today"}'""",
            """echo '{"continue": false, "stopReason": "not today"}'""",
            """echo '{"hookSpecificOutput": {"permissionDecision": "deny",
            "permissionDecisionReason": "not today"}}'""",
        ],
    )
    def test_a_call_is_blocked_with_the_reason(self, hooks: Hooks, hold: Talk, script: str, tmp_path: Path) -> None:
        hooks.add("pre-tool", script, "terminal")
        hooks.save("post-tool", "after")

        async def work() -> str:
            async with hold([RAN, say("done")]) as conversation:
                await conversation.ask("go")
                return refusal(conversation)

        assert "not today" in within(PATIENCE_S)(work())
        assert not (tmp_path / "ran").exists()
        assert not (tmp_path / "after").exists()

    def test_one_objection_of_several_hooks_is_enough(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        hooks.add("pre-tool", "exit 0")
        hooks.add("pre-tool", """echo '{"hookSpecificOutput": {"permissionDecision": "allow"}}'""")
        hooks.add("pre-tool", "echo stop >&2; exit 2", "*")

        async def work() -> str:
            async with hold([RAN, say("done")]) as conversation:
                await conversation.ask("go")
                return refusal(conversation)

        assert "stop" in within(PATIENCE_S)(work())
        assert not (tmp_path / "ran").exists()

    def test_no_answer_of_a_hook_replaces_an_approval(self, hooks: Hooks, tmp_path: Path) -> None:
        hooks.add("pre-tool", """echo '{"hookSpecificOutput": {"permissionDecision": "ask"}}'""")
        settings = parse_file((tmp_path / "config/hermes_exec/hermes.toml").read_bytes(), Path("/x.toml"), USER)

        async def work() -> str:
            import hermes_exec

            async with hermes_exec.open("local") as terminal:
                own = ConversationHooks(settings.agent.hooks)
                context = Context(terminal, "local", Nobody(), "c", approvals=Approvals("allow"), hooks=own)
                try:
                    envelope = await perform([shell()], ToolCall("1", "terminal", '{"command": "true"}'), context)
                finally:
                    await own.close()
                assert envelope.error is not None
                return envelope.error.message

        assert "approval" in within(PATIENCE_S)(work())

    def test_a_blocked_request_reaches_no_model_and_no_record(self, hooks: Hooks, hold: Talk, log: EventLog) -> None:
        hooks.add("user-prompt", "grep -q forbidden && { echo no such words >&2; exit 2; }; exit 0")
        model = ScriptedModel([say("fine")])

        async def work() -> list[str]:
            async with hold(model) as conversation:
                with pytest.raises(HookRefused, match="no such words"):
                    await conversation.ask("a forbidden request")
                await conversation.ask("another")
                return [event.kind for event in log.events(conversation.id)]

        assert within(PATIENCE_S)(work()).count("user") == 1
        assert len(model.requests) == 1

    def test_a_blocked_stop_lets_the_turn_go_on_with_the_reason(self, hooks: Hooks, hold: Talk) -> None:
        hooks.add("stop", """grep -q '"stop_hook_active": true' || { echo run the tests first >&2; exit 2; }""")
        model = ScriptedModel([say("done"), say("tested")])

        async def work() -> str:
            async with hold(model) as conversation:
                return str((await conversation.ask("go")).text)

        assert within(PATIENCE_S)(work()) == "tested"
        assert "run the tests first" in model.requests[1].messages[-1].content

    def test_a_stop_that_is_always_blocked_ends(self, hooks: Hooks, hold: Talk) -> None:
        hooks.add("stop", "exit 2")
        model = ScriptedModel([say("done")] * (MOST_STOPS + 1))

        async def work() -> str:
            async with hold(model) as conversation:
                return str((await conversation.ask("go")).outcome)

        assert within(PATIENCE_S)(work()) == "answered"
        assert len(model.requests) == MOST_STOPS + 1

    def test_a_blocked_compaction_changes_nothing(self, hooks: Hooks, hold: Talk) -> None:
        hooks.save("pre-compact", "compactions")
        hooks.add("pre-compact", "echo keep it all >&2; exit 2")

        async def work() -> bool:
            async with hold([say("x" * 4000), say("y")]) as conversation:
                await conversation.ask("go")
                return await conversation.compact()

        assert within(PATIENCE_S)(work()) is False
        assert [each["trigger"] for each in hooks.read("compactions")] == ["manual"]

    def test_a_conversation_that_may_not_be_shortened_fails_if_it_is_too_long(self, hooks: Hooks, hold: Talk) -> None:
        hooks.add("pre-compact", "exit 2")

        async def work() -> None:
            async with hold([say("x" * 4000), ContextTooLong("too long", window=100)]) as conversation:
                await conversation.ask("go")
                await conversation.ask("on")

        with pytest.raises(ContextTooLong):
            within(PATIENCE_S)(work())

    def test_calls_of_a_delegated_task_are_blocked_too(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        hooks.add("pre-tool", "echo not here >&2; exit 2", "terminal")
        model = ScriptedModel([ask(("delegate_task", {"task": "touch it"})), RAN, say("it was refused"), say("done")])

        async def work() -> None:
            async with hold(model, tools=None) as conversation:
                await conversation.ask("go")

        within(PATIENCE_S)(work())
        assert "not here" in model.requests[2].messages[-1].content
        assert not (tmp_path / "ran").exists()


class TestTextForTheModel:
    def test_printed_text_goes_with_the_request(self, hooks: Hooks, hold: Talk) -> None:
        hooks.add("session-start", "echo the branch is main")
        hooks.add("user-prompt", """echo '{"hookSpecificOutput": {"additionalContext": "it is Monday"}}'""")
        model = ScriptedModel([say("done"), say("done")])

        async def work() -> None:
            async with hold(model) as conversation:
                await conversation.ask("go")
                await conversation.ask("on")

        within(PATIENCE_S)(work())
        first, second = (request.messages[-1].content for request in model.requests)
        assert "the branch is main" in first
        assert "it is Monday" in first
        assert "the branch is main" not in second

    def test_an_objection_after_a_call_is_a_note_of_its_result(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        hooks.add("post-tool", "echo format the file >&2; exit 2")

        async def work() -> dict[str, Any]:
            async with hold([RAN, say("done")]) as conversation:
                await conversation.ask("go")
                return results(conversation)[0]

        result = within(PATIENCE_S)(work())
        assert result["ok"]
        assert "format the file" in result["note"]
        assert (tmp_path / "ran").exists()


UP = "up() { read -r _ _ _ parent _ < /proc/$1/stat; echo $parent; }"
FAILURES = {
    "an exit code": ("echo broken >&2; exit 1", "exit code 1: broken"),
    "a signal": ("kill -9 $$", "exit code 137"),
    "no program": ("exec /nonexistent/program", "exit code 127"),
    "garbage": ("head -c 1000 /dev/urandom", "neither empty nor a JSON object"),
    "half an object": ("""printf '{"decision": "blo'""", "neither empty nor a JSON object"),
    "a list": ("echo '[1]'", "no object"),
    "deep nesting": ("yes '[' | head -n 20000", "neither empty nor a JSON object"),
    "megabytes": ("yes no | head -c 5000000", "more than 64 KiB"),
    "an unknown decision": ("""echo '{"decision": "blocked"}'""", "its decision is unknown"),
    "the end of its runner": (f"{UP}; kill -9 $(up $PPID); sleep 5", "signal 9"),
    "the end of its terminal": (f"{UP}; kill -9 $(up $(up $PPID)); sleep 5", "no known outcome"),
}


class TestFailures:
    @pytest.mark.parametrize(("script", "reason"), FAILURES.values(), ids=FAILURES)
    def test_a_call_is_refused_if_its_hook_fails(
        self, hooks: Hooks, hold: Talk, script: str, reason: str, tmp_path: Path
    ) -> None:
        hooks.add("pre-tool", script)

        async def work() -> str:
            async with hold([RAN, say("done")]) as conversation:
                await conversation.ask("go")
                return refusal(conversation)

        assert reason in within(PATIENCE_S)(work())
        assert any(reason in line for line in hooks.shown)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("script", [script for script, _ in FAILURES.values()], ids=FAILURES)
    @pytest.mark.parametrize("event", ["post-tool", "stop"])
    def test_elsewhere_it_objects_to_nothing_and_is_shown(
        self, hooks: Hooks, hold: Talk, event: str, script: str, tmp_path: Path
    ) -> None:
        hooks.add(event, script)

        async def work() -> str:
            async with hold([RAN, say("done")]) as conversation:
                return str((await conversation.ask("go")).outcome)

        assert within(PATIENCE_S)(work()) == "answered"
        assert any(line.startswith(f"hook {event}: the hook") and "failed" in line for line in hooks.shown)
        assert (tmp_path / "ran").exists()

    def test_the_next_hook_runs_after_one_ended_its_terminal(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        hooks.add("pre-tool", f"test -e tried && exit 0; touch tried; {UP}; kill -9 $(up $(up $PPID)); sleep 5")

        async def work() -> list[bool]:
            async with hold([RAN, RAN, say("done")]) as conversation:
                await conversation.ask("go")
                return [each["ok"] for each in results(conversation)]

        assert within(PATIENCE_S)(work()) == [False, True]


class TestTime:
    @pytest.fixture(autouse=True)
    def limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A limit that a test can wait for."""

        def create(configured: Sequence[HookSettings]) -> ConversationHooks:
            return ConversationHooks(configured, limit_s=1.0)

        monkeypatch.setattr(hooks_module, "ConversationHooks", create)

    def test_the_limit_is_ten_seconds(self) -> None:
        assert LIMIT_S == 10.0

    @pytest.mark.parametrize(
        "script",
        [
            "sleep 600 & echo $! > sleeper; wait",
            "setsid sleep 600 & echo $! > sleeper; wait",
            "trap '' TERM INT HUP; (setsid sh -c 'echo $$ > sleeper; exec sleep 600' &); sleep 600",
            "sleep 600 & echo $! > sleeper; while :; do echo more; done",
        ],
    )
    def test_a_hook_at_its_limit_ends_with_all_its_children(
        self, hooks: Hooks, hold: Talk, script: str, tmp_path: Path
    ) -> None:
        hooks.add("pre-tool", script)

        async def work() -> str:
            async with hold([RAN, say("done")]) as conversation:
                began = time.monotonic()
                await conversation.ask("go")
                assert time.monotonic() - began < 30
                await until(lambda: not is_running(tmp_path / "sleeper"))
                return refusal(conversation)

        assert "it was ended after" in within(PATIENCE_S)(work())
        assert not (tmp_path / "ran").exists()

    def test_what_a_hook_left_in_the_background_ends_with_the_conversation(
        self, hooks: Hooks, hold: Talk, tmp_path: Path
    ) -> None:
        hooks.add("user-prompt", "setsid sleep 600 > /dev/null 2>&1 & echo $! > sleeper")

        async def work() -> None:
            async with hold([say("done")]) as conversation:
                await conversation.ask("go")
                assert is_running(tmp_path / "sleeper")
            await until(lambda: not is_running(tmp_path / "sleeper"))

        within(PATIENCE_S)(work())

    def test_an_interrupted_turn_ends_its_hook(self, hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
        hooks.add("user-prompt", "echo $$ > sleeper; exec sleep 600")

        async def work() -> None:
            async with hold([say("done")]) as conversation:
                asking = asyncio.create_task(conversation.ask("go"))
                await until(lambda: (tmp_path / "sleeper").exists() and is_running(tmp_path / "sleeper"))
                conversation.interrupt()
                assert (await asking).outcome == "interrupted"
                await until(lambda: not is_running(tmp_path / "sleeper"))

        within(PATIENCE_S)(work())


def is_running(file: Path) -> bool:
    pid = file.read_text().strip()
    try:
        os.kill(int(pid), 0)
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except (OSError, ValueError):
        return False


USER, PROJECT = Origin("user", "hermes.toml"), Origin("project", "hermes.toml")


class TestConfiguration:
    def test_a_projects_file_has_no_hooks(self) -> None:
        text = b'[[agent.hooks]]\nevent = "stop"\ncommand = "true"\n'
        with pytest.raises(ConfigError, match="belongs in your own file"):
            parse_file(text, Path("/p/hermes.toml"), PROJECT)

    @pytest.mark.parametrize(
        ("table", "reason"),
        [
            ('event = "pre-tool"\ncommand = "true"\nmatcher = "("', "not a regular expression"),
            ('event = "stop"\ncommand = "true"\nmatcher = "x"', "has no matcher"),
            ('event = "PreToolUse"\ncommand = "true"', "event"),
            ('event = "stop"\ncommand = ""', "command"),
            ('event = "stop"', "command"),
        ],
    )
    def test_a_wrong_table_is_named(self, table: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=reason):
            parse_file(f"[[agent.hooks]]\n{table}\n".encode(), Path("/hermes.toml"), USER)


def test_a_hook_outlives_the_folder_of_the_agent(hooks: Hooks, hold: Talk, tmp_path: Path) -> None:
    (folder := tmp_path / "start").mkdir()
    os.chdir(folder)
    hooks.add("pre-tool", "exit 0")

    async def work() -> list[dict[str, Any]]:
        calls = [ask(("terminal", {"command": f"rmdir {folder}"})), ask(("terminal", {"command": "true"})), say("done")]
        async with hold(calls) as conversation:
            await conversation.ask("go")
            return results(conversation)

    first, second = within(PATIENCE_S)(work())
    os.chdir(tmp_path)
    assert first["ok"]
    assert not second["ok"]  # it fails closed, and the conversation goes on

"""Trajectories of trials: what is captured, and the forms in which it is exported."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import atif
import pytest

from hermes_exec_agent.batch.run_folder import PREPAID, RunFolder
from hermes_exec_agent.batch.trajectories.message_forms import to_openai
from hermes_exec_agent.batch.trajectories.reading import RecordedConversation, Selection, TrajectoryReader
from hermes_exec_agent.batch.trajectories.token_form import find_cause
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime.token_record import TokenReader
from tests.rigs.batches import BatchPerson, read_state
from tests.rigs.endpoint import KEY, ScriptedEndpoint
from tests.rigs.tokens import ChatTokenizer, load_tokenizer, render
from tests.runtime.conftest import log, talk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.conftest import Talk

__all__ = ["log", "talk"]

TASKS = [
    {"id": "greet", "instruction": "Write hello into the file out.", "check": "grep -q hello out"},
    {"id": "fail", "instruction": "Write bye into the file out.", "check": "grep -q bye out"},
]
THOUGHT = "The person wants a file, so that a command is due."


def work(body: dict[str, Any]) -> Reply:
    """Think and run a command for a request, and end after its result."""
    if body["messages"][-1]["role"] == "user":
        call = ToolCall(f"call_{len(body['messages'])}", "terminal", json.dumps({"command": "echo hello > out"}))
        return Reply(Message("assistant", "", (call,), extras={"reasoning_content": THOUGHT}), "tool_calls")
    return say("Done: the file has its word.")


class Trials:
    """A run of the tasks with an endpoint, and its exports."""

    def __init__(self, home: Path, tokenizer: ChatTokenizer | None, *argv: str, answer: Any = work) -> None:
        self.person = BatchPerson(home, OPENAI_API_KEY=KEY, DEFAULT_MODEL="m", LLM_PROVIDER="custom")
        self.person.write_tasks(TASKS)
        (home / ".config/hermes_exec").mkdir(parents=True)
        with ScriptedEndpoint([answer], forever=True, tokens=tokenizer) as endpoint:
            table = f'[models.main]\nbase_url = "{endpoint.url}"\ntemperature = 0.7\nseed = 3\nattempts = 1\n'
            (home / ".config/hermes_exec/hermes.toml").write_text(table)
            self.done = self.person.run("run", "tasks.jsonl", "--into", "r", *argv)
            self.requests = endpoint.requests

    def export(self, form: str, *argv: str) -> list[dict[str, Any]]:
        done = self.person.run("export", "r", "--as", form, *argv)
        assert done.returncode == 0, done.stderr
        self.said = done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"), ChatTokenizer(), "--capture", "tokens")


def test_a_row_of_tokens_is_what_the_tokenizer_and_the_model_made(trials: Trials) -> None:
    assert trials.done.returncode == 0, trials.done.stderr
    rows = trials.export("tokens")
    assert [(row["task"], row["reward"], row["row"], row["calls"]) for row in rows] == [
        ("greet", 1.0, 1, 2), ("fail", 0.0, 1, 2),
    ]  # fmt: skip
    assert "breaks" not in trials.said
    tokenizer = ChatTokenizer()
    for row in rows:
        (instruction,) = [str(task["instruction"]) for task in TASKS if task["id"] == row["task"]]
        own = [each for each in trials.requests if each["messages"][1]["content"].startswith(instruction)]
        last = own[-1]
        messages = [*last["messages"], work(last).message.to_wire()]
        prompt = tokenizer.list_prompt(messages)
        opening = len(tokenizer.encode("<|im_start|>assistant\n"))
        assert len(row["ids"]) == len(row["mask"]) == len(row["logprobs"])
        assert load_tokenizer().decode(row["ids"]) == load_tokenizer().decode(prompt[:-opening])
        sampled = [id for id, is_sampled in zip(row["ids"], row["mask"], strict=True) if is_sampled]
        written = [render(each).partition("\n")[2] for each in messages if each["role"] == "assistant"]
        assert load_tokenizer().decode(sampled) == "".join(written)
        pairs = zip(row["mask"], row["logprobs"], strict=True)
        assert all(is_sampled or logprob == 0.0 for is_sampled, logprob in pairs)


def test_requests_are_whole_and_their_settings_are_recorded(trials: Trials) -> None:
    assert {(each.get("stream", False), each["temperature"], each["seed"]) for each in trials.requests} == {
        (False, 0.7, 3)
    }
    (document,) = trials.export("atif", "--min-reward", "1")
    first = next(step for step in document["steps"] if step["source"] == "agent")
    assert first["extra"]["sampling"] == {"temperature": 0.7, "seed": 3}
    assert first["extra"]["request_id"].startswith("req-")
    assert first["reasoning_content"] == THOUGHT
    assert len(first["metrics"]["completion_token_ids"]) == len(first["metrics"]["logprobs"])


def test_all_forms_have_the_same_conversations_in_one_order(trials: Trials) -> None:
    documents = [atif.Trajectory.model_validate(each) for each in trials.export("atif")]
    assert [(each.steps[-1].message, each.agent.tool_definitions is not None) for each in documents] == [
        ("Done: the file has its word.", True)
    ] * 2
    rows = trials.export("openai")
    assert [row["task"] for row in rows] == ["greet", "fail"]
    assert {name for row in rows for name in row} == {*rows[0]}
    roles = [(each["role"], each.get("weight")) for each in rows[0]["messages"]]
    assert roles == [("system", None), ("user", None), ("assistant", 1), ("tool", None), ("assistant", 1)]
    assert json.loads(rows[0]["tools"])[0]["function"]["name"] == "terminal"
    (row,) = trials.export("sharegpt", "--min-reward", "0.5")
    assert [each["from"] for each in row["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]
    text = row["conversations"][2]["value"]
    assert text.startswith(f"<think>\n{THOUGHT}\n</think>")
    call = json.loads(text.partition("<tool_call>\n")[2].partition("\n</tool_call>")[0])
    assert call == {"name": "terminal", "arguments": {"command": "echo hello > out"}}
    assert "1 with a lower reward" in trials.said
    assert trials.export("openai", "--model", "other") == []
    assert trials.export("openai", "--end", "stopped") == []


def test_a_function_scores_the_trials_again(trials: Trials) -> None:
    source = (
        "def short(trial):\n"
        "    if trial['task']['id'] == 'fail':\n        return float('nan')\n"
        "    return {'reward': 0.25, 'messages': len(trial['messages'])}\n"
    )
    (trials.person.home / "rewards.py").write_text(source)
    done = trials.person.run("regrade", "r", "--reward", "rewards.py:short")
    assert (done.returncode, "1 rewards named short, mean 0.250, 1 failed" in done.stderr) == (1, True), done.stderr
    assert "nan is not a finite number" in done.stderr
    (row,) = trials.export("tokens", "--rewards", "short")
    assert (row["task"], row["reward"]) == ("greet", 0.25)
    assert [row["reward"] for row in trials.export("tokens")] == [1.0, 0.0]
    for argv, why in (
        (("--reward", "rewards.py:short"), "there already"),
        (("--reward", "rewards.py:none"), "cannot be loaded"),
        (("--reward", "rewards"), "names no function"),
        (("--reward", "rewards.py:short", "--name", "../x"), "not a name of rewards"),
    ):
        done = trials.person.run("regrade", "r", *argv)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("tokenizer", "cause"),
    [(ChatTokenizer(thoughts=False), "template"), (ChatTokenizer(as_text=True), "retokenisation")],
)
def test_a_prompt_with_other_ids_begins_a_row(tmp_path: Path, tokenizer: ChatTokenizer, cause: str) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if cause == "template":
            return work(body)
        calls = ask(("terminal", {"command": "true"}), text="Done so far. ")
        return calls if body["messages"][-1]["role"] == "user" else say("Yes.")

    trials = Trials(tmp_path, tokenizer, "--capture", "tokens", answer=answer)
    rows = trials.export("tokens", "--end", "answered")
    assert [row["row"] for row in rows] == [1, 2, 1, 2], trials.said
    assert f"breaks: 2 {cause}" in trials.said


def test_missing_ids_fail_the_trial_and_are_not_made_up(tmp_path: Path) -> None:
    trials = Trials(tmp_path, ChatTokenizer(forget=True), "--capture", "tokens", "--attempts", "1")
    assert trials.done.returncode == 1
    (row, _) = [json.loads(line) for line in trials.person.run("export", "r").stdout.splitlines()]
    assert (row["state"], row["failure"], row["reward"]) == ("failed", "model", None)
    assert "the reply has no prompt_token_ids" in row["reason"]


def test_a_trajectory_with_a_secret_is_left_out(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if body["messages"][-1]["role"] == "user":
            return ask(("terminal", {"command": f"echo {KEY} > out; echo hello >> out"}))
        return say("Done.")

    trials = Trials(tmp_path, ChatTokenizer(), "--capture", "tokens", answer=answer)
    for form in ("tokens", "openai", "sharegpt", "atif"):
        assert trials.export(form) == []
        assert "2 with a secret" in trials.said
    path = next((tmp_path / "r/shards").glob("*/conversations.sqlite"))
    assert KEY.encode() not in path.read_bytes()
    with EventLog(path) as log:
        events = [each for id in log.conversations() for each in log.events(id.id) if each.kind == "assistant"]
        assert [each.data["tokens"].get("redacted") for each in events][:1] == [True]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> BatchPerson:
    person = BatchPerson(tmp_path_factory.mktemp("scripted"))
    person.write_tasks(TASKS)
    assert person.run("run", "tasks.jsonl", "--model", person.write_replies("true"), "--into", "r").returncode == 0
    return person


def test_scripted_trials_are_exported_only_if_asked_for(scripted: BatchPerson) -> None:
    person = scripted
    done = person.run("export", "r", "--as", "openai")
    assert (done.stdout, "2 scripted" in done.stderr) == ("", True)
    assert len(person.run("export", "r", "--as", "openai", "--scripted").stdout.splitlines()) == 2
    assert person.run("export", "r", "--scripted").returncode == 2


@pytest.mark.parametrize("data", ["{}", "[1]", "no JSON", '{"message": 5, "tool_calls": "x", "content": 7}'])
def test_a_forged_record_of_a_sandbox_leaves_out_its_trial_alone(scripted: BatchPerson, data: str) -> None:
    folder = RunFolder(scripted.home / "r")
    (path,) = folder.path.glob("shards/s*/conversations.sqlite")
    (path.parent / PREPAID).touch()
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("DROP TRIGGER IF EXISTS nothing_changes")
        forged = (data, f"{folder.trials[0].key}.1")
        base.execute("UPDATE events SET data = ? WHERE conversation = ? AND kind != 'started'", forged)
        base.commit()
    with TrajectoryReader(folder, read_state(folder.path), Selection(scripted=True), str) as reader:
        rows = [row for each in reader.read() for row in reader.convert(each, to_openai)]
    assert [row["key"] for row in rows] == [folder.trials[1].key]
    assert reader.left_out == {"with a damaged record": 1}


def test_a_delegated_task_is_embedded(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks(TASKS[:1])
    replies = [
        {"tool_calls": [{"name": "delegate_task", "arguments": {"goal": "Write it.", "context": "Into out."}}]},
        {"tool_calls": [{"name": "terminal", "arguments": {"command": "echo hello > out"}}]},
        {"content": "Written."},
        {"content": "Done."},
    ]
    (tmp_path / "replies.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in replies))
    tools = ("--tool", "delegate_task", "--tool", "terminal")
    done = person.run("run", "tasks.jsonl", "--model", "replay:replies.jsonl", *tools, "--into", "r")
    assert done.returncode == 0, done.stderr
    document = json.loads(person.run("export", "r", "--as", "atif", "--scripted").stdout)
    trajectory = atif.Trajectory.model_validate(document)
    (child,) = trajectory.subagent_trajectories or []
    assert child.steps[-1].message == "Written."
    results = [each for step in trajectory.steps if step.observation for each in step.observation.results]
    assert [ref.trajectory_id for ref in results[0].subagent_trajectory_ref or ()] == [child.trajectory_id]


def test_a_compaction_begins_a_segment_whose_beginning_is_marked(talk: Talk, log: EventLog) -> None:
    async def whole() -> str:
        async with talk([*(say(f"{number} " + "word " * 400) for number in range(6)), "In short.", "On."]) as one:
            for number in range(6):
                await one.ask(f"request {number}")
            assert await one.compact()
            await one.ask("go on")
            return one.id

    id = asyncio.run(whole())
    first, second = RecordedConversation(id, log.events(id), ()).list_segments()
    assert [each.message.content[:1] for each in first if each.event] == ["0", "1", "2", "3", "4", "5"]
    assert [each.message.content for each in second if not each.copied] == ["go on", "On."]
    assert sum(each.copied for each in second) > 1


def test_the_cause_of_a_break_is_told_by_the_ids_that_differ() -> None:
    encode = load_tokenizer().encode
    prompt = encode("The terminal runs commands in the target of a conversation.")
    split = [*encode("The ter"), *encode("minal runs commands in the target of a conversation.")]
    assert split != prompt
    assert find_cause(split, prompt) == "retokenisation"
    longer = encode(f"The <think>{THOUGHT * 3}</think>terminal runs commands in the target of a conversation.")
    assert find_cause(longer, prompt) == "template"


def test_records_are_small_and_damaged_ones_are_refused(trials: Trials) -> None:
    path = next((trials.person.home / "r/shards").glob("*/conversations.sqlite"))
    with EventLog(path) as log:
        id = log.conversations()[0].id
        records = [each.data["tokens"] for each in log.events(id) if each.kind == "assistant"]
    first, second = (TokenReader(), TokenReader())
    tokens = [first.unpack(each) for each in records]
    assert tokens[1] is not None
    assert tokens[0] is not None
    assert records[1]["shared"] == len(tokens[0].prompt) + len(tokens[0].completion)
    with pytest.raises(ValueError, match="shared"):
        second.unpack(records[1])

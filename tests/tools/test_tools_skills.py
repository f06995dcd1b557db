"""Skills in a conversation: seen, run, made and changed by calls alone."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import HermesError
from hermes_exec_agent.models.catalog import Models
from hermes_exec_agent.models.scripted import ScriptedModel
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.tools.delivery import deliver
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level
from tests.build.conftest import TASK, draft
from tests.rigs.breadth import thorough
from tests.rigs.skill_makers import guide, registered, use_registry
from tests.tools.conftest import Agent, Nobody, Somebody

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)
CASE = Case(
    {"rows": []},
    {"headers": ["Product", "Revenue"], "rows": 0},
    Level.PERSON,
    files={"report.csv": {"equals": "Product,Revenue"}},
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryHome:
    """A registry of a test's own."""
    return use_registry(tmp_path, monkeypatch)


@asynccontextmanager
async def working(
    tmp_path: Path, replies: list[str], person: Any, **rules: Any
) -> AsyncGenerator[tuple[Agent, list[str]]]:
    lines: list[str] = []
    async with hermes_exec.open("local") as terminal:
        context = Context(
            terminal, terminal.kind, person or Nobody(), "1", model="scripted", data=tmp_path / "data",
            approvals=Approvals("allow", rules), tell=lines.append,
            models=Models(ScriptedModel(replies)), cases=[CASE] if replies else [],
        )  # fmt: skip
        try:
            yield Agent(context, create_tools(context)), lines
        finally:
            await context.close()


def with_agent(
    tmp_path: Path,
    do: Callable[[Agent], Coroutine[Any, Any, Any]],
    replies: list[str] | None = None,
    person: Any = None,
    **rules: Any,
) -> Any:
    async def done() -> Any:
        async with working(tmp_path, replies or [], person, **rules) as (agent, lines):
            return await do(agent), lines

    return asyncio.run(done())


def test_no_skills_are_an_empty_list_and_a_wrong_name_names_the_nearest(tmp_path: Path, home: RegistryHome) -> None:
    async def seen(agent: Agent) -> Any:
        empty = (await agent("skills_list"))["output"]
        registered(home, tmp_path / "made")
        return empty, await agent("skill_view", name="add-number"), await agent("skill_view", name="add_numbers")

    (empty, wrong, right), _ = with_agent(tmp_path, seen)
    assert empty == "none"
    assert "'add-numbers'" in wrong["error"]["message"]
    assert "Files: SKILL.md, scripts/main.py, tests/test_main.py" in right["output"]
    assert '"required": ["a", "b"]' in right["output"]
    assert "return a + b" not in right["output"]  # no more than is needed


def test_a_list_is_ranked_by_words_and_read_in_pieces(tmp_path: Path, home: RegistryHome) -> None:
    for name in ("add-one", "add-two", "take-one"):
        registered(home, tmp_path / name, name)

    async def seen(agent: Agent) -> Any:
        return [await agent("skills_list", query="numbers ADD_ONE"), await agent("skills_list", limit=2)]

    (searched, piece), _ = with_agent(tmp_path, seen)
    first, *_ = searched["output"].splitlines()
    assert first == 'add-one 1 (read, scripts, call; person; from person; ready): "Adds two numbers."'
    assert len(piece["output"].splitlines()) == 2
    assert (piece["truncated"], piece["note"]) == (True, "there are 1 more: offset 2")


def test_one_file_of_a_skill_is_shown_and_a_changed_one_is_not(tmp_path: Path, home: RegistryHome) -> None:
    version = registered(home, tmp_path / "made")

    async def seen(agent: Agent) -> Any:
        good = await agent("skill_view", name="add-numbers", file_path="scripts/main.py")
        none = await agent("skill_view", name="add-numbers", file_path="/etc/passwd")
        with (Registry(home).tree(version) / "scripts/main.py").open("a") as file:
            file.write("# changed\n")
        return good, none, await agent("skill_view", name="add-numbers")

    (good, none, changed), _ = with_agent(tmp_path, seen)
    assert "return a + b" in good["output"]
    assert "one of SKILL.md" in none["error"]["message"]
    assert changed["error"]["type"] == "changed"


def test_a_guide_is_read_by_lines_and_its_data_is_named_with_its_size(tmp_path: Path, home: RegistryHome) -> None:
    long = "\n".join(f"line {number}" for number in range(1, 1001)).encode()
    files = {"references/long.md": long, "assets/font.ttf": b"\0\1" * 600}
    guide(home, tmp_path, "draw-charts", "Draws charts.", "Read references/long.md.", files=files)

    async def seen(agent: Agent) -> Any:
        whole = await agent("skill_view", name="draw-charts")
        lines = await agent("skill_view", name="draw-charts", file_path="references/long.md", offset=40, limit=3)
        data = await agent("skill_view", name="draw-charts", file_path="assets/font.ttf")
        return whole, lines, data, await agent("skill_run", name="draw-charts")

    (whole, lines, data, called), _ = with_agent(tmp_path, seen)
    assert "Read references/long.md." in whole["output"]
    assert "assets/font.ttf (data, 1,200 bytes), references/long.md" in whole["output"]
    assert "line 1" not in whole["output"]
    assert lines["output"] == "line 40\nline 41\nline 42"
    assert "lines 40 to 42 of 1000: offset 43" in lines["note"]
    assert "guidance, from person" in lines["note"]
    assert "data, 1,200 bytes" in data["error"]["message"]
    assert not called["ok"]


def test_a_change_of_an_untrusted_guide_keeps_its_data_and_stays_untrusted(tmp_path: Path, home: RegistryHome) -> None:
    origin = Origin(kind="imported", source="guides.zip")
    guide(home, tmp_path, "draw-charts", "Draws charts.", origin=origin, files={"assets/font.ttf": b"\0\1" * 600})
    patch = "*** Begin Patch\n*** Add File: references/new.md\n+New.\n*** End Patch"

    async def done(agent: Agent) -> Any:
        return await agent("skill_manage", action="patch", name="draw-charts", patch=patch)

    answer, _ = with_agent(tmp_path, done)
    version = Registry(home).version("draw-charts", 2)
    assert [each.path for each in version.files] == ["SKILL.md", "assets/font.ttf", "references/new.md"]
    assert version.origin.kind == "untrusted"
    assert "waits for a person" in answer["note"]


def test_versions_are_kept_chosen_and_archived_and_nothing_is_deleted(tmp_path: Path, home: RegistryHome) -> None:
    registered(home, tmp_path / "one")
    registered(home, tmp_path / "two")

    async def done(agent: Agent) -> list[str]:
        steps: list[dict[str, Any]] = [
            {"action": "restore", "version": 1},
            {"action": "pin"},
            {"action": "archive"},
            {"action": "restore"},
            {"action": "history"},
        ]
        return [(await agent("skill_manage", name="add_numbers", **step))["output"] for step in steps]

    (chosen, pinned, archived, restored, history), _ = with_agent(tmp_path, done)
    assert (chosen, pinned) == ("add-numbers 1: ready", "add-numbers 1: pinned")
    assert (archived, restored) == ("add-numbers 1: archived", "add-numbers 1: pinned")
    words = [line.split()[2] for line in history.splitlines()]
    assert words == ["registered", "registered", "chosen", "pinned", "archived", "restored"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"action": "create", "name": "new-one"}, "needs a patch"),
        ({"action": "patch", "name": "add-numbers"}, "needs a patch"),
        ({"action": "create", "name": "add-numbers", "patch": "x"}, "already"),
        ({"action": "patch", "name": "no-such", "patch": "x"}, "no skill is called"),
        ({"action": "improve", "name": "add-numbers"}, "improve needs the task"),
        ({"action": "create", "name": "os", "task": "x"}, "not a valid name of a skill"),
        ({"action": "create", "name": "new-one", "task": "x"}, "without a sandbox"),
    ],
)
def test_what_cannot_be_done_says_why(tmp_path: Path, home: RegistryHome, arguments: dict[str, Any], says: str) -> None:
    registered(home, tmp_path / "made")
    told, _ = with_agent(tmp_path, lambda agent: agent("skill_manage", **arguments))
    assert says in told["error"]["message"]


@pytest.mark.slow
@thorough
def test_a_skill_made_in_a_conversation_is_used_in_it_and_its_file_arrives(
    tmp_path: Path, require: Require, home: RegistryHome
) -> None:
    require("bwrap", "makes the sandbox")
    recorded: list[Any] = []

    async def done(agent: Agent) -> Any:
        agent.context.record = lambda kind, data: recorded.append((kind, data))
        made = await agent("skill_manage", action="create", name="generate_csv_report", task=TASK)
        rows = '{"rows": [{"Product": "a", "Revenue": 1}]}'
        ran = await agent("skill_run", name="generate_csv_report", arguments=rows, copy_to=str(tmp_path / "copied"))
        read = await agent("read_file", path=str(tmp_path / "copied/report.csv"))
        wrong = await agent("skill_run", name="generate-csv-report", arguments='{"rows": [{}]}')
        unfit = await agent("skill_run", name="generate-csv-report", arguments='{"rows": 1}')
        no_json = await agent("skill_run", name="generate-csv-report", arguments="rows")
        return made, ran, read, wrong, unfit, no_json

    person = Somebody()
    (made, ran, read, wrong, unfit, no_json), lines = with_agent(tmp_path, done, [draft()], person)
    run = "cases from outside do not cover all of generate-csv-report 1; run it with"
    assert [why for _, why in person.asked] == [
        "scripted runs commands without a sandbox; register generate-csv-report as unprotected all the same?",
        *(
            f"{run} {given}?"
            for given in ('{"rows": [{"Product": "a", "Revenue": 1}]}', '{"rows": [{}]}', '{"rows": 1}')
        ),
    ]
    assert made["ok"], made["error"]["message"]
    assert made["backend"] == ran["backend"] == "sandbox"
    assert lines[0] == "[Core] No tool found for task..."
    assert lines[-1] == "[Core] Skill 'generate_csv_report' successfully registered."
    assert '"rows": 1' in ran["output"]
    assert (tmp_path / "data/report.csv").read_text().split() == ["Product,Revenue", "a,1"]
    assert f"{tmp_path}/data/report.csv" in ran["note"]
    assert read["output"] == "1|Product,Revenue\n2|a,1"
    assert (wrong["error"]["type"], "each row has" in wrong["error"]["message"]) == ("skill_failed", True)
    assert unfit["error"]["type"] == no_json["error"]["type"] == "usage_error"
    assert [data["outcome"] for kind, data in recorded if kind == "skill"] == ["registered", "ok", "ValueError"]
    assert Registry(home).version("generate-csv-report").protection == "unprotected"


@pytest.mark.slow
def test_what_only_tested_itself_asks_a_person_whatever_else_is_allowed(
    tmp_path: Path, require: Require, home: RegistryHome
) -> None:
    require("bwrap", "makes the sandbox")
    registered(home, tmp_path / "made", level=Level.SELF_TESTED)
    call: dict[str, Any] = {"name": "add-numbers", "arguments": '{"a": 1, "b": 2}'}
    refused, _ = with_agent(tmp_path, lambda agent: agent("skill_run", **call))
    assert (refused["error"]["type"], "self-tested" in refused["error"]["message"]) == ("refused", True)
    yes = Somebody()
    agreed, _ = with_agent(tmp_path, lambda agent: agent("skill_run", **call), person=yes)
    assert (agreed["output"], len(yes.asked)) == ("3", 1)


def test_files_are_put_past_links_and_never_through_them(tmp_path: Path) -> None:
    source, into, secret = tmp_path / "source", tmp_path / "into", tmp_path / "secret"
    for path in ("a", "sub/b", "deep/c"):
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text("new")
    secret.write_text("mine")
    into.mkdir()
    (into / "a").symlink_to(secret)
    (tmp_path / "elsewhere").mkdir()
    (into / "deep").symlink_to(tmp_path / "elsewhere")
    assert deliver(source, ["a", "sub/b"], into) == [str(into / "a"), str(into / "sub/b")]
    assert secret.read_text() == "mine"
    assert not (into / "a").is_symlink()
    with pytest.raises(HermesError, match="cannot be put"):
        deliver(source, ["deep/c"], into)
    assert os.listdir(tmp_path / "elsewhere") == []

"""Tools of other distributions: installed entry points, offered if the user's configuration names them."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_agent.tools.toolset import GROUP, create_tools, find_tools
from tests.tools.conftest import Agent, Nobody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

from hermes_exec_agent.tools.tool import Approvals, Context

CODE = """
from pydantic import Field
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope

class Count:
    def __init__(self, context):
        self.calls = 0

class Words(ToolArguments):
    "Count the words of a text."
    text: str = Field(min_length=1)

class WordCount(BaseTool[Words]):
    name = "word_count"
    arguments_type = Words
    async def run(self, args, context):
        count = context.service(Count)
        count.calls += 1
        result = await context.terminal.run(["wc", "-w"], stdin=args.text)
        return Envelope(ok=True, place=context.place, output=f"{result.stdout_text.strip()} words, call {count.calls}")

class CharacterCount(BaseTool[Words]):
    name = "character_count"
    arguments_type = Words
    tool_set = "counting"
    changes = False
    async def run(self, args, context):
        count = context.service(Count)
        count.calls += 1
        return Envelope(ok=True, place="agent", output=f"{len(args.text)} characters, call {count.calls}")

class Impostor(WordCount):
    name = "impostor"
    tool_set = "core"
"""
POINTS = {"word_count": "hermes_counting:WordCount", "character_count": "hermes_counting:CharacterCount"}


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for distributions, and the path of the user's configuration."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "hermes_counting.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(tmp_path / "hermes.toml"))
    (tmp_path / "hermes.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("hermes_counting", None)


def install(folder: Path, points: dict[str, str], name: str = "Hermes.Counting") -> None:
    info = folder / "site" / f"{name.lower().replace('.', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))


def configure(folder: Path, *names: str) -> None:
    (folder / "hermes.toml").write_text(f"[agent]\ntools = {list(names)}\n")


def offered(names: Any = None) -> list[str]:
    async def create() -> list[str]:
        async with hermes_exec.open("local") as terminal:
            return [tool.spec.name for tool in create_tools(Context(terminal, "local", Nobody(), "1"), names)]

    return asyncio.run(create())


# A conversation has the tools of memory, proposals and jobs if those are enabled.
NEED_SETTINGS = {"cronjob", "delegate_task", "memory", "propose_change", "session_search", "user_ask"}
CORE = sorted({each.name for each in find_tools(["core"])} - NEED_SETTINGS)


def test_an_installed_tool_is_not_offered_unless_the_user_names_it(configured: Path) -> None:
    install(configured, POINTS)
    assert sorted(offered()) == CORE
    configure(configured, "core", "word_count")
    assert offered()[-1] == "word_count"
    assert sorted(offered()) == sorted([*CORE, "word_count"])


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (("hermes-counting",), ["word_count"]),
        (("counting",), ["character_count"]),
        (("minimal", "counting", "hermes-counting"), ["terminal", "character_count", "word_count"]),
        (("read_file", "terminal"), ["terminal", "read_file"]),
    ],
)
def test_a_set_is_named_by_the_class_or_by_its_distribution(
    configured: Path, named: tuple[str, ...], expected: list[str]
) -> None:
    install(configured, POINTS)
    configure(configured, *named)
    assert offered() == expected


def test_a_plugins_tool_is_called_like_ours_and_shares_a_service_with_its_neighbour(configured: Path) -> None:
    install(configured, POINTS)
    configure(configured, "core", "counting", "word_count")

    async def call() -> list[Any]:
        async with hermes_exec.open("local") as terminal:
            context = Context(terminal, "local", Nobody(), "1", approvals=Approvals("allow"))
            agent = Agent(context, create_tools(context))
            try:
                script = "import tools\nprint(tools.word_count(text='a b')['output'])"
                return [
                    (await agent("word_count", text="one two three"))["output"],
                    (await agent("character_count", text="four"))["output"],
                    (await agent("execute_code", code=script))["output"].strip(),
                    (await agent("word_count", txt="x"))["error"]["type"],
                ]
            finally:
                await context.close()

    assert asyncio.run(call()) == ["3 words, call 1", "4 characters, call 2", "2 words, call 3", "arguments"]


def test_a_plugins_tool_needs_an_approval_unless_it_changes_nothing(configured: Path) -> None:
    install(configured, POINTS)

    async def call() -> list[Any]:
        async with hermes_exec.open("local") as terminal:
            context = Context(terminal, "local", Nobody(), "1")
            agent = Agent(context, create_tools(context, POINTS))
            return [(await agent(name, text="x"))["ok"] for name in ("word_count", "character_count")]

    assert asyncio.run(call()) == [False, True]


def test_a_plugin_cannot_take_the_name_of_a_tool_of_ours(configured: Path) -> None:
    install(configured, {**POINTS, "terminal": "hermes_counting:WordCount"})
    assert sorted(offered()) == CORE  # ours, and the plugin is not looked at
    configure(configured, "core", "word_count")
    with pytest.raises(ConfigError, match="'hermes-counting' offers 'terminal', which is a built-in name"):
        offered()


@pytest.mark.parametrize(
    ("point", "complaint"),
    [
        ({"impostor": "hermes_counting:Impostor"}, "into our own set 'core'"),
        ({"counter": "hermes_counting:WordCount"}, "'hermes-counting' registers the tool 'word_count' under the name"),
    ],
)
def test_a_tool_with_a_name_or_a_set_that_is_not_its_own_is_refused(
    configured: Path, point: dict[str, str], complaint: str
) -> None:
    install(configured, point)
    with pytest.raises(ConfigError, match=complaint):
        offered(list(point))


def test_a_tool_that_cannot_be_loaded_is_named_and_stops_no_other_set(configured: Path) -> None:
    install(configured, {**POINTS, "broken": "no_such_module:Tool"})
    install(configured, {"no_tool": "hermes_counting:Count"}, "other")
    for name in ("broken", "no_tool"):
        with pytest.raises(PlaceUnavailable, match=name):
            offered([name])
    assert offered(["counting"]) == ["character_count"]


def test_an_unknown_name_is_refused_with_the_nearest_one(configured: Path) -> None:
    install(configured, POINTS)
    configure(configured, "core", "word_cuont")
    with pytest.raises(ConfigError, match=r"no tool or set of tools 'word_cuont'.*word_count"):
        offered()


def test_a_projects_file_cannot_choose_tools(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_exec.config.load import load_settings, trust

    install(configured, POINTS)
    project = configured / "project"
    project.mkdir()
    (project / "hermes.toml").write_text('[agent]\ntools = ["word_count"]\n')
    monkeypatch.chdir(project)
    assert load_settings().agent.tools == ("core",)
    trust(project / "hermes.toml")
    with pytest.raises(ConfigError, match=r"\[agent\] belongs in your own file"):
        load_settings()


def test_metadata_of_others_is_read_once_and_only_for_tools_of_theirs(
    configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(configured, POINTS)
    reads: list[str] = []
    whole: Callable[..., Any] = importlib.metadata.entry_points

    def count(**options: Any) -> Any:
        reads.append(options["group"])
        return whole(**options)

    monkeypatch.setattr(importlib.metadata, "entry_points", count)
    offered("core")
    assert reads == []
    offered(["core", "counting", "word_count"])
    assert reads == [GROUP]

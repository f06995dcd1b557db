"""A wheel of another distribution adds a command, a check of doctor and a tool, with no change of ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.rigs import installs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.required]

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "hermes-counting"
version = "1.0"

[project.entry-points."hermes_exec.commands"]
counting = "hermes_counting:COMMANDS"

[project.entry-points."hermes_exec.doctors"]
counting = "hermes_counting:DOCTOR"

[project.entry-points."hermes_exec.tools"]
word_count = "hermes_counting.tool:WordCount"
"""
TABLE = '''
"""The registrations."""

from hermes_exec.backend import Check
from hermes_exec.cli.commands import Command

COMMANDS = (Command("count", "hermes_counting.command", "Count words and letters."),)


def __getattr__(name):
    from hermes_exec.cli.checks import Doctor

    async def examine():
        return [Check("dictionary", "ok", "ten words")]

    return {"DOCTOR": Doctor(examine)}[name]
'''
COMMAND = '''
"""A group of commands."""

from hermes_exec.cli.strict_typer import StrictTyper


def words(text: str) -> int:
    """Count the words of TEXT."""
    print(len(text.split()))
    return 0


def letters(text: str) -> int:
    """Count the letters of TEXT."""
    print(sum(map(str.isalpha, text)))
    return 0


def add(app, name, summary):
    group = StrictTyper(help=summary)
    group.command("words")(words)
    group.command("letters")(letters)
    app.add_typer(group, name=name, short_help=summary)
'''
TOOL = '''
"""A tool."""

from pydantic import Field

from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope


class Text(ToolArguments):
    """Count the words of a text."""

    text: str = Field(min_length=1)


class WordCount(BaseTool[Text]):
    """Counts words in the target."""

    name = "word_count"
    arguments_type = Text
    changes = False

    async def run(self, args, context):
        result = await context.terminal.run(["wc", "-w"], stdin=args.text)
        return Envelope(ok=result.ok, place=context.place, output=f"{result.stdout_text.strip()} words")
'''


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with our wheel and the plugin's."""

    bin: Path
    home: Path

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run ``hermes-exec`` of the environment."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}
        return subprocess.run(
            [self.bin / "hermes-exec", *argv],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=env,
            cwd=self.home,
            timeout=installs.LIMIT_S,
        )

    @property
    def site(self) -> Path:
        """The folder of installed distributions."""
        (found,) = self.bin.parent.glob("lib/python*/site-packages")
        return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    out = tmp_path_factory.mktemp("wheels")
    project = tmp_path_factory.mktemp("hermes-counting")
    package = project / "hermes_counting"
    package.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text(TABLE)
    (package / "command.py").write_text(COMMAND)
    (package / "tool.py").write_text(TOOL)
    argv = [sys.executable, "-I", "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(project)]
    subprocess.run(argv, check=True, capture_output=True)
    (plugin,) = out.glob("hermes_counting-*.whl")
    environment = tmp_path_factory.mktemp("environment") / "venv"
    bin_folder = installs.install(installs.share_wheel(tmp_path_factory), "", environment)
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*uv, "--python", str(bin_folder / "python"), str(plugin)], check=True, capture_output=True)
    return Installed(bin_folder, tmp_path_factory.mktemp("home"))


def test_an_adapter_of_another_distribution_passes_the_shipped_suite(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its author has the installed packages and pytest, and nothing of this checkout."""
    wheel = installs.share_wheel(tmp_path_factory)
    python = installs.install(wheel, "gateway", tmp_path / "venv", "pytest") / "python"
    project = installs.ROOT / "tests/rigs/adapter"
    argv = [sys.executable, "-I", "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(project)]
    subprocess.run(argv, check=True, capture_output=True)
    (plugin,) = tmp_path.glob("hermes_letters-*.whl")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python)]
    subprocess.run([*uv, str(plugin)], check=True, capture_output=True)
    shutil.copy(project / "letters_suite.py", tmp_path)
    run = [str(python), "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "letters_suite.py"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run(run, check=False, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 40


@pytest.fixture
def broken(installed: Installed) -> Iterator[Path]:
    """The entry points of a further distribution, which a test writes."""
    info = installed.site / "hermes_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hermes-broken\nVersion: 1.0\n")
    yield info / "entry_points.txt"
    for each in [*info.iterdir(), *installed.site.glob("hermes_broken.py")]:
        each.unlink()
    info.rmdir()


def test_help_lists_the_command_of_a_plugin(installed: Installed) -> None:
    done = installed.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  count          Count words and letters.\n" in done.stdout


def test_a_command_group_of_a_plugin_runs(installed: Installed) -> None:
    assert installed.run("count", "words", "one two three").stdout == "3\n"
    assert installed.run("--quiet", "count", "letters", "a b 1").stdout == "2\n"
    assert "Count the words of TEXT." in installed.run("count", "words", "--help").stdout


def test_doctor_has_the_checks_of_a_plugin(installed: Installed) -> None:
    reports = json.loads(installed.run("doctor", "--json").stdout)
    found = next(each for each in reports if each["type"] == "counting")
    assert [(each["name"], each["detail"]) for each in found["checks"]] == [("dictionary", "ten words")]


def test_the_agent_calls_the_tool_of_a_plugin(installed: Installed) -> None:
    config = installed.home / "tools.toml"
    config.write_text('[agent]\ntools = ["core", "word_count"]\n')
    script = installed.home / "script.jsonl"
    call = {"name": "word_count", "arguments": {"text": "one two three four"}}
    lines = [{"content": "", "tool_calls": [call]}, {"content": "Counted."}]
    script.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = installed.run("--config", str(config), "chat", "-q", "Count.", "--replay", str(script))
    assert (done.returncode, done.stdout) == (0, "[scripted] Counted.\n"), done.stderr
    events = json.loads(installed.run("conversations", "show", "last", "--json").stdout)
    (result,) = [json.loads(event["data"]["content"]) for event in events if event["kind"] == "result"]
    assert result["output"] == "4 words"


@pytest.mark.parametrize(
    ("points", "module", "line"),
    [
        ("mine = hermes_broken:COMMANDS", None, "cannot be loaded: No module named 'hermes_broken'"),
        ("mine = hermes_broken:COMMANDS", "COMMANDS = ['count']", "is not a tuple of Command"),
        ("agent = hermes_broken:COMMANDS", None, "offers 'agent', which is a built-in name"),
        (
            "mine = hermes_broken:COMMANDS",
            "from hermes_exec.cli.commands import Command\nCOMMANDS = (Command('run', 'hermes_broken', 'Mine.'),)",
            "the command 'run' of the plugin 'mine' is a built-in name",
        ),
        (
            "mine = hermes_broken:COMMANDS",
            "from hermes_exec.cli.commands import Command\nCOMMANDS = (Command('count', 'hermes_broken', 'Mine.'),)",
            "the plugins 'counting' and 'mine' all provide the command 'count'",
        ),
    ],
)
def test_a_broken_plugin_is_one_line_and_breaks_no_other_command(
    installed: Installed, broken: Path, points: str, module: str | None, line: str
) -> None:
    broken.write_text(f"[hermes_exec.commands]\n{points}\n")
    if module is not None:
        (installed.site / "hermes_broken.py").write_text(module)
    listed = installed.run("--help")
    assert listed.returncode == 0
    assert listed.stderr.startswith("hermes-exec: ")
    assert listed.stderr.count("\n") == 1
    assert line in listed.stderr
    assert "  skill " in listed.stdout
    for argv in (("run", "echo hi"), ("policy", "list"), ("chat", "-q", "hi", "--replay", "demo")):
        done = installed.run(*argv)
        assert (done.returncode, "hermes_broken" in done.stderr) == (0, False), done.stderr


def test_a_command_whose_module_is_broken_is_reported_when_it_is_called(installed: Installed, broken: Path) -> None:
    broken.write_text("[hermes_exec.commands]\nmine = hermes_broken:COMMANDS\n")
    code = (
        "from hermes_exec.cli.commands import Command\nCOMMANDS = (Command('mine', 'hermes_broken_module', 'Mine.'),)"
    )
    (installed.site / "hermes_broken.py").write_text(code)
    assert "  mine " in installed.run("--help").stdout
    done = installed.run("mine")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("hermes-exec: the command 'mine' cannot be loaded from hermes_broken_module: ")
    assert done.stderr.count("\n") == 1


def test_a_check_that_cannot_be_loaded_is_a_row(installed: Installed, broken: Path) -> None:
    broken.write_text("[hermes_exec.doctors]\nmine = hermes_broken:DOCTOR\n")
    reports = {each["type"]: each for each in json.loads(installed.run("doctor", "--json").stdout)}
    assert not reports["mine"]["usable"]
    assert reports["counting"]["usable"]

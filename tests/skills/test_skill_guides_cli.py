"""The commands with which a person writes, finds, trusts, grants and exports guides."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.skills.registry.guides import register_guide
from hermes_exec_agent.skills.registry.home import RegistryHome, default_home
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.registry.search import search_skills
from tests.rigs.skill_makers import PERSON, registered

if TYPE_CHECKING:
    from collections.abc import Callable

SkillCommand = Any
"""Runs ``hermes-exec skill …`` in folders of one test."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"VISUAL", "EDITOR"}}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return {
        **kept, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "TMPDIR": str(temporary),
    }  # fmt: skip


@pytest.fixture
def skill(environ: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-m", "hermes_exec", "skill", *argv]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=tmp_path,
            env={**environ, **more},
        )  # fmt: skip

    return run


def editor(folder: Path, text: str) -> str:
    """A program that replaces a line of the file that it is given, and leaves a backup."""
    program = folder / "edit.py"
    program.write_text(
        "import sys, pathlib\npath = pathlib.Path(sys.argv[1])\nold = path.read_text()\n"
        f"path.with_name('SKILL.md~').write_text(old)\npath.write_text(old.replace('1. …', {text!r}))\n"
    )
    return f"{sys.executable} {program}"


def write_guide(folder: Path, name: str, summary: str, body: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {summary}\n---\n{body}\n")
    return folder / name


def test_a_guide_is_written_edited_found_and_exported(skill: SkillCommand, tmp_path: Path) -> None:
    assert skill("new", "find-leaks", "-d", "Use it: to find leaks, e.g. in 'C' programs").returncode == 0
    assert skill("new", "find-leaks").returncode == 2
    assert skill("add", "find-leaks").returncode == 0
    assert skill("edit", "find-leaks").returncode == 2
    same = skill("edit", "find-leaks", EDITOR="true")
    assert (same.returncode, "nothing was changed" in same.stderr) == (0, True)

    assert skill("edit", "find-leaks", EDITOR=editor(tmp_path, "1. Run valgrind.")).returncode == 0
    shown = json.loads(skill("show", "find-leaks", "--json").stdout)
    assert (shown["number"], shown["rights"], shown["origin"]["kind"]) == (2, ["read"], "person")
    assert [each["path"] for each in shown["files"]] == ["SKILL.md"]
    assert list((tmp_path / "temporary").glob("hermes-skill-*")) == []

    hidden = skill("edit", "find-leaks", VISUAL=editor(tmp_path, "x"), EDITOR="false")
    assert "nothing was changed" in hidden.stderr, "the template's line is gone by now"
    (program := tmp_path / "spoil.py").write_text(
        "import sys, pathlib\npath = pathlib.Path(sys.argv[1])\npath.write_text(path.read_text() + 'a\\u200bb\\n')\n"
    )
    refused = skill("edit", "find-leaks", EDITOR=f"{sys.executable} {program}")
    assert refused.returncode == 1
    (kept,) = (tmp_path / "temporary").glob("hermes-skill-*/find-leaks")
    assert refused.stderr.splitlines()[-1] == f"hermes-exec: the text is kept: {kept}"
    assert "\u200b" in (kept / "SKILL.md").read_text()
    assert json.loads(skill("show", "find-leaks", "--json").stdout)["number"] == 2

    assert json.loads(skill("search", "valgrind", "leaking", "--json").stdout)[0]["name"] == "find-leaks"
    assert skill("search", "gardening").returncode == 1
    assert skill("export", "find-leaks", "out").returncode == 0
    from skills_ref.parser import parse_frontmatter
    from skills_ref.validator import validate_metadata

    fields, body = parse_frontmatter((tmp_path / "out/find-leaks/SKILL.md").read_text())
    assert (validate_metadata(fields, tmp_path / "out/find-leaks"), "valgrind" in body) == ([], True)
    for wrong in (["out"], [], ["out2", "--bundle", "x"], ["--flat", "x.py"]):
        assert skill("export", "find-leaks", *wrong).returncode == 2
    assert not (tmp_path / "x").exists()


def test_the_best_match_is_first_and_equal_ones_are_in_order(home: RegistryHome, tmp_path: Path) -> None:
    registry = Registry(home)
    texts = {
        "release-notes": ("Writes release notes.", "Read the changelog."),
        "b-report": ("Makes reports.", "One line of a changelog helps."),
        "a-report": ("Makes reports.", "One line of a changelog helps."),
        "other": ("Cooks.", "Boil water."),
    }
    for name, (summary, body) in texts.items():
        source = write_guide(tmp_path, name, summary, body)
        origin = Origin(kind="person")
        asyncio.run(register_guide(registry, source, author=PERSON, origin=origin, scripts=False))
    found = [each.name for each in search_skills(registry, 'Write the "release" notes from a changelog!')]
    assert found == ["release-notes", "a-report", "b-report"]
    registry.mark("archived", "a-report")
    assert "a-report" not in [each.name for each in search_skills(registry, "reports")]
    with pytest.raises(UsageError):
        search_skills(registry, " -* ")


def test_trust_and_grants_are_a_persons_and_for_one_version(
    skill: SkillCommand, environ: dict[str, str], tmp_path: Path
) -> None:
    source = write_guide(tmp_path / "some", "deploy", "Deploys.", "Run scripts/go.sh")
    assert skill("import", str(source)).returncode == 0
    (granted := tmp_path / "granted").mkdir()
    options = ["--interpreter", "node", "--host", "api.example.org:8443", "--folder", f"in={granted}:rw"]
    for command in (["trust", "deploy"], ["grant", "deploy", *options]):
        from_agent = skill(*command, HERMES_EXEC_AGENT="some-model")
        assert (from_agent.returncode, len(from_agent.stderr.splitlines())) == (2, 1)
        assert skill(*command).returncode == 0
    assert skill("grant", "deploy", "--unsandboxed").returncode == 0
    shown = json.loads(skill("show", "deploy", "--json").stdout)
    assert shown["trusted"] is True
    given = shown["script_grants"]
    assert (given["unsandboxed"], given["interpreters"], given["hosts"]) == (True, ["node"], ["api.example.org:8443"])
    assert given["folders"] == [f"in={granted}:rw"]
    assert skill("grant", "deploy", "--remove", "--unsandboxed", "--folder", "in").returncode == 0
    assert "node, api.example.org:8443\n" in skill("show", "deploy").stdout
    assert ", trusted" in skill("list").stdout

    (source / "SKILL.md").write_text((source / "SKILL.md").read_text() + "Then more.\n")
    assert skill("import", str(source), "--yes").returncode == 0
    shown = json.loads(skill("show", "deploy", "--json").stdout)
    assert (shown["number"], shown["trusted"], shown["script_grants"]["interpreters"]) == (2, False, [])
    assert skill("trust", "deploy", "--version", "1", "--remove").returncode == 0
    known = Registry(default_home(environ)).skill("deploy")
    assert known.trusted == set()


@pytest.mark.parametrize(
    "argv",
    [
        ["new", "Upper"],
        ["new", "terminal"],
        ["new", "a/b"],
        ["edit", "nothing"],
        ["edit", "add-numbers", "no-file"],
        ["search", "--", "-"],
        ["trust", "nothing"],
        ["grant", "add-numbers"],
        ["grant", "add-numbers", "--interpreter", "a b"],
        ["grant", "add-numbers", "--host", "http://example.org"],
        ["grant", "add-numbers", "--folder", "in=/no/such/folder"],
        ["export", "nothing", "out"],
        ["import", "add-numbers", "/no/such/file"],
        ["import", ""],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    skill: SkillCommand, environ: dict[str, str], tmp_path: Path, argv: list[str]
) -> None:
    registered(default_home(environ), tmp_path / "made")
    done = skill(*argv, EDITOR="true")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr


def test_a_guide_from_untrusted_material_waits(home: RegistryHome, tmp_path: Path) -> None:
    registry = Registry(home)
    source = write_guide(tmp_path, "deploy", "Deploys.", "Do it.")
    origin = Origin(kind="untrusted")
    admitted = asyncio.run(register_guide(registry, source, author=PERSON, origin=origin, scripts=False))
    assert admitted.version is not None
    assert registry.skill("deploy").state == "quarantined"
    assert search_skills(registry, "deploy") == []
    registry.release("deploy")
    assert [each.name for each in search_skills(registry, "deploy")] == ["deploy"]

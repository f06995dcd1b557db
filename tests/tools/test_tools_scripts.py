"""A script of a guide in a conversation: run by a call, in a sandbox, or in the target if a person granted it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_agent.skills.registry.record import ScriptGrants
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.tools.skill_script import SkillScript
from hermes_exec_agent.tools.tool import Approvals, Context
from tests.rigs.skill_makers import use_registry
from tests.skills.test_skill_scripts import register
from tests.tools.conftest import Agent, Somebody

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)
FILL = "import sys\nopen('out.txt', 'w').write(open(sys.argv[1]).read().upper())\nprint('filled')\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Require) -> RegistryHome:
    """A registry of a test's own, with a guide that has a script."""
    require("bwrap", "makes the sandbox")
    home = use_registry(tmp_path, monkeypatch)
    register(home, tmp_path / "made", {"scripts/fill.py": FILL})
    return home


def call(tmp_path: Path, person: Somebody, approvals: Approvals, **arguments: Any) -> dict[str, Any]:
    """Call the tool once in a conversation over this machine whose workspace is ``work``."""
    (tmp_path / "work").mkdir(parents=True)
    (tmp_path / "work/form.txt").write_text("form")

    async def done() -> dict[str, Any]:
        async with hermes_exec.open("local", cwd=str(tmp_path / "work")) as terminal:
            context = Context(terminal, "local", person, "1", data=tmp_path / "data", approvals=approvals)
            try:
                return await Agent(context, [SkillScript()])("skill_script", name="fill-forms", **arguments)
            finally:
                await context.close()

    return asyncio.run(done())


def test_a_script_gets_files_of_the_target_and_its_files_are_delivered(tmp_path: Path) -> None:
    person = Somebody()
    arguments = {"script": "scripts/fill.py", "args": ["form.txt"], "files": ["form.txt"]}
    envelope = call(tmp_path, person, Approvals(), **arguments)
    assert (envelope["ok"], envelope["output"], envelope["backend"]) == (True, "filled\n", "sandbox"), envelope
    assert envelope["note"].startswith("unproven script; files: ")
    assert (tmp_path / "data/out.txt").read_text() == "FORM"
    assert person.asked == [("skill_script", "fill-forms scripts/fill.py form.txt")]


def test_a_secret_is_not_given_to_a_script_without_a_question(tmp_path: Path) -> None:
    secret = tmp_path / ".ssh/id_ed25519"
    secret.parent.mkdir()
    secret.write_text("secret")
    arguments = {"script": "scripts/fill.py", "args": ["id_ed25519"], "files": [str(secret)]}
    envelope = call(tmp_path, Somebody(says=False), Approvals("allow"), **arguments)
    assert (envelope["ok"], envelope["error"]["type"]) == (False, "denied")
    assert not (tmp_path / "data").exists()


def test_a_granted_script_runs_in_the_target_and_asks_each_time(tmp_path: Path, home: RegistryHome) -> None:
    Registry(home).grant_scripts("fill-forms", ScriptGrants(unsandboxed=True))
    person = Somebody()
    arguments = {"script": "scripts/fill.py", "args": ["form.txt"]}
    envelope = call(tmp_path, person, Approvals("allow"), **arguments)
    assert (envelope["ok"], envelope["output"], envelope["backend"]) == (True, "filled\n", "local"), envelope
    assert (tmp_path / "work/out.txt").read_text() == "FORM"
    assert [line for _, line in person.asked] == ["run fill-forms scripts/fill.py form.txt without a sandbox in local"]


def test_input_passes_and_changed_files_never_reach_the_target(tmp_path: Path, home: RegistryHome) -> None:
    text = "import sys\nprint(sys.stdin.read(), sys.argv[1:])\n"
    version = register(home, tmp_path / "again", {"scripts/fill.py": text})
    Registry(home).grant_scripts("fill-forms", ScriptGrants(unsandboxed=True))
    arguments = {"script": "scripts/fill.py", "args": ["$(id) 'x"], "stdin": "a\nb"}
    envelope = call(tmp_path / "1", Somebody(), Approvals("allow"), **arguments)
    assert envelope["output"] == f"a\nb {arguments['args']}\n", envelope
    (home.content / version.digest / "scripts/fill.py").write_text("print('evil')\n")
    envelope = call(tmp_path / "2", Somebody(), Approvals("allow"), **arguments)
    assert (envelope["ok"], envelope["error"]["type"]) == (False, "changed"), envelope
    assert Registry(home).skill("fill-forms").state == "quarantined"

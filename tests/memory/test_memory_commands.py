"""The commands of docs/memory.md, from an empty folder, and the merge of an edit with a change of the agent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/memory.md").read_text()
PROGRAM = Path(sys.executable).with_name("hermes-exec")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    (tmp_path / ".config/hermes_exec").mkdir(parents=True)
    settings, *_ = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / ".config/hermes_exec/hermes.toml").write_text(settings)
    return kept


def run(environ: dict[str, str], *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = environ | more
    return subprocess.run(argv, env=env, cwd=env["HOME"], capture_output=True, text=True, check=False, timeout=60)


def test_every_command_of_the_page_runs_and_shows_its_output(environ: dict[str, str]) -> None:
    for block in re.findall(r"```console\n\$ (.*?)```", PAGE, re.DOTALL):
        for step in block.split("\n$ "):
            command, *shown = step.strip().splitlines()
            done = run(environ, "bash", "-c", command)
            assert done.returncode == 0, done.stderr
            assert [line for line in shown if line not in done.stdout + done.stderr] == []
    done = run(environ, str(PROGRAM), "memory", "export")
    first, second = json.loads(done.stdout)["memory"]
    assert first == {"text": "The tests run with make check.", "origin": "person", "sources": []}
    assert second["text"] == "Deploys go through canary."


def test_what_is_off_says_how_to_enable_it(environ: dict[str, str], tmp_path: Path) -> None:
    assert "read neither file" not in run(environ, str(PROGRAM), "memory", "show").stderr
    (tmp_path / ".config/hermes_exec/hermes.toml").unlink()
    assert "memory_enabled = true, user_profile_enabled = true" in run(environ, str(PROGRAM), "memory", "show").stderr
    assert "review = true below [learning]" in run(environ, str(PROGRAM), "review", "run").stderr


def test_an_edit_merges_with_what_was_written_meanwhile(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / ".local/state/hermes_exec/memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("one\n§\ntwo\n")
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!/bin/sh\nprintf 'one\\n§\\nmy two\\n' > \"$1\"\nEDITOR={tmp_path}/other hermes-exec memory edit\n"
    )
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nprintf 'one\\n§\\ntheir two\\n' > \"$1\"\n")
    editor.chmod(0o755)
    other.chmod(0o755)
    done = run(environ, str(PROGRAM), "memory", "edit", EDITOR=str(editor))
    assert done.returncode == 0, done.stderr
    assert "1 entries of the agent that disagree were kept" in done.stderr
    assert (folder / "MEMORY.md").read_text() == "one\n§\nmy two\n"
    assert (folder / "MEMORY.md.other").read_text() == "their two\n"


def test_the_shell_of_an_agent_does_not_change_memory_as_a_person(environ: dict[str, str]) -> None:
    changes = ("memory forget x", "memory edit", "memory restore 1", "memory rebuild", "user add x", "user close c1")
    for each in (*changes, "user learn last"):
        done = run(environ, str(PROGRAM), *each.split(), HERMES_EXEC_AGENT="a model")
        assert done.returncode == 2
        assert "this is the shell of an agent" in done.stderr


def test_the_commands_change_the_file_of_the_named_person_alone(environ: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / ".local/state/hermes_exec/memory"
    for name, text in ((".", "mine"), ("people/ops", "hers\n§\ntoo much")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "USER.md").write_text(f"{text}\n")

    def memory(*argv: str, **more: str) -> str:
        done = run(environ, str(PROGRAM), "memory", *argv, "--person", "ops", **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    memory("edit", EDITOR="sed -i s/hers/hers,new/")
    memory("forget", "too much")
    assert (folder / "people/ops/USER.md").read_text() == "hers,new\n"
    assert "hers,new" in memory("history")
    assert [each["text"] for each in json.loads(memory("export"))["user"]] == ["hers,new"]
    memory("restore", "1")
    assert (folder / "people/ops/USER.md").read_text() == "hers\n§\ntoo much\n"
    assert (folder / "USER.md").read_text() == "mine\n"
    (folder / "people/ops/USER.md").unlink()
    run(environ, str(PROGRAM), "memory", "rebuild")
    assert (folder / "people/ops/USER.md").read_text() == "hers\n§\ntoo much\n"
    done = run(environ, str(PROGRAM), "memory", "show", "--person", "../x")
    assert (done.returncode, "not a name of a person" in done.stderr) == (2, True)


def test_a_chat_keeps_its_person_and_a_stream_of_memory_is_no_conversation(environ: dict[str, str]) -> None:
    chat = (str(PROGRAM), "chat", "-q", "hi", "--replay", "demo", "--approve", "deny")
    ops = json.loads(run(environ, *chat, "--json", "--person", "ops").stdout)["conversation"]
    run(environ, *chat, HERMES_EXEC_PERSON="lab")
    run(environ, str(PROGRAM), "user", "add", "likes tea", "--person", "ops")
    for argv, error in (
        ((*chat, "--resume", ops, "--person", "lab"), "is one of ops, not of lab"),
        ((*chat, "--resume", ops, "--guest"), "is one of ops, not of a guest"),
        ((*chat, "--resume", "claims:ops"), "claims:ops records what the agent remembers, and is not a conversation"),
        ((str(PROGRAM), "conversations", "show", "claims:ops"), "is not a conversation"),
        ((str(PROGRAM), "conversations", "export", "claims"), "is not a conversation"),
    ):
        done = run(environ, *argv)
        assert done.returncode == 2
        assert error in done.stderr
        assert len(done.stderr.splitlines()) == 1
    done = run(environ, *chat, "--json", "--continue", "--person", "ops")
    assert json.loads(done.stdout)["conversation"] == ops

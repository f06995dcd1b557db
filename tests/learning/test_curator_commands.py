"""The commands of docs/learning.md, and the runs that the end of a chat and an idle server start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_exec_agent.models import say
from hermes_exec_agent.skills.registry.home import RegistryHome
from hermes_exec_agent.skills.registry.registry import Registry
from tests.rigs.bounded import wait_until
from tests.rigs.curator_library import AGENT, TEXT
from tests.rigs.endpoint import KEY, ScriptedEndpoint
from tests.rigs.skill_makers import guide

PAGE = (Path(__file__).parents[2] / "docs/learning.md").read_text().partition("\n## Curator\n")[2]
PROGRAM = Path(sys.executable).with_name("hermes-exec")


class Person:
    """A home folder, and the programs that a person starts in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
        self.registry_home = RegistryHome(
            home / ".local/state/hermes_exec/skills", home / ".config/hermes_exec/skill-keys"
        )
        for name in ("page-one", "page-two"):
            guide(self.registry_home, home, name, "About the page.", f"{TEXT}\n\n{name}", origin=AGENT)

    def run(self, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=self.environ | more, cwd=self.home, capture_output=True, text=True, check=False, timeout=100
        )

    def write_settings(self) -> None:
        (self.home / ".config/hermes_exec").mkdir(parents=True, exist_ok=True)
        (self.home / ".config/hermes_exec/hermes.toml").write_text("[learning]\ncurator = true\n")

    def history(self) -> list[str]:
        done = self.run("hermes-exec", "curator", "status", "--json")
        assert done.returncode == 0, done.stderr
        return [event["what"] for event in json.loads(done.stdout)["did"]]


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_every_command_of_the_page_runs_and_shows_its_output(person: Person) -> None:
    ran = 0
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            done = person.run("sh", "-c", command)
            assert done.returncode == 0, done.stderr
            for line in expected.splitlines():
                assert line in done.stdout + done.stderr
            ran += 1
    assert ran >= 5
    assert Registry(person.registry_home).skill("page-two").archived
    done = person.run("hermes-exec", "curator", "restore")
    assert (done.returncode, "restored page-two, page-one" in done.stderr) == (0, True)


def test_the_shell_of_an_agent_can_neither_apply_nor_restore(person: Person) -> None:
    for words in (("run", "--apply"), ("restore",)):
        done = person.run("hermes-exec", "curator", *words, HERMES_EXEC_AGENT="m")
        assert (done.returncode, "is for a person" in done.stderr) == (2, True)
    assert person.history() == []


def test_the_first_run_by_itself_is_a_report_and_starts_with_an_idle_server(person: Person) -> None:
    person.write_settings()
    log = person.home / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [PROGRAM, "serve", "--socket", str(person.home / "run" / "socket")],
            env=person.environ, cwd=person.home, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        wait_until(lambda: person.history() == ["reported"], within_s=90)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, log.read_text()
    assert not Registry(person.registry_home).skill("page-two").archived


def test_the_end_of_a_chat_starts_a_run_that_the_chat_does_not_wait_for(person: Person) -> None:
    person.write_settings()
    with ScriptedEndpoint([say("Hello.")]) as endpoint:
        done = person.run(
            "hermes-exec", "chat", "-q", "hi",
            OPENAI_API_KEY=KEY, OPENAI_BASE_URL=endpoint.url, DEFAULT_MODEL="scripted",
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
    wait_until(lambda: person.history() == ["reported"], within_s=90)

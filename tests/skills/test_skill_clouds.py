"""A skill in a vendor's sandbox: refused where nothing holds a rule, and told what is declared where it runs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Refused, Unsupported
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import clouds, runner, targets
from hermes_exec_backends.profiles.modal import ModalProfile
from hermes_exec_policies.load import load_policy
from tests.rigs import modal
from tests.rigs.skill_makers import PERSON, registered, report_of, tree_in

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome

pytestmark = pytest.mark.timeout(300)
OWN = """
extends = "skill-run"
summary = "What a vendor declares is enough"
best_effort = [
    "files.write", "files.run", "files.devices", "files.masked", "network.sockets", "user.ordinary", "user.unique",
    "privileges.capabilities", "privileges.none_gained", "privileges.namespaces", "processes.traced",
    "processes.terminal", "processes.end_together", "syscalls.filtered", "syscalls.native", "syscalls.writable_code",
    "syscalls.set_id_files", "lsm", "limits.cpus", "limits.cpu_time", "limits.disk", "limits.inodes",
    "limits.processes",
    "limits.shared_memory", "limits.file_size", "limits.open_files", "limits.output", "limits.core",
    "limits.locked_memory", "limits.message_queues", "limits.pending_signals",
]
"""
TEXT = """
import os
def run(a: int, b: int) -> dict:
    os.makedirs('/app/data/out', exist_ok=True)
    with open('/app/data/out/a.txt', 'w') as file:
        file.write('left')
    os.symlink('/etc/passwd', '/app/data/link')
    print('said')
    return {'sum': a + b, 'file': __file__, 'uid': os.getuid(), 'home': os.environ['HOME']}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A policy whose required rules a vendor holds by its word."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config/hermes_exec/policies/declared.toml"
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    return "declared"


def under(home: RegistryHome, folder: Path, policy: str, interpreter: str) -> None:
    """The skill, registered as if it had been proven with a policy and an interpreter."""
    found = load_policy(policy)
    tree = tree_in(folder, {"scripts/main.py": TEXT})
    report = report_of(tree, policy=policy, policy_digest=found.digest)
    assert report.evidence is not None
    report = dataclasses.replace(report, evidence=dataclasses.replace(report.evidence, interpreter=interpreter))
    Registry(home).register(tree, report, found, author=PERSON, kernel=os.uname().release)


@pytest.mark.parametrize("target", ["modal:debian", "daytona:debian"])
def test_a_rule_that_nothing_holds_there_refuses_in_one_line(home: RegistryHome, tmp_path: Path, target: str) -> None:
    registered(home, tmp_path)
    with pytest.raises(Unsupported, match=r"the policy skill-run cannot be enforced here: files\.write") as caught:
        asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, place=targets.resolve_target(target)))
    assert "\n" not in str(caught.value)


def test_what_a_vendor_holds_is_declared(own: str) -> None:
    rules = clouds.find_declared_rules(load_policy(own), "modal")
    assert {"network.isolated", "limits.memory", "limits.time", "files.hidden"} <= set(rules)


@pytest.mark.parametrize("options", [{"sandbox": "sb-1"}, {"name": "mine"}, {"volumes": {"/data": "v"}}])
def test_it_gets_a_sandbox_of_its_own(own: str, options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="a sandbox of its own"):
        clouds.profile_of(load_policy(own), ModalProfile(**options))


@pytest.mark.slow
def test_it_runs_in_a_new_sandbox_and_says_what_is_declared(own: str, home: RegistryHome, tmp_path: Path) -> None:
    server = modal.server()
    from hermes_exec_policies.gate import launch as known

    under(home, tmp_path / "skill", own, known.identify_interpreter("/usr/bin/python3"))
    files = tmp_path / "files"
    work = runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, files=files, place=modal.profile())
    outcome = asyncio.run(work)
    assert outcome.ok, (outcome.error, outcome.logs)
    assert (outcome.result["sum"], outcome.result["home"]) == (3, "/app/data")
    assert outcome.result["file"] == "/app/skills/add_numbers/scripts/main.py"
    assert (outcome.files, outcome.left, outcome.logs) == (("out/a.txt",), ("link: not a regular file",), "said\n")
    assert "network.isolated" in outcome.declared
    assert server.call("alive") == []


def test_an_interpreter_of_another_version_is_refused() -> None:
    from hermes_exec_agent.skills.run import preconditions

    version: Any = dataclasses.make_dataclass("V", ["name", "number", "interpreter"])(
        "x", 1, "/usr/bin/python3.11 sha256:0"
    )
    preconditions.check_interpreter(version, "python3.11")
    with pytest.raises(Refused, match=r"python3\.12"):
        preconditions.check_interpreter(version, "python3.12")
    assert sys.version_info >= (3, 11)

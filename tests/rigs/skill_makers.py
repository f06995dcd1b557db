"""Small skills, and reports as the gate gives them, for tests of what comes after the gate."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.skills.registry.home import VARIABLE, RegistryHome, default_home
from hermes_exec_agent.skills.registry.record import Author, Origin, Version
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_policies.gate.launch import identify_interpreter
from hermes_exec_policies.gate.tree import Tree, copy_tree
from hermes_exec_policies.gate.verdict import Evidence, Level, Report, Right
from hermes_exec_policies.load import load_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

    from hermes_exec_policies.gate.cases import Case

PERSON = Author(kind="person", name="somebody")
FILES = {
    "SKILL.md": "---\nname: add-numbers\ndescription: Adds two numbers.\n---\nAdds two numbers.\n",
    "scripts/main.py": 'def run(a: int, b: int) -> int:\n    """Add two numbers."""\n    return a + b\n',
    "tests/test_main.py": "import main\n\n\ndef test_adds():\n    assert main.run(1, 2) == 3\n",
}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def home_in(folder: Path) -> RegistryHome:
    """A registry's folders below a folder of a test's."""
    return RegistryHome(folder / "registry", folder / "keys")


def use_registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryHome:
    """The folders of the registry that the tools of a test find."""
    monkeypatch.setenv(VARIABLE, str(folder / "registry"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    return default_home()


def tree_in(folder: Path, files: Mapping[str, str] | None = None) -> Tree:
    """A copy of a small skill; ``files`` are by their paths, and replace or add some."""
    source = folder / "source"
    for path, text in {**FILES, **(files or {})}.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    return copy_tree(source, folder / "copy")


def report_of(
    tree: Tree, name: str = "add-numbers", *, level: Level = Level.PERSON, held: Sequence[Case] = (), **fields: Any
) -> Report:
    """What the gate says of a skill that passed."""
    evidence = Evidence(
        level=level,
        cases=2,
        tests=1,
        mutants=3,
        killed=3,
        specification="5" * 64,
        interpreter=identify_interpreter("/usr/bin/python3"),
        held=tuple(case.facts() for case in held),
    )
    policy = load_policy("skill-run")
    known: dict[str, Any] = {
        "findings": (),
        "name": name,
        "module": name.replace("-", "_"),
        "summary": "Adds two numbers.",
        "digest": tree.digest,
        "entry": "scripts/main.py",
        "function": "run",
        "schema": SCHEMA,
        "policy": policy.name,
        "policy_digest": policy.digest,
        "evidence": evidence,
        "rights": tuple(Right),
    }
    return Report(**{**known, **fields})


def guide(
    home: RegistryHome,
    folder: Path,
    name: str,
    about: str,
    text: str = "Look before you act.",
    *,
    origin: Origin | None = None,
    files: Mapping[str, bytes] | None = None,
    registry: Registry | None = None,
) -> Version:
    """A version of a guide, of a person if ``origin`` is left out, registered as if it had been judged."""
    source = folder / name
    every = {"SKILL.md": f"---\nname: {name}\ndescription: {about}\n---\n{text}\n".encode(), **(files or {})}
    for path, data in every.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    tree = copy_tree(source, folder / f"copy of {name}")
    empty: dict[str, Any] = {"module": "", "entry": "", "function": "", "schema": {}}
    report = report_of(tree, name, summary=about, rights=(Right.READ,), **empty)
    author = Author(kind="agent", shells=("docker",)) if origin and origin.kind == "untrusted" else PERSON
    return (registry or Registry(home)).register(
        tree, report, load_policy("skill-run"), author=author, kernel=platform.release(), origin=origin
    )


def registered(
    home: RegistryHome,
    folder: Path,
    name: str = "add-numbers",
    author: Author = PERSON,
    files: Mapping[str, str] | None = None,
    *,
    level: Level = Level.PERSON,
    held: Sequence[Case] = (),
    origin: Origin | None = None,
) -> Version:
    """A version of a small skill, registered as if it had passed the gate."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = tree_in(folder, files)
    report = report_of(tree, name, level=level, held=held)
    return Registry(home).register(
        tree, report, load_policy("skill-run"), author=author, kernel=platform.release(), origin=origin
    )

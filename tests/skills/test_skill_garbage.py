"""What nobody needs goes; what a skill that could run needs stays."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry.content import ContentChanged
from hermes_exec_agent.skills.registry.garbage import collect
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import preconditions, runner
from hermes_exec_policies.gate.environments import Environments
from hermes_exec_policies.load import load_policy
from tests.rigs.skill_makers import PERSON, report_of, tree_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_agent.skills.registry.record import Version


def linked(path: Path) -> None:
    """Put a link to the same content where ``path`` is."""
    away = path.parent.with_name("away")
    path.rename(away)
    path.symlink_to(away)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda folder: (folder / "one.py").write_text("one = 2\n"),
    "a mode": lambda folder: (folder / "one.py").chmod(0o755),
    "a folder's mode": lambda folder: (folder / "pack").chmod(0o777),
    "a file more": lambda folder: (folder / "json.py").write_text(""),
    "an empty folder more": lambda folder: (folder / "__pycache__").mkdir(),
    "a file less": lambda folder: (folder / "one.py").unlink(),
    "another name": lambda folder: (folder / "one.py").rename(folder / "two.py"),
    "a link to the same file": lambda folder: linked(folder / "one.py"),
    "a link to the same folder": lambda folder: linked(folder / "pack"),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
}


def packages(home: RegistryHome, text: str) -> Path:
    """An environment of two small modules, kept as the gate keeps it."""
    home.prepare()
    made = home.folder.parent / f"unpacked-{len(list(home.folder.parent.iterdir()))}"
    (made / "pack").mkdir(parents=True)
    (made / "one.py").write_text(text)
    (made / "pack/__init__.py").write_text("")
    return Environments(home.environments).store(made, f"lock of {text}", "python")


def needing(home: RegistryHome, folder: Path, name: str, kept: Path) -> Version:
    """A skill that is registered with these packages."""
    folder.mkdir()
    tree = tree_in(folder, {"README.md": name})
    report = report_of(tree, name, environment=kept.name, environment_folder=str(kept))
    return Registry(home).register(tree, report, load_policy("skill-run"), author=PERSON, kernel=os.uname().release)


def test_packages_go_when_no_skill_that_could_run_needs_them(home: RegistryHome, tmp_path: Path) -> None:
    used, archived, strange = (packages(home, f"one = '{word}'\n") for word in ("used", "archived", "strange"))
    needing(home, tmp_path / "1", "used", used)
    needing(home, tmp_path / "2", "gone", archived)
    registry = Registry(home)
    registry.mark("archived", "gone")
    gone = collect(registry, older_s=0.0)
    assert (sorted(gone.environments), gone.content) == (sorted([archived.name, strange.name]), ())
    assert [each.name for each in home.environments.iterdir() if each.is_dir()] == [used.name]


def test_packages_that_were_just_asked_for_stay(home: RegistryHome, tmp_path: Path) -> None:
    kept = packages(home, "one = 1\n")
    os.utime(kept, (0, 0))
    assert Environments(home.environments).find("lock of one = 1\n", "python") == kept
    assert collect(Registry(home), older_s=3600.0).environments == ()
    os.utime(kept, (time.time() - 7200, time.time() - 7200))
    assert collect(Registry(home), older_s=3600.0).environments == (kept.name,)


def test_packages_that_were_damaged_are_put_aside_and_can_be_made_again(home: RegistryHome) -> None:
    kept = packages(home, "one = 1\n")
    store = Environments(home.environments)
    assert store.find("lock of one = 1\n", "python") == kept
    (kept / "one.py").unlink()  # as a removal that was killed leaves it
    assert store.find("lock of one = 1\n", "python") is None
    assert packages(home, "one = 1\n") == kept
    assert store.find("lock of one = 1\n", "python") == kept


def test_files_of_no_version_go_and_those_of_every_version_stay(home: RegistryHome, tmp_path: Path) -> None:
    version = needing(home, tmp_path / "1", "used", packages(home, "one = 1\n"))
    (home.content / ("0" * 64)).mkdir()
    assert collect(Registry(home)).content == ("0" * 64,)
    Registry(home).mark("archived", "used")
    assert collect(Registry(home)).content == ()
    Registry(home).verify(version)


def test_a_skill_without_its_packages_is_refused_and_not_kept_back(home: RegistryHome, tmp_path: Path) -> None:
    version = needing(home, tmp_path / "1", "used", packages(home, "one = 1\n"))
    Environments(home.environments).collect_garbage(())
    with pytest.raises(Refused, match="not kept any more"):
        preconditions.prepare_packages(Registry(home), version, tmp_path)
    assert Registry(home).skill("used").state == "ready"


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_packages_is_noticed_and_keeps_the_version_back(
    home: RegistryHome, tmp_path: Path, change: str
) -> None:
    kept = packages(home, "one = 1\n")
    version = needing(home, tmp_path / "1", "used", kept)
    (tmp_path / "good").mkdir()
    assert preconditions.prepare_packages(Registry(home), version, tmp_path / "good") is not None
    CHANGES[change](kept)
    (tmp_path / "bad").mkdir()
    with pytest.raises(ContentChanged, match="packages were changed"):
        preconditions.prepare_packages(Registry(home), version, tmp_path / "bad")
    with pytest.raises(Refused, match="quarantine"):
        asyncio.run(runner.run(Registry(home), "used", {"a": 1, "b": 2}))

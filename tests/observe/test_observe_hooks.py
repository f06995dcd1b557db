"""Hooks of other distributions are called for each command, see no secret, and never break one."""

from __future__ import annotations

import asyncio
import importlib
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.config.load import check, load_settings
from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable
from hermes_exec.observe import hooks
from tests.rigs.distributions import Site, site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["site"]

CODE = """
class Recorder:
    created = 0
    def __init__(self):
        Recorder.created += 1
        self.events = []
    def on_command_start(self, event):
        self.events.append(event)
    def on_command_end(self, event):
        self.events.append(event)

class Ends:
    def __init__(self):
        self.events = []
    def on_command_end(self, event):
        self.events.append(event)

recorder = Recorder()
ends = Ends()

def create():
    return recorder

class Broken:
    def on_command_start(self, event):
        raise SystemExit("broken at the start")
    def on_command_end(self, event):
        raise ValueError("broken at the end")

class Empty:
    pass

def fails():
    raise OSError("no such device")
"""
POINTS = {
    "record": "lab_hooks:create",
    "ends": "lab_hooks:ends",
    "class": "lab_hooks:Recorder",
    "broken": "lab_hooks:Broken",
    "empty": "lab_hooks:Empty",
    "fails": "lab_hooks:fails",
    "missing": "lab_hooks:nothing",
}


@pytest.fixture(autouse=True)
def configured(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution with hooks, and the user's configuration file."""
    site.install("lab-hooks", {hooks.GROUP: POINTS}, CODE, "lab_hooks")
    monkeypatch.setattr(hooks, "_loaded", {})
    (tmp_path / "hermes.toml").write_text("")
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(tmp_path / "hermes.toml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "hermes.toml"
    sys.modules.pop("lab_hooks", None)


def run(command: Any, *, carrier: Any = None, **options: Any) -> hermes_exec.Result:
    async def work() -> hermes_exec.Result:
        async with hermes_exec.open("local", carrier=carrier) as terminal:
            return await terminal.run(command, **options)

    return asyncio.run(work())


def events(name: str = "recorder") -> list[Any]:
    found: list[Any] = getattr(importlib.import_module("lab_hooks"), name).events
    return found


@pytest.mark.parametrize("carrier", ["guest", "plain"])
def test_a_hook_gets_the_start_and_the_end_of_a_command(configured: Path, carrier: str) -> None:
    configured.write_text('hooks = ["record"]\n')
    run("printf 123; exit 3", cwd="/", carrier=carrier)
    start, end = events()
    assert (start.kind, start.command, start.cwd, start.target) == ("shell", "printf 123; exit 3", "/", "local")
    assert (end.exit_code, end.signal, end.timed_out, end.stdout_bytes, end.error) == (3, None, False, 3, "")
    assert (start.terminal, start.id) == (end.terminal, end.id)
    assert start.at <= end.at


def test_a_command_that_does_not_end_says_why(configured: Path) -> None:
    configured.write_text('hooks = ["record"]\n')
    with pytest.raises(hermes_exec.UsageError):
        run(["true"], cwd="/no/such/folder")
    _, end = events()
    assert (end.exit_code, end.signal) == (None, None)
    assert "no folder to run in" in end.error


def test_jobs_and_ptys_are_reported_too(configured: Path) -> None:
    configured.write_text('hooks = ["record"]\n')

    async def work() -> None:
        async with hermes_exec.open("local") as terminal:
            job = await terminal.start(["true"], name="nightly")
            await job.wait()
            await job.prune()
            async with terminal.pty(["true"]) as pty:
                while await pty.read():
                    pass
                await pty.wait()

    asyncio.run(work())
    kinds = [(event.kind, event.session) for event in events() if isinstance(event, hooks.CommandStart)]
    assert kinds == [("job", "nightly"), ("pty", "")]
    assert [event.exit_code for event in events() if isinstance(event, hooks.CommandEnd)] == [0, 0]


def test_a_hook_may_have_one_method_and_be_an_object_a_class_or_a_factory(configured: Path) -> None:
    configured.write_text('hooks = ["record", "ends", "class"]\n')
    run("true")
    run("true")
    assert len(events()) == 4
    assert [type(event) for event in events("ends")] == [hooks.CommandEnd] * 2
    assert importlib.import_module("lab_hooks").Recorder.created == 2, "the module's own, and one for all terminals"


def test_secrets_are_removed_before_a_hook_sees_them(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured.write_text('hooks = ["record"]\ndefault = "box"\n[backends.box]\ntype = "local"\nsecrets = ["TOKEN"]\n')
    monkeypatch.setenv("TOKEN", "sesame-open")

    async def work() -> None:
        async with hermes_exec.open() as terminal, terminal.session("sesame-open") as session:
            await session.run("true # sesame-open")
            with pytest.raises(HermesError):
                await session.run("true", cwd="/sesame-open")

    asyncio.run(work())
    assert len(events()) == 4
    assert "sesame" not in repr(events())
    assert events()[0].command == "true # [secret TOKEN]"


def test_a_hook_that_raises_is_logged_once_and_breaks_no_command(
    configured: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configured.write_text('hooks = ["broken", "record"]\n')
    with caplog.at_level(logging.WARNING, hooks.GROUP):
        assert run("echo fine").stdout == b"fine\n"
        assert run(["echo", "fine"]).ok
    (record,) = [each for each in caplog.records if each.name == hooks.GROUP]
    assert "'broken' failed in on_command_start" in record.getMessage()
    assert len(events()) == 4, "hooks after the broken one are still called"


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        (
            "recrod",
            ConfigError,
            "no installed distribution registers the hook 'recrod'; the nearest known one is 'record'",
        ),
        ("empty", PlaceUnavailable, "neither of the methods on_command_start and on_command_end"),
        ("fails", PlaceUnavailable, r"cannot be created: OSError\('no such device'\)"),
        ("missing", PlaceUnavailable, "cannot be loaded"),
    ],
)
def test_a_hook_that_cannot_be_loaded_prevents_the_opening(
    configured: Path, name: str, kind: type[HermesError], why: str
) -> None:
    configured.write_text(f'hooks = ["{name}"]\n')
    with pytest.raises(kind, match=why):
        run("true")


def test_profile_check_names_an_unknown_hook(configured: Path) -> None:
    configured.write_text('hooks = ["nobody"]\n')
    (problem,) = check(load_settings())
    assert "no installed distribution registers the hook 'nobody'" in problem


@pytest.mark.parametrize("value", ['"record"', "[1]", "{ record = true }"])
def test_hooks_are_a_list_of_names(configured: Path, value: str) -> None:
    configured.write_text(f"hooks = {value}\n")
    with pytest.raises(ConfigError, match=r"'hooks' should be a list of names\. Try: hooks = \[\"NAME\"\]"):
        load_settings()


def test_an_installed_hook_that_is_not_named_is_not_loaded() -> None:
    run("true")
    assert "lab_hooks" not in sys.modules


def test_without_hooks_opening_imports_none_of_their_code() -> None:
    code = """
import asyncio, sys, hermes_exec
async def work():
    async with hermes_exec.open("local") as terminal:
        await terminal.run("true")
asyncio.run(work())
print("hermes_exec.observe.hooks" in sys.modules, "importlib.metadata" in sys.modules)
"""
    argv = [sys.executable, "-I", "-c", code]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[0] == "False"

"""What a dead orchestrator left on another host is come back to by the profile that leads there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hermes_exec import Orchestrator, Pool
from hermes_exec.pool.recovery import Fate
from tests.rigs.processes import alive
from tests.rigs.sshd import Sshd

Bounded = Callable[..., None]
Soon = Callable[..., Awaitable[None]]
Killed = Callable[..., AbstractContextManager[list[int]]]


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The profile of a host, with options that no one-line target can tell."""
    with Sshd() as sshd:
        profile = sshd.profile()
        texts = ("host", "user", "key_path", "known_hosts_path", "config_path")
        lines = [f"{name} = {json.dumps(str(getattr(profile, name)))}" for name in texts]
        (tmp_path / "config" / "hermes_exec").mkdir(parents=True)
        text = "\n".join(["[backends.far]", "type = 'ssh'", f"port = {profile.port}", "agent = false", *lines])
        (tmp_path / "config" / "hermes_exec" / "hermes.toml").write_text(text)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        yield "far"


@pytest.fixture
def shared() -> Generator[Path]:
    """A folder that the host's user reaches too."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.slow
def test_over_ssh_jobs_are_attached_to_and_the_rest_is_ended(
    shared: Path, far: str, killed: Killed, bounded: Bounded, soon: Soon, state: Path
) -> None:
    async def scenario(alice: int, bob: int) -> None:
        async with Orchestrator({"p": Pool(far, audit=False)}) as orchestrator:
            found = {each.key: each for each in orchestrator.recovered}
            assert {key: each.fate for key, each in found.items()} == {
                "alice": Fate.REAPED,
                "bob": Fate.ATTACHED,
                "": Fate.REAPED,
            }
            await soon(lambda: not alive(alice))
            lease = found["bob"].lease
            assert lease is not None
            job = await lease.terminal.job(found["bob"].jobs[0].id)
            (shared / "go").touch()
            assert (await job.wait()).stdout.endswith(b"end\n")
            await job.prune()
            await lease.release()
            await soon(lambda: not alive(bob))
        assert list(state.iterdir()) == []

    with killed(shared, target=far) as (alice, bob):
        bounded(scenario(alice, bob))

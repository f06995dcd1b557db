"""Opening a Profile or a Backend object: as the same profile of a file, or refused in one line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

import hermes_exec
import hermes_exec.sync
from hermes_exec.backend import OpenOptions
from hermes_exec.config.plan import Plan
from hermes_exec.config.profile import Profile
from hermes_exec.config.secrets import SecretSource
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec.wrapper import PreparedBackend
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import (
    BubblewrapProfile,
    DaytonaProfile,
    DockerProfile,
    LocalProfile,
    ModalProfile,
    SingularityProfile,
    SlurmProfile,
    SshProfile,
)
from hermes_exec_backends.ssh import SshBackend

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = {"TOKEN": SecretSource.parse("env:HX_TOKEN")}
ASKS: dict[str, Any] = {
    "cwd": "/srv",
    "env": {"PLAIN": "yes"},
    "secrets": SECRETS,
    "setup": ("module load x",),
    "login": True,
    "shell": "/bin/sh",
    "python": "/opt/python3",
    "carrier": "guest",
    "lease_s": 77.0,
    "job_lease_s": 99.0,
    "max_output": 4096,
}
PROFILES: list[Profile] = [
    LocalProfile(**ASKS),
    DockerProfile(**ASKS),
    SshProfile(host="example", **ASKS),
    BubblewrapProfile(**ASKS),
    SingularityProfile(image="/x.sif", **ASKS),
    SlurmProfile(**ASKS),
    ModalProfile(**ASKS),
    DaytonaProfile(**ASKS),
]
FIELDS = ("cwd", "env", "carrier", "lease_s", "job_lease_s", "max_output", "session", "python")
each_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.type)


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the user's own, which is empty, and the secret."""
    path = tmp_path / "hermes.toml"
    path.write_text("")
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(path))
    monkeypatch.setenv("HX_TOKEN", "sesame")
    return path


@each_profile
@pytest.mark.parametrize("form", ["profile", "backend"])
def test_every_kind_is_planned_as_its_profile_says(profile: Profile, form: str) -> None:
    from hermes_exec.config import registry

    plan = Plan(profile if form == "profile" else registry.find_backend_class(profile.type).from_profile(profile))
    assert {name: getattr(plan, name) for name in FIELDS} == {
        **{name: ASKS.get(name) for name in FIELDS},
        "env": {"PLAIN": "yes", "TOKEN": "sesame"},
        "session": {"shell": b"/bin/sh", "login": True, "setup": [b"module load x"]},
    }
    assert [secret.reveal() for secret in plan.secrets] == ["sesame"]


def test_limits_of_the_configuration_hold_for_a_profile_object(configured: Path) -> None:
    configured.write_text("[limits]\ntimeout_s = 3.0\n")
    assert Plan(LocalProfile()).timeout_s == 3.0


def test_via_of_a_profile_object_is_looked_up_in_the_configuration(configured: Path) -> None:
    configured.write_text('[backends.login]\ntype = "ssh"\nhost = "example"\nenv = {OUTSIDE = "1"}\n')
    plan = Plan(SlurmProfile(via="login"))
    assert plan.target == "slurm+login"
    assert plan.backend.target == "slurm+ssh://example"
    assert isinstance(cast("Any", plan.backend).outer, PreparedBackend)
    with pytest.raises(ConfigError, match="'slurm' is inside of 'nowhere'"):
        Plan(SlurmProfile(via="nowhere"))


def test_a_backend_keeps_the_lease_that_was_set_on_it() -> None:
    backend = LocalBackend(LocalProfile(lease_s=77.0))
    backend.options = OpenOptions(lease_s=30.0)
    assert Plan(backend).lease_s == 30.0


def test_a_backend_inside_of_a_prepared_one_is_taken(configured: Path) -> None:
    host = SshBackend(SshProfile(host="example", env={"OUTSIDE": "1"}))
    plan = Plan(
        BubblewrapBackend.nest(BubblewrapProfile(env={"INSIDE": "1"}), PreparedBackend(host, env={"OUTSIDE": "1"}))
    )
    assert plan.env == {"INSIDE": "1"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (5, "not int"),
        ({"type": "docker", "env": {"KEY": "sesame"}}, "not dict"),
        (LocalBackend, "not ABCMeta"),
        (Profile(type="docker"), "a Profile cannot be a profile of the type 'docker'"),
        (
            BubblewrapBackend.nest(
                BubblewrapProfile(), SshBackend(SshProfile(host="h", setup=("x",), secrets=SECRETS))
            ),
            "ssh://h: a Backend outside of another one cannot apply secrets, setup of its profile",
        ),
        (SshBackend(SshProfile(host="h", via="login")), "not inside of 'login'"),
    ],
    ids=["int", "dict", "class", "base", "outside", "via"],
)
@pytest.mark.parametrize("face", ["async", "sync"])
def test_what_cannot_be_opened_is_refused_in_one_line(target: Any, words: str, face: str) -> None:
    async def opened() -> None:
        await hermes_exec.open(target)

    with pytest.raises(UsageError, match=words) as refusal:
        asyncio.run(opened()) if face == "async" else hermes_exec.sync.open(target)
    assert "\n" not in str(refusal.value)
    assert "sesame" not in str(refusal.value)

"""Specifications: what makes none, when two are the same, and that a launcher's words are read as anybody's."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_backends.sandbox import Bind, Confinement, Landlock, Limits, PathRule, PortRule, Tmpfs
from hermes_exec_backends.sandbox.control import parse_report

RULES = Landlock(
    handled_fs=7,
    paths=(PathRule(path="/usr", access=5),),
    handled_net=1,
    ports=(PortRule(port=80, access=1),),
    scoped=1,
)
WHOLE = Confinement(
    binds=(Bind(source="/usr", target="/usr"),),
    links=(("/bin", "usr/bin"),),
    files=(("/etc/passwd", b"x"),),
    tmpfs=(Tmpfs(target="/app/data", size=1000, inodes=10),),
    masked=("/proc/keys",),
    env=(("A", "b"),),
    uid=60_000,
    gid=60_000,
    seccomp=b"12345678",
    landlock=RULES,
    apparmor="profile",
    rlimits=(("nofile", 1, 1),),
)
CHANGES: dict[str, Any] = {
    "binds": (Bind(source="/usr", target="/usr", writable=True),),
    "links": (("/bin", "usr/sbin"),),
    "files": (("/etc/passwd", b"y"),),
    "tmpfs": (Tmpfs(target="/app/data", size=1000, inodes=11),),
    "masked": (),
    "proc": False,
    "dev": True,
    "hostname": "other",
    "cwd": "/usr",
    "env": (("A", "c"),),
    "uid": 60_001,
    "gid": 60_001,
    "namespaces": frozenset({"user", "pid"}),
    "seccomp": b"87654321",
    "filter_document": "{}",
    "landlock": dataclasses.replace(RULES, scoped=0),
    "apparmor": "other",
    "rlimits": (("nofile", 1, 2),),
    "required": frozenset[str](),
}


def test_the_digest_is_of_the_values() -> None:
    assert WHOLE.digest == dataclasses.replace(WHOLE).digest
    assert len(WHOLE.digest) == 64


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Confinement)])
def test_the_digest_changes_with_every_field(field: str) -> None:
    changed = dataclasses.replace(WHOLE, **{field: CHANGES[field]})
    if field == "dev":  # it has to be there for what is covered
        changed = dataclasses.replace(WHOLE, dev=False, masked=())
        assert changed.digest != dataclasses.replace(WHOLE, masked=()).digest
    else:
        assert changed.digest != WHOLE.digest


def test_no_two_specifications_have_the_same_bytes() -> None:
    """Values that run together give other digests than those that are apart."""
    pairs = [(("A", "b"), ("C", "d")), (("A", "bC"), ("", "d")), (("AbC", "d"),)]
    digests = {dataclasses.replace(WHOLE, env=tuple(pair for pair in each if pair[0])).digest for each in pairs}
    assert len(digests) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bind(source="usr", target="/usr"),
        lambda: Bind(source="/usr", target="/usr/../etc"),
        lambda: Bind(source="/usr//bin", target="/x"),
        lambda: Bind(source="/usr", target="/x\0"),
        lambda: Tmpfs(target="/x", size=0, inodes=1),
        lambda: Tmpfs(target="/x", size=1, inodes=0),
        lambda: PathRule(path="./x", access=1),
        lambda: Limits(wall_s=0),
        lambda: Limits(memory=-1),
        lambda: Confinement(cwd="x"),
        lambda: Confinement(masked=("proc",)),
        lambda: Confinement(namespaces=frozenset({"user", "time"})),
        lambda: Confinement(required=frozenset({"selinux"})),
        lambda: Confinement(env=(("A=B", "c"),)),
        lambda: Confinement(env=(("A", "c\0"),)),
        lambda: Confinement(seccomp=b"123"),
        lambda: Confinement(masked=("/proc/keys",), dev=False),
        lambda: Confinement(
            binds=(Bind(source="/x", target="/app/x"),), tmpfs=(Tmpfs(target="/app", size=1, inodes=1),)
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


def test_what_a_launcher_says_is_read() -> None:
    told = parse_report(
        b"applied\nlandlock 7 8191 3 3\nlacking-apparmor none: at all\nrlimit-nofile 1 2", b"ready filtered"
    )
    assert (told.landlock, told.lacking, told.rlimits) == (
        (7, 8191, 3, 3),
        {"apparmor": "none: at all"},
        {"nofile": (1, 2)},
    )
    assert told.seccomp


@pytest.mark.parametrize(
    ("applied", "ready"),
    [
        (b"applied", b""),
        (b"applied", b"ready steady"),
        (b"ready", b"ready"),
        (b"applied\nseccomp", b"ready"),
        (b"applied\nseccomp 2", b"ready"),
        (b"applied\nlandlock 1 2", b"ready"),
        (b"applied\nlandlock a b c d", b"ready"),
        (b"applied\nrlimit-nofile 1", b"ready"),
        (b"applied\n\xff\xff 1", b"ready"),
    ],
)
def test_what_no_launcher_says_is_refused(applied: bytes, ready: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_report(applied, ready)


@pytest.mark.parametrize("name", ["launcher", "libc", "mechanisms", "userns"])
def test_the_launcher_is_written_for_old_interpreters(name: str) -> None:
    spec = importlib.util.find_spec(f"hermes_exec_backends.sandbox.{name}")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(), feature_version=(3, 6))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= {"_signal", "_socket", "marshal", "os", "resource", "sys"}

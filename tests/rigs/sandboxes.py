"""Specifications of sandboxes, and a program run in one: here, or by an ordinary user's process.

``python -m tests.rigs.sandboxes UID`` becomes that user, runs the Python text of its standard input in a sandbox, and
prints as JSON what came of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from hermes_exec.errors import ConfigError
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox import Bind, Confinement, Landlock, Limits, PathRule, Tmpfs
from hermes_exec_backends.sandbox.control import launcher_payload
from hermes_exec_backends.sandbox.observe import WatchSpec
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render.bpf import load_program
from hermes_exec_policies.render.filter import build_filter

import_module("concurrent.futures.thread")  # what is imported late may be out of that user's reach
PYTHON = "/usr/bin/python3"
SYSTEM: dict[str, Any] = {
    "binds": (Bind(source="/usr", target="/usr"),),
    "links": tuple(
        (f"/{name}", os.readlink(f"/{name}")) for name in ("bin", "lib", "lib64") if Path("/", name).is_symlink()
    ),
    "tmpfs": (Tmpfs(target="/app/data", size=1 << 20, inodes=40),),
    "env": (("PATH", "/usr/bin:/bin"),),
}


RIGHTS = (1 << 13) - 1
NOT_EXECUTE = RIGHTS & ~1
PATHS = (
    PathRule(path="/usr", access=0b1101),
    PathRule(path="/proc", access=0b1100),
    PathRule(path="/dev", access=NOT_EXECUTE),
    PathRule(path="/tmp", access=NOT_EXECUTE),
    PathRule(path="/dev/shm", access=NOT_EXECUTE),
)
POLICIES: dict[str, dict[str, Any]] = {
    "landlocked": {"landlock": Landlock(handled_fs=RIGHTS, paths=PATHS, scoped=3)},
    "impossible": {"landlock": Landlock(handled_fs=RIGHTS, minimum_abi=99)},
    "bounded": {"rlimits": (("nofile", 77, 77),), "masked": ("/proc/version", "/nowhere")},
}


def named(policy: str, **_: Any) -> tuple[Confinement, Limits]:
    """The confinement of a policy of these tests, in place of the entry point ``policies``."""
    if policy not in POLICIES:
        raise ConfigError(f"no policy {policy!r}")
    folders = ("/tmp", "/dev/shm", "/open")
    fields: dict[str, Any] = {
        **SYSTEM,
        "tmpfs": tuple(Tmpfs(target=path, size=8 << 20, inodes=1000) for path in folders),
        "env": (("PATH", "/usr/bin:/bin"), ("HOME", "/tmp")),
        "cwd": "/tmp",
        "uid": 61_900 if os.geteuid() == 0 else None,
        **POLICIES[policy],
    }
    return Confinement(**fields), Limits()


def specification(**fields: Any) -> Confinement:
    """The machine's system and a folder for data, and whatever else is said; ``more_binds`` are added."""
    fields["binds"] = (*SYSTEM["binds"], *fields.pop("more_binds", ()))
    return Confinement(**{**SYSTEM, **fields})


def refusing() -> bytes:
    """The filter of skills that are checked."""
    found = build_filter(load_policy("skill-validate"))
    assert found is not None
    return load_program(found)


async def run_text(
    confinement: Confinement,
    text: str,
    *,
    stdin: bytes = b"",
    limits: Limits | None = None,
    into: Path | None = None,
    watch: WatchSpec | None = None,
) -> dict[str, Any]:
    """Run a Python text in a sandbox; gives what was seen."""
    words = [PYTHON, "-I", "-c", text]
    bounded = limits or Limits(wall_s=50)
    async with await start(confinement, words, stdin=stdin, limits=bounded, watch=watch) as run:
        run.go()
        ended = await run.wait()
        seen: dict[str, Any] = {
            "exit": (ended.exit.code, ended.exit.signal),
            "limit": ended.limit,
            "stdout": ended.stdout.decode(),
            "stderr": ended.stderr.decode(),
            "facts": dataclasses.asdict(run.facts),
            "report": dataclasses.asdict(run.report),
            "enforcers": dict(run.limit_enforcers),
            "acts": [dataclasses.asdict(each) for each in ended.acts],
            "left": ended.left,
        }
        if into is not None:
            seen["collected"] = dataclasses.asdict(run.collect("/app/data", into, max_bytes=1 << 20))
    return seen


def as_user(uid: int, text: str, **options: Any) -> dict[str, Any]:
    """The same, by a process of an ordinary user."""
    root = Path(__file__).resolve().parents[2]
    words = [sys.executable, "-m", "tests.rigs.sandboxes", str(uid), json.dumps(options)]
    path = os.pathsep.join(str(root / name) for name in (".", "backends", "policies", "agent"))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        words, input=text, check=False, capture_output=True, text=True, cwd=root, env=environment, timeout=55
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def _main() -> None:
    uid, options = int(sys.argv[1]), json.loads(sys.argv[2])
    launcher_payload(specification(), [PYTHON], mounts=True)  # what it reads from disk may be out of that user's reach
    text = sys.stdin.read()
    into = Path(options.pop("into")) if "into" in options else None
    calls = options.pop("watched", None)
    watch = None if calls is None else WatchSpec(frozenset(calls), lambda _: True)
    confinement = specification(seccomp=refusing()) if watch else specification()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    print(
        json.dumps(
            asyncio.run(
                run_text(confinement, text, into=into, limits=Limits(**options) if options else None, watch=watch)
            )
        )
    )


if __name__ == "__main__":
    _main()

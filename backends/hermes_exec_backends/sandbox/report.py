"""What the launcher tells on its socket. It is ours, but it is told from inside, so it is read as anybody's."""

from __future__ import annotations

from dataclasses import dataclass, field

LONGEST = 64 << 10
_NAMES = ("mounts", "landlock", "apparmor")
_PREFIXES = ("rlimit-", "lacking-")


@dataclass(frozen=True, slots=True)
class Report:
    """What was applied before the program was started."""

    no_new_privs: bool = True
    """Always: nothing is started without it."""
    seccomp: bool = False
    landlock: tuple[int, int, int, int] | None = None
    """The kernel's version of it, and the bits that are handled: of files, of ports, and scopes."""
    apparmor: str = ""
    """The profile that the program starts under."""
    rlimits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    lacking: dict[str, str] = field(default_factory=dict[str, str])
    """Mechanisms that were asked for, not required, and not to be had; and why."""


def parse(applied: bytes, ready: bytes) -> Report:
    """Read the two messages that come before the program is started.

    Raises:
        ValueError: that is not what a launcher says.
    """
    head, *lines = applied.decode("utf-8").split("\n")
    if head != "applied" or ready not in {b"ready", b"ready filtered"}:
        raise ValueError("the launcher said something else than what it applied")
    said = dict(line.split(" ", 1) for line in lines)
    if any(name not in _NAMES and not name.startswith(_PREFIXES) for name in said):
        raise ValueError("the launcher told of something that it does not apply")
    landlock = tuple(map(int, said["landlock"].split())) if "landlock" in said else None
    rlimits = {name: tuple(map(int, value.split())) for name, value in _below(said, "rlimit-").items()}
    if (landlock is not None and len(landlock) != 4) or any(len(bounds) != 2 for bounds in rlimits.values()):
        raise ValueError("the launcher told numbers that mean nothing")
    return Report(
        seccomp=ready == b"ready filtered",
        landlock=landlock,
        apparmor=said.get("apparmor", ""),
        rlimits={name: (soft, hard) for name, (soft, hard) in rlimits.items()},
        lacking=_below(said, "lacking-"),
    )


def _below(said: dict[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in said.items() if name.startswith(prefix)}

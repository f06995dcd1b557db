"""Conversion of a profile to the options that start its container."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.singularity import SingularityProfile

PROGRAMS = ("apptainer", "singularity")
INSTANCE = "instance://"


def start_options(profile: SingularityProfile) -> list[str]:
    """Return the options of ``exec`` and ``instance start``, but for user namespace and home (set by the target)."""
    words: list[str] = []
    flags = {
        "--containall": profile.contain,
        "--cleanenv": profile.clean_env,
        "--writable-tmpfs": profile.writable_tmpfs and not profile.overlay,  # the two exclude each other
        "--fakeroot": profile.fakeroot,
        "--nv": profile.nv,
        "--rocm": profile.rocm,
    }
    words += [flag for flag, wanted in flags.items() if wanted]
    if profile.network == "none":
        words += ["--net", "--network", "none"]
    for bind in profile.binds:
        words += ["--mount", mount(bind.source, bind.target, writable=bind.writable)]
    for overlay in profile.overlay:
        words += ["--overlay", overlay]
    for option in profile.security:
        words += ["--security", option]
    limits = {"--cpus": profile.cpus, "--memory": profile.memory, "--pids-limit": profile.pids}
    for option, value in limits.items():
        if value is not None:
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def home_mode(profile: SingularityProfile) -> str:
    """Return how the lease process sets up the home directory: a contained one is already empty and private."""
    if profile.home:
        return "shared"
    return "" if profile.contain else "private"


def limits_asked(profile: SingularityProfile) -> list[str]:
    """Return the names of the limits that the profile sets."""
    return [name for name in ("cpus", "memory", "pids") if getattr(profile, name) is not None]


def mount(source: str, target: str, *, writable: bool) -> str:
    """Return a mount as one argument."""
    # Fields are separated as in a CSV file, so that any path can be written; --bind splits at every colon.
    fields = ["type=bind", f"source={source}", f"destination={target}"]
    fields += [] if writable else ["ro"]
    return ",".join('"' + field.replace('"', '""') + '"' if set(field) & set(',"\n') else field for field in fields)

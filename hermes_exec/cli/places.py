"""Open a place for a command, by what the flags, the variables and the files say."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.cli.flags import flags
from hermes_exec.cli.say import note

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from hermes_exec.config.settings import Settings
    from hermes_exec.observe.redact import Redactor
    from hermes_exec.terminal import Terminal

_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the configuration says about every command."""

    timeout_s: float | None = None
    max_output: int | None = None


def defaults() -> Defaults:
    """The limits that hold unless the command line says otherwise; tells the configuration's warnings.

    Raises:
        ConfigError: a file or a variable is wrong.
    """
    if not _anything_configured(os.environ):
        return Defaults()
    limits = settings().limits
    return Defaults(limits.timeout_s, limits.max_output)


def settings() -> Settings:
    """Every setting; tells the configuration's warnings.

    Raises:
        ConfigError: a file or a variable is wrong.
    """
    from hermes_exec.config.load import load_settings

    found = load_settings()
    for warning in found.warnings:
        note(warning)
    if found.log.model_fields_set:
        from hermes_exec.observe.logs import setup_logging

        setup_logging(found.log.level, found.log.format)
    return found


@asynccontextmanager
async def opened(
    on: str | None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
) -> AsyncGenerator[Terminal]:
    """Open a place, and close it at the end.

    Raises:
        HermesError: the target is wrong, or the place cannot be opened.
    """
    import hermes_exec

    target = on
    if on in {None, "local"} and not _anything_configured(os.environ):
        from hermes_exec_backends.local import LocalBackend

        target = LocalBackend()  # what the configuration would say, without reading that there is none
    async with hermes_exec.open(target, cwd=cwd, env=env, max_output=max_output) as terminal:
        redactor: Redactor | None = getattr(terminal, "redactor", None)
        if redactor:
            keep_secrets(redactor)
        yield terminal


def _anything_configured(environ: Mapping[str, str]) -> bool:
    """Whether there may be a setting anywhere: reading files takes pydantic, which takes its time."""
    if any(name.startswith("HERMES_EXEC_") for name in environ):
        return True
    from hermes_exec.config.paths import FILE_NAME, exists, user_file

    try:
        here = Path.cwd()
    except FileNotFoundError:
        here = Path("/")
    return exists(user_file(environ)) or any(exists(folder / FILE_NAME) for folder in (here, *here.parents))


def keep_secrets(redactor: Redactor) -> None:
    """Take these secrets out of all that we say, and let no other process of this user read our memory."""
    flags.redactor = redactor
    if flags.verbose:
        from hermes_exec.observe.logs import setup_logging

        setup_logging("info" if flags.verbose == 1 else "debug", redactor=redactor)
    if sys.platform == "linux":
        import ctypes

        # Else /proc/PID/environ, where a secret may come from, can be read by what runs as the same user.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

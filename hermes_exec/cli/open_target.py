"""Open a place for a command, by what the flags, the variables and the files say."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.config.plan import Plan
    from hermes_exec.config.settings import Settings
    from hermes_exec.terminal.terminal import Terminal

_PR_SET_DUMPABLE = 4
_LOG_VARIABLES = ("HERMES_EXEC_LOG", "HERMES_EXEC_LOG_FORMAT")
_UNLIMITED_S = 10 * 365 * 86400.0


class _Notes(logging.Handler):
    """Warnings as notes of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def tell_warnings() -> None:
    """Show what hermes_exec logs: warnings, or what ``--verbose`` or a variable asks for."""
    if _log_is_asked_for():
        show_log()
    else:
        logger = logging.getLogger("hermes_exec")
        logger.addHandler(_Notes(logging.WARNING))
        logger.propagate = False
        progress = logging.getLogger("hermes_exec.progress")  # why it takes long is told in any case
        progress.addHandler(_Notes(logging.INFO))
        progress.setLevel(logging.INFO)


def _log_is_asked_for() -> bool:
    """Whether flags, which set the variables, or variables say so; a file is not looked into for it yet."""
    return any(name in os.environ for name in _LOG_VARIABLES)


def show_log() -> None:
    """Show the log as it was asked for, without the secrets known by now."""
    from hermes_exec.config.load import load_settings
    from hermes_exec.observe.logs import setup_logging
    from hermes_exec.observe.redact import Redactor

    wanted = load_settings().log
    logger = logging.getLogger("hermes_exec")
    for notes in [each for each in logger.handlers if isinstance(each, _Notes)]:
        logger.removeHandler(notes)
    setup_logging(wanted.level, wanted.format, redactor=flags.redactor or Redactor())


def settings() -> Settings:
    """Every setting; tells the configuration's warnings.

    Raises:
        ConfigError: a file or a variable is wrong.
    """
    from hermes_exec.config.load import load_settings

    found = load_settings()
    for warning in found.warnings:
        note(warning)
    return found


def planned(on: str | None, place: str | None = None) -> Plan:
    """What there is to know about a place before it is opened; its secrets are kept from now on.

    ``place`` is what ``open`` once created there, to be found again; empty if that was nothing.

    Raises:
        ConfigError: the target or the configuration is wrong.
        Unsupported: this version has no such place.
    """
    from hermes_exec.config.plan import Plan

    plan = Plan(on, place=place)
    if plan.secrets:
        _keep_secrets(plan)
    if plan.logs or (plan.secrets and _log_is_asked_for()):
        show_log()
    return plan


@asynccontextmanager
async def opened(plan: Plan, *, audit: bool | None = None) -> AsyncGenerator[Terminal]:
    """Open a place, and close it at the end; a note says so where that fails, since what was done there stays done.

    ``audit`` says whether commands are recorded; as configured if left out.

    Raises:
        HermesError: it cannot be opened.
    """
    from hermes_exec.terminal.opening import open_plan

    terminal = await open_plan(plan, plan.audit(wanted=audit))
    try:
        yield terminal
    finally:
        try:
            await terminal.close()
        except HermesError as error:  # the command's own exit code, or its own error, is what counts
            note(str(error))


def folder_of(plan: Plan) -> str | None:
    """Where an agent starts to work: in this folder if it works on this machine, and else where the place has it."""
    if plan.cwd is None and plan.backend.target == "local":
        return os.getcwd()  # noqa: PTH109  as the system tells it, which may be bytes
    return plan.cwd


def time_limit(seconds: float | None) -> float | None:
    """A time limit as terminals take it: None is the configured one, and 0 was meant as none at all."""
    return _UNLIMITED_S if seconds == 0 else seconds


def _keep_secrets(plan: Plan) -> None:
    """Take them out of all that we say, and let no other process of this user look into ours."""
    from hermes_exec.observe.redact import Redactor

    flags.redactor = Redactor(plan.secrets)
    hide_environment()


def hide_environment() -> None:
    """Let nobody but root look into this process."""
    if sys.platform == "linux":
        import ctypes

        # /proc/PID/environ, where a secret may come from, can else be read by all that runs as this user.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

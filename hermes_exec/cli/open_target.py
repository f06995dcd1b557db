"""Plan and open targets from the flags, the variables and the configuration files."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.errors import HermesError, Unsupported, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.config.plan import Plan
    from hermes_exec.config.settings import Settings
    from hermes_exec.terminal.terminal import Terminal

_PR_SET_DUMPABLE = 4
_LOG_VARIABLES = ("HERMES_EXEC_LOG", "HERMES_EXEC_LOG_FORMAT")
_UNLIMITED_S = 10 * 365 * 86400.0


class _Notes(logging.Handler):
    """Prints log records as notes; those of the configuration once, as planning and opening a target both read it."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.name == "hermes_exec.config":
            if message in self._printed:
                return
            self._printed.add(message)
        note(message)


def show_warnings() -> None:
    """Print the log on standard error: warnings, or the level that ``--verbose`` or a variable sets."""
    if _is_log_requested():
        show_log()
    else:
        logger = logging.getLogger("hermes_exec")
        logger.addHandler(_Notes(logging.WARNING))
        logger.propagate = False
        progress = logging.getLogger("hermes_exec.progress")  # reasons for a wait are always printed
        progress.addHandler(_Notes(logging.INFO))
        progress.setLevel(logging.INFO)


def _is_log_requested() -> bool:
    """Whether a variable requests the log; flags set the variables. Does not read the configuration files."""
    return any(name in os.environ for name in _LOG_VARIABLES)


def show_log() -> None:
    """Print the log with the configured level and format, without the secrets known so far."""
    from hermes_exec.config.load import load_settings
    from hermes_exec.observe.logs import setup_logging
    from hermes_exec.observe.redact import Redactor

    config = load_settings().log
    logger = logging.getLogger("hermes_exec")
    for notes in [each for each in logger.handlers if isinstance(each, _Notes)]:
        logger.removeHandler(notes)
    setup_logging(config.level, config.format, redactor=flags.redactor or Redactor())


def read_settings() -> Settings:
    """Return the settings, and print the warnings of the configuration.

    Raises:
        ConfigError: a file or a variable is wrong.
    """
    from hermes_exec.config.load import load_settings

    settings = load_settings()
    for warning in settings.warnings:
        note(warning)
    return settings


def plan_target(on: str | None, place: str | None = None, settings: Settings | None = None) -> Plan:
    """Return the plan of a target. From now on its secrets are removed from our output.

    ``place`` is the id of the resource that an earlier ``open`` created there; empty if it created none. ``settings``
    are read if they are left out.

    Raises:
        ConfigError: the target or the configuration is wrong.
        Unsupported: this version has no such backend.
    """
    from hermes_exec.config.plan import Plan

    plan = Plan(on, settings, place=place)
    if plan.secrets:
        _hide_secrets(plan)
    if plan.logs or (plan.secrets and _is_log_requested()):
        show_log()
    return plan


def plan_personal(on: str | None, settings: Settings | None = None) -> Plan:
    """Return the plan of a target for a command of a person, which on this machine starts in this folder.

    Raises:
        ConfigError, Unsupported: see ``plan_target``.
    """
    plan = plan_target(on, settings=settings)
    plan.cwd = start_folder(plan)
    plan.backend.options = replace(plan.backend.options, personal=True)
    return plan


def refuse_to_leave(terminal: Terminal, what: str) -> None:
    """Refuse to start ``what``, which shall outlive this program, in a target that ends with this program.

    Raises:
        Unsupported: nothing can reach the target again.
    """
    if terminal.capabilities.jobs and not terminal.capabilities.reconnect:
        why = f"{what} would end with this command, because nothing can connect to this target again"
        raise Unsupported(f"{terminal.target}: {why}", remedy="run it in the foreground, or in a target that stays")


@asynccontextmanager
async def open_planned(plan: Plan, *, audit: bool | None = None) -> AsyncGenerator[Terminal]:
    """Open a target, and close it at the end; an error of closing is printed, and does not undo the command.

    ``audit`` is whether commands are recorded; None uses the configuration.

    Raises:
        HermesError: it cannot be opened.
    """
    from hermes_exec.terminal.opening import open_plan

    terminal = await open_plan(plan, plan.create_audit(wanted=audit))
    try:
        yield terminal
    finally:
        try:
            await terminal.close()
        except HermesError as error:  # the exit code or the error of the command takes precedence
            note(str(error))


def start_folder(plan: Plan) -> str | None:
    """Return the folder in which to start: this one on this machine, else the target's own.

    Raises:
        UsageError: this one was removed.
    """
    if plan.cwd is None and plan.backend.target == "local":
        try:
            return os.getcwd()  # noqa: PTH109  the system's own text, undecodable bytes included
        except FileNotFoundError:
            raise UsageError(
                "the folder that this program was started in was removed", remedy="cd to another folder"
            ) from None
    return plan.cwd


def to_time_limit(seconds: float | None) -> float | None:
    """Convert a time limit of an option: None is the configured one, and 0 means no limit."""
    return _UNLIMITED_S if seconds == 0 else seconds


def _hide_secrets(plan: Plan) -> None:
    """Remove the secrets from our output, and deny other processes of this user access to this one."""
    from hermes_exec.observe.redact import Redactor

    flags.secrets += plan.secrets
    flags.redactor = Redactor(flags.secrets)
    hide_environment()


def hide_environment() -> None:
    """Deny every user but root access to the memory and environment of this process."""
    if sys.platform == "linux":
        import ctypes

        # A secret may come from the environment, which /proc/PID/environ shows to every process of this user.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

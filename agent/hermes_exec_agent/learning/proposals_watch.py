"""Report a change of the configuration that no person accepted, at the start of a chat and of a server.

On a target that is this machine, the agent can edit these files as its user can. So the state folder keeps the accepted
texts of ``hermes.toml`` and of the policies, and a start compares them with the files: the time and size of each first,
and its text only if these differ. Each change is reported once. The comparison begins with the first start at which
``[learning] proposals`` is on, and switching that off does not end it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import FILE_NAME, config_folder, state_folder, write_private
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.runtime.events.log import EventLog


@dataclass(slots=True)
class AcceptedState:
    """The configuration as a person accepted it."""

    texts: dict[str, str]
    """By the path below the configuration's folder."""
    stats: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The times, size and inode of each file that was compared last."""
    reported: str = ""
    """The digest of the change that was reported last."""
    news: str = ""
    """What was accepted since the last start, which reports it."""


def proposals_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the accepted texts, the private git repository and the mark of an unfinished change."""
    return state_folder(environ) / "proposals"


def read_accepted(environ: Mapping[str, str]) -> AcceptedState | None:
    """Return the accepted configuration; None before the first one, or if the file is damaged."""
    try:
        data: dict[str, Any] = json.loads((proposals_folder(environ) / "accepted.json").read_bytes())
        return AcceptedState(dict(data["texts"]), dict(data["stats"]), str(data["reported"]), str(data["news"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_accepted(environ: Mapping[str, str], state: AcceptedState) -> None:
    """Replace the accepted configuration.

    Raises:
        HermesError: it cannot be written.
    """
    path = proposals_folder(environ) / "accepted.json"
    data = {"texts": state.texts, "stats": state.stats, "reported": state.reported, "news": state.news}
    try:
        write_private(path, json.dumps(data, ensure_ascii=False).encode())
    except OSError as error:
        raise HermesError(f"{path}: {error.strerror}", remedy="free space, or check the folder") from error


def find_stats(folder: Path) -> dict[str, list[int]]:
    """Return the times, size and inode of each file that proposals may change."""
    names = [FILE_NAME]
    with suppress(OSError), os.scandir(folder / "policies") as entries:
        names += sorted(f"policies/{each.name}" for each in entries if each.name.endswith(".toml"))
    found: dict[str, list[int]] = {}
    for name in names:
        with suppress(OSError):
            stat = os.stat(folder / name)  # noqa: PTH116  faster
            found[name] = [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino]
    return found


def find_changes(environ: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the accepted and the present text of each file that differs; nothing before the first acceptance.

    Raises:
        ConfigError: a file cannot be read.
    """
    from hermes_exec_agent.learning.proposals_judge import read_files

    state = read_accepted(environ)
    if state is None:
        return {}
    texts = read_files(config_folder(environ))
    names = sorted({*texts, *state.texts})
    return {
        name: (state.texts.get(name), texts.get(name)) for name in names if state.texts.get(name) != texts.get(name)
    }


def report_changes(log: EventLog, environ: Mapping[str, str], *, enabled: bool) -> str:
    """Return a line on a change that no person accepted, and on what was accepted; empty if both were reported already.

    Raises:
        TurnHeld: another program changes the configuration now; the next start reports it.
        HermesError: a file cannot be read or written.
    """
    state = read_accepted(environ)
    if state is None and not enabled:
        return ""
    if state is not None and state.stats == find_stats(config_folder(environ)) and not state.news:
        return ""
    from hermes_exec_agent.learning.proposals_apply import hold_configuration

    with hold_configuration(log):  # a program that accepts a change meanwhile writes this, too
        return _compare(environ)


def _compare(environ: Mapping[str, str]) -> str:
    stats, state = find_stats(config_folder(environ)), read_accepted(environ)
    if state is None:
        from hermes_exec_agent.learning.proposals_judge import read_files

        write_accepted(environ, AcceptedState(read_files(config_folder(environ)), stats))
        return ""
    changes = find_changes(environ)
    digest = _digest(changes)
    lines = [f"{state.news}, since the last start"] if state.news else []
    if changes and digest != state.reported:
        lines.append(f"the configuration changed, and no person accepted that: {', '.join(changes)}")
    write_accepted(environ, AcceptedState(state.texts, stats, digest))
    return f"{'; '.join(lines)}. Try: hermes-exec proposals changes" if lines else ""


def _digest(changes: Mapping[str, tuple[str | None, str | None]]) -> str:
    import hashlib

    return hashlib.sha256(json.dumps(changes, sort_keys=True).encode()).hexdigest() if changes else ""


def check_configuration(log: EventLog, environ: Mapping[str, str], *, enabled: bool) -> str:
    """End a change that a kill cut off, and return the line of `report_changes`; a failure is the line, too."""
    try:
        if (proposals_folder(environ) / "pending").exists():
            from hermes_exec_agent.learning.proposals_apply import finish_pending

            finish_pending(log, environ)
        return report_changes(log, environ, enabled=enabled)
    except HermesError as error:
        return f"changes of the configuration were not looked for: {error}"

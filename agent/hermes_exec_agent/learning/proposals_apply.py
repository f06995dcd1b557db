"""Accept a proposal, or revert an accepted one: the only functions that change the user's configuration.

They are for a person at a terminal, and the commands of ``proposals`` alone call them. A change has four steps after
its commit was created: the log records that it begins, the file is replaced, the commit becomes the latest one, and the
log records its end. A kill before the first step leaves nothing; after it, the next start does the rest.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.config.paths import config_folder, to_printable, write_private
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.agent_shell import refuse_agents_descendant
from hermes_exec_agent.learning.proposals import STREAM, Proposal, append_event, find_proposal, read_proposals
from hermes_exec_agent.learning.proposals_edit import Conflict, apply_change, make_diff, read_values, reverse_change
from hermes_exec_agent.learning.proposals_git import ConfigRepository
from hermes_exec_agent.learning.proposals_judge import Judgement, judge_change, read_files
from hermes_exec_agent.learning.proposals_watch import (
    AcceptedState,
    find_changes,
    proposals_folder,
    write_accepted,
)
from hermes_exec_agent.runtime.events.storage import VARIABLE
from hermes_exec_agent.runtime.events.turn_lock import TurnHeld

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from hermes_exec_agent.runtime.events.log import EventLog

_LOCK = f"{STREAM}/configuration"
_ENDS = {"accepting": "accepted", "reverting": "reverted"}
_BACK = {"accepting": "open", "reverting": "accepted"}
"""The state of a proposal whose change could not be ended."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of one file, which a person looks at before it is made."""

    proposal: Proposal
    action: Literal["accepting", "reverting"]
    file: str
    before: str | None
    """The present text of the file; None if there is none."""
    after: str | None
    judgement: Judgement

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        return make_diff(self.file, self.before, self.after)


def plan_acceptance(proposal: Proposal, environ: Mapping[str, str]) -> PlannedChange:
    """Return what accepting a proposal changes now.

    Raises:
        Conflict: the file is no longer what the change was written for.
        UsageError: the proposal is not open or is advice, or its change is not possible.
        ConfigError: the configuration would be invalid.
    """
    if proposal.state != "open":
        raise UsageError(f"proposal {proposal.name} is {proposal.state}", remedy="hermes-exec proposals list")
    data, files = proposal.data, _read_configuration(proposal.file, environ)
    before, change = files.get(proposal.file), str(data["change"])
    for key, present in read_values(change, before).items() if "was" in data else ():
        if data["was"].get(key) != present:
            shown, was = (to_printable(each or "not set") for each in (present, data["was"].get(key)))
            raise Conflict(
                f"{proposal.file}: conflict: {key} is {shown} now, and was {was} when this was proposed",
                remedy=f"hermes-exec proposals reject {proposal.number}",
            )
    after = apply_change(proposal.file, change, before)
    judgement = judge_change(files, proposal.file, after)
    return PlannedChange(proposal, "accepting", proposal.file, before, after, judgement)


def plan_reversal(proposal: Proposal, environ: Mapping[str, str]) -> PlannedChange:
    """Return what reverting an accepted proposal changes now.

    Raises:
        Conflict: what it changed was changed again since.
        UsageError: the proposal is not accepted.
        ConfigError: the configuration would be invalid.
    """
    commit = next((str(each.data["commit"]) for each in proposal.history if each.data["action"] == "accepted"), "")
    if proposal.state != "accepted" or not commit:
        raise UsageError(f"proposal {proposal.name} is {proposal.state}", remedy="hermes-exec proposals list")
    files = _read_configuration(proposal.file, environ)
    repository = _open_repository(environ)
    file, present = proposal.file, files.get(proposal.file)
    then, before = repository.read_texts(commit).get(file), repository.read_texts(f"{commit}^").get(file)
    after = reverse_change(file, before, then, present)
    judgement = judge_change(files, file, after, reverts=True)
    return PlannedChange(proposal, "reverting", file, present, after, judgement)


def _read_configuration(file: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the configuration, in which ``file`` is an ordinary file or missing."""
    if environ.get("HERMES_EXEC_CONFIG"):
        raise UsageError("HERMES_EXEC_CONFIG names another configuration", remedy="unset HERMES_EXEC_CONFIG")
    if not file:
        raise UsageError("this is advice, which has no change", remedy="hermes-exec proposals show, or reject")
    folder = config_folder(environ)
    for path in (folder / file, (folder / file).parent):
        if path.is_symlink() and path != folder:
            raise UsageError(f"{to_printable(path)} is a link, which is not replaced", remedy="make the change by hand")
    return read_files(folder)


def apply_plan(log: EventLog, planned: PlannedChange, environ: Mapping[str, str]) -> str:
    """Make a change that a person agreed to, and return its commit: all of it, or nothing.

    Raises:
        Conflict: a file changed since the change was planned; it stays as it is.
        UsageError: the shell of an agent asks for it, there is no git, or another program makes a change.
        HermesError: something could not be written.
    """
    refuse_agents_descendant()
    finish_pending(log, environ)
    if find_changes(environ):
        raise UsageError(
            "the configuration has changes that no person accepted", remedy="hermes-exec proposals changes"
        )
    with hold_configuration(log):
        texts = read_files(config_folder(environ))
        if texts.get(planned.file) != planned.before:
            raise Conflict(f"{planned.file}: conflict: it was changed meanwhile", remedy="read it again")
        repository = _open_repository(environ)
        repository.prepare()
        parent = _commit_present(repository, texts)
        changed = {key: text for key, text in texts.items() if key != planned.file}
        if planned.after is not None:
            changed[planned.file] = planned.after
        message = _describe(planned)
        commit = repository.create_commit(changed, message, parent)
        _mark_pending(log, environ)
        append_event(log, lambda known: _begin(known, planned, commit, parent, repository.find_head()))
        _finish(log, environ)
        if find_proposal(log, str(planned.proposal.number)).state != _ENDS[planned.action]:
            raise Conflict(f"{planned.file}: conflict: it was changed meanwhile", remedy="read it again")
    return commit


def _commit_present(repository: ConfigRepository, texts: Mapping[str, str]) -> str:
    """Return a commit of the present texts: the latest one, or a new one after it."""
    head = repository.find_head()
    if head and repository.read_texts(head) == dict(texts):
        return head
    return repository.create_commit(texts, "Keep the configuration as it is", head)


def _describe(planned: PlannedChange) -> str:
    verb = "Accept" if planned.action == "accepting" else "Revert"
    return f"{verb} proposal {planned.proposal.name}\n\n{planned.proposal.data['reason']}\n"


def _begin(known: list[Proposal] | Any, planned: PlannedChange, commit: str, parent: str, head: str) -> dict[str, Any]:
    proposal = next(each for each in known if each.number == planned.proposal.number)
    if proposal.state != planned.proposal.state:
        raise UsageError(f"proposal {proposal.name} is {proposal.state}", remedy="hermes-exec proposals list")
    return {
        "action": planned.action, "number": proposal.number, "file": planned.file, "commit": commit,
        "parent": parent, "head": head, "loosened": list(planned.judgement.loosened),
    }  # fmt: skip


def finish_pending(log: EventLog, environ: Mapping[str, str]) -> None:
    """End a change that a kill cut off; nothing is done if there is none, or while another program makes one.

    Raises:
        UsageError: the change belongs to another log, which is named.
    """
    path = proposals_folder(environ) / "pending"
    try:
        other = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    if other not in ("", str(log.path)) and Path(other).exists():
        raise UsageError(
            f"a change of the configuration was cut off, and {to_printable(other)} has its record",
            remedy=f"{VARIABLE}={to_printable(other)} hermes-exec proposals changes",
        )
    with suppress(TurnHeld), hold_configuration(log):
        _finish(log, environ)


def _finish(log: EventLog, environ: Mapping[str, str]) -> None:
    """Complete the change that the log records as begun. Steps that were done before have no further effect."""
    for proposal in read_proposals(log):
        if proposal.state in _ENDS:
            _finish_one(log, environ, proposal)
    (proposals_folder(environ) / "pending").unlink(missing_ok=True)


def _finish_one(log: EventLog, environ: Mapping[str, str], proposal: Proposal) -> None:
    begun = proposal.history[-1].data
    file, commit, folder = str(begun["file"]), str(begun["commit"]), config_folder(environ)
    repository = _open_repository(environ)
    before = repository.read_texts(str(begun["parent"])).get(file)
    texts = repository.read_texts(commit)
    present = read_files(folder).get(file)
    number = proposal.number
    if present not in (before, texts.get(file)):
        abandoned = {"action": "abandoned", "number": number, "state": _BACK[proposal.state], "file": file}
        append_event(log, lambda _: abandoned)
        return
    if present != texts.get(file):
        _write_file(folder / file, texts.get(file))
    repository.move_head(commit, str(begun["head"]))
    news = f"proposal {proposal.name} was {_ENDS[proposal.state]}"
    write_accepted(environ, AcceptedState(texts, news=news))
    ended = {"action": _ENDS[proposal.state], "number": number, "file": file, "commit": commit}
    append_event(log, lambda _: ended)


def _write_file(path: Path, text: str | None) -> None:
    try:
        if text is None:
            path.unlink(missing_ok=True)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        write_private(path, text.encode())
        path.chmod(mode)
    except OSError as error:
        raise HermesError(
            f"{to_printable(path)}: {error.strerror}", remedy="check the folder, and try again"
        ) from error


def acknowledge(
    log: EventLog, environ: Mapping[str, str], changes: Mapping[str, tuple[str | None, str | None]]
) -> None:
    """Record that a person accepts changes that were made by hand.

    Args:
        log: of events.
        environ: of the person.
        changes: as `find_changes` returned them, and the person saw them.

    Raises:
        UsageError: the shell of an agent asks for it.
        Conflict: a file changed since.
    """
    refuse_agents_descendant()
    with hold_configuration(log):
        if find_changes(environ) != changes:
            raise Conflict("the configuration changed meanwhile", remedy="read it again")
        texts = read_files(config_folder(environ))
        write_accepted(
            environ, AcceptedState(texts, news=f"changes of {', '.join(changes)} were accepted as a person's")
        )
        append_event(log, lambda _: {"action": "acknowledged", "files": sorted(changes)})


def _open_repository(environ: Mapping[str, str]) -> ConfigRepository:
    return ConfigRepository(proposals_folder(environ) / "configuration.git", config_folder(environ))


def _mark_pending(log: EventLog, environ: Mapping[str, str]) -> None:
    """Note that a change begins, and which log has its record."""
    path = proposals_folder(environ) / "pending"
    try:
        write_private(path, str(log.path).encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise HermesError(f"{path}: {error.strerror}", remedy="free space, or check the folder") from error


@contextmanager
def hold_configuration(log: EventLog) -> Generator[None]:
    """Exclude other programs from the configuration.

    Raises:
        TurnHeld: another program changes it now.
    """
    turn = log.acquire_turn(_LOCK)
    try:
        yield
    finally:
        log.release_turn(turn)

"""The registry: every version that passed the gate, and its later events. Nothing is ever deleted.

Reading needs no lock, and one process at a time writes; the gate's work, which takes long, is done before the lock is
held.
"""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import nearest_name
from hermes_exec.errors import Refused, UsageError
from hermes_exec.extras import require
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.home import RegistryHome, default_home
from hermes_exec_agent.skills.registry.log import SkillLog, fingerprint, has_key, open_key
from hermes_exec_agent.skills.registry.record import PROTECTED, UNPROTECTED, Origin, Skill, Version, build_skills
from hermes_exec_agent.skills.registry.script_copies import write_module
from hermes_exec_policies.gate.verdict import Right

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from hermes_exec_agent.skills.registry.log import SkillEvent
    from hermes_exec_agent.skills.registry.record import Author, ScriptGrants
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report
    from hermes_exec_policies.model import Policy

_WAITS = "it was made from untrusted material, so a person has to release it"


class Registry:
    """The skills of one home."""

    def __init__(self, home: RegistryHome | None = None, *, modules: Path | None = None) -> None:
        """Open the registry of ``home``, or this user's. Folders and key are created with the first record.

        ``modules`` is a folder for read-only copies of the registered scripts.

        Raises:
            Refused: other users could change it, or its key cannot be read.
            MissingExtra: the packages that verify and validate skills are not installed.
        """
        require("skills", "skills")
        self.home = home or default_home()
        self._modules = modules
        self.home.check()
        began = self.home.log.exists() or has_key(self.home.keys)
        self._key = open_key(self.home.keys, make=False) if began else None
        self._log = SkillLog(self.home, self._open_key)
        self._events: list[SkillEvent] | None = None
        self._skills: dict[str, Skill] = {}
        self._versions: dict[int, Version] = {}
        """Versions that were read, by the events that recorded them."""

    @property
    def key(self) -> Ed25519PrivateKey:
        """The signing key; it and its folders are created if nothing was ever recorded.

        Raises:
            Refused: other users could change the registry, or its key cannot be read.
            ConfigError: its folders cannot be created.
        """
        self.prepare()
        return self._open_key()

    @property
    def signer(self) -> str:
        """The fingerprint of the key."""
        return fingerprint(self.key.public_key())

    def prepare(self) -> None:
        """Create the folders and the key, if nothing was ever recorded. Reading does not need it.

        Raises:
            Refused: other users could change the registry, or its key cannot be read.
            ConfigError: its folders cannot be created.
        """
        self.home.prepare()
        if self._key is None:
            self._key = open_key(self.home.keys, make=not self.home.log.exists())

    def _open_key(self) -> Ed25519PrivateKey:
        """Return the existing key."""
        if self._key is None:
            self.home.check()
            self._key = open_key(self.home.keys, make=False)
        return self._key

    def skills(self) -> dict[str, Skill]:
        """Return every skill, by name.

        Raises:
            Refused: another program changed the registry.
        """
        events = self._log.events()
        if events is not self._events:  # verified events need no second pass
            with _pause_gc():
                self._skills, self._events = build_skills(events), events
            self._versions.clear()
        return self._skills

    def list_facts(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """Return the fields of every skill for a list, sorted by name.

        Raises:
            Refused: another program changed the registry.
        """
        with _pause_gc():
            skills = self.skills()
            return [skills[name].facts() for name in sorted(skills) if archived or not skills[name].archived]

    def skill(self, name: str) -> Skill:
        """Return a skill, by its name or its module's.

        Raises:
            UsageError: it does not exist; the message has the nearest name.
            Refused: another program changed the registry.
        """
        return self._find(self.skills(), name)

    def version(self, name: str, number: int | None = None) -> Version:
        """Return a version's complete record, the current one by default; the latest proof replaces earlier ones.

        Raises:
            UsageError: it does not exist.
            Refused: another program changed the registry.
        """
        return self.read_version(self.skill(name), number)

    def read_version(self, skill: Skill, number: int | None = None) -> Version:
        """Return the same for a skill that was looked up before.

        Raises:
            UsageError: the version does not exist.
            Refused: its record was changed.
        """
        event = self._event(skill, skill.current if number is None else number)
        if event.seq in self._versions:
            return self._versions[event.seq]
        try:
            version = Version.from_facts(self._log.body(event))
        except (KeyError, TypeError) as error:
            raise Refused(f"the record of {skill.name} {event.version} is invalid: {error}") from error
        self._versions[event.seq] = version
        return version

    def tree(self, version: Version) -> Path:
        """Return the folder of a version's files. It is read through ``content.copy`` alone."""
        return self.home.content / version.digest

    def register(  # noqa: PLR0913  each by its name
        self,
        tree: Tree,
        report: Report,
        policy: Policy,
        *,
        author: Author,
        kernel: str,
        insist: bool = False,
        origin: Origin | None = None,
        ancestors: Sequence[Version] = (),
        replaces: int | None = None,
    ) -> Version:
        """Record an accepted candidate as the next version, which becomes the current one unless another is pinned.

        ``insist`` is a person's approval of an author that could have bypassed the gate; ``origin`` is the author by
        default. A version from untrusted material waits in quarantine for a person. ``ancestors`` are the versions that
        it merges, its own skill's first; by default, it is based on the current version of its skill. ``replaces`` is
        the version that must still be the current one, 0 for a new skill.

        Raises:
            Refused: it was not accepted, is another tree, or its author could have reached the registry; or an ancestor
                or the replaced version is no longer the current one of its skill, or is pinned or archived.
            HermesError: it cannot be written; nothing was registered.
        """
        _check(tree, report, policy, author, insist=insist)
        self.prepare()
        with self.home.lock():
            skill = self.skills().get(report.name)
            number = max(skill.versions) + 1 if skill is not None else 1
            parents: tuple[str, ...] = ()
            if skill is not None:
                parents = (str(skill.versions[skill.current].facts["digest"]),)
            if replaces is not None:
                _check_base(report.name, skill, replaces)
            if ancestors:
                self._check_ancestors(ancestors)
                parents = tuple(each.digest for each in ancestors)
            origin = origin or Origin(kind=author.kind)
            version = _create_version(tree, report, policy, author, kernel, number, parents, origin)
            content.store(self.home.content, tree)
            line = version.line | ({"waits": _WAITS} if origin.kind == "untrusted" else {})
            if ancestors:
                line |= {"ancestors": [f"{each.name} {each.number}" for each in ancestors]}
            self._log.append("registered", version.name, number, line, version.facts())
            if self._modules is not None and version.is_function:
                current = self.version(version.name)  # a pinned version stays the current one
                write_module(self._modules, self.tree(current), current)
        return version

    def record_proof(self, version: Version, report: Report, policy: Policy, *, kernel: str) -> Version:
        """Record that a registered version passed the gate again.

        That ends its quarantine, unless the version waits for a person since it was registered.

        Raises:
            Refused: it was not accepted, or the proof is of other bytes.
        """
        if not report.accepted or report.digest != version.digest or report.policy_digest != policy.digest:
            raise Refused(f"{version.name} {version.number}: it was not proven again")
        with self._lock_skill(version.name):
            fresh = Version.from_facts(
                {**version.facts(), **_report_fields(report, policy, kernel), "registered": time.time()}
            )
            self._log.append("proven", version.name, version.number, fresh.line, fresh.facts())
        return fresh

    def choose(
        self,
        name: str,
        number: int,
        *,
        instead_of: int | None = None,
        facts: Mapping[str, Any] | None = None,
        condition: Callable[[Skill], bool] | None = None,
    ) -> bool:
        """Make this version the current one, and return whether it was chosen.

        It is not if ``instead_of`` is given, and is no longer the current version. ``facts`` and ``condition`` are as
        in `mark`.

        Raises:
            UsageError: it does not exist, or another one is pinned.
        """
        with self._lock_skill(name) as skill:
            if instead_of not in {None, skill.current} or (condition is not None and not condition(skill)):
                return False
            if skill.pinned:
                raise UsageError(
                    f"{name} is pinned to version {skill.current}", remedy=f"hermes-exec skill unpin {name}"
                )
            self._event(skill, number)
            self._log.append("chosen", skill.name, number, facts or {}, {})
        return True

    def pin(self, name: str, number: int | None = None) -> int:
        """Keep a version, the current one by default, when newer ones are registered; return its number."""
        with self._lock_skill(name) as skill:
            wanted = skill.current if number is None else number
            self._event(skill, wanted)
            if wanted != skill.current:
                self._log.append("chosen", skill.name, wanted, {}, {})
            if not skill.pinned:
                self._log.append("pinned", skill.name, wanted, {}, {})
        return wanted

    def mark(
        self,
        kind: str,
        name: str,
        *,
        facts: Mapping[str, str] | None = None,
        condition: Callable[[Skill], bool] | None = None,
    ) -> bool:
        """Set ``unpinned``, ``archived`` (it does not run, but is kept) or ``restored``; repeating it is not an error.

        ``facts`` are recorded with it. ``condition`` is called while no other program can change the skill; if it
        returns False, nothing is recorded. Return whether an event was recorded.
        """
        with self._lock_skill(name) as skill:
            if {"unpinned": not skill.pinned, "archived": skill.archived, "restored": not skill.archived}[kind]:
                return False
            if condition is not None and not condition(skill):
                return False
            self._log.append(kind, skill.name, skill.current, facts or {}, {})
        return True

    def quarantine(self, name: str, number: int, why: str) -> None:
        """Prevent a version from running until it is proven again, or a person releases it."""
        with self._lock_skill(name) as skill:
            if number not in skill.kept_back:
                self._log.append("quarantined", skill.name, number, {"why": why[:200]}, {"why": why})

    def release(self, name: str, number: int | None = None) -> Version:
        """End the quarantine of a version whose files match the signed list.

        Raises:
            UsageError: it is not in quarantine.
            content.Changed: its files were changed.
        """
        with self._lock_skill(name) as skill:
            version = self.read_version(skill, number)
            if version.number not in skill.kept_back:
                raise UsageError(f"{name} {version.number} is not in quarantine")
            self.verify(version)
            self._log.append("released", skill.name, version.number, {}, {})
        return version

    def trust(self, name: str, number: int | None = None, *, trusted: bool = True) -> Version:
        """Record that a person trusts the text of a version, or does no more; repeating it is not an error."""
        with self._lock_skill(name) as skill:
            version = self.read_version(skill, number)
            if skill.is_trusted(version.digest) != trusted:
                kind = "trusted" if trusted else "distrusted"
                self._log.append(kind, skill.name, version.number, {"digest": version.digest}, {})
        return version

    def grant_scripts(self, name: str, grants: ScriptGrants, number: int | None = None) -> Version:
        """Record a person's grants to the scripts of a version; they replace earlier ones."""
        with self._lock_skill(name) as skill:
            version = self.read_version(skill, number)
            self._log.append("granted", skill.name, version.number, {"digest": version.digest, **asdict(grants)}, {})
        return version

    def verify(self, version: Version) -> None:
        """Check that the files of a version match the signed list.

        Raises:
            content.Changed: they do not.
        """
        if found := content.find_differences(self.tree(version), version.files):
            raise content.ContentChanged(f"{version.name} {version.number}: {'; '.join(found[:5])}")

    def _check_ancestors(self, ancestors: Sequence[Version]) -> None:
        for each in ancestors:
            skill = self.skill(each.name)
            if skill.current != each.number or skill.pinned or skill.archived:
                raise Refused(f"{each.name} {each.number} was changed while it was merged; nothing was registered")

    @contextlib.contextmanager
    def _lock_skill(self, name: str) -> Generator[Skill]:
        """Lock the registry while an event of an existing skill is recorded.

        Raises:
            UsageError: it does not exist.
        """
        self.skill(name)
        with self.home.lock():
            yield self.skill(name)

    def _find(self, skills: Mapping[str, Skill], name: str) -> Skill:
        found = skills.get(name) or skills.get(name.replace("_", "-"))
        if found is None:
            guess = nearest_name(name, skills)
            hint = f"; the nearest known one is {guess!r}" if guess else ": there is none yet"
            raise UsageError(f"no skill is called {name!r}{hint}", remedy="hermes-exec skill list")
        return found

    def _event(self, skill: Skill, number: int) -> SkillEvent:
        if number not in skill.versions:
            known = ", ".join(map(str, skill.versions))
            raise UsageError(f"{skill.name} has no version {number}", remedy=f"one of {known}")
        return skill.versions[number]


@contextlib.contextmanager
def _pause_gc() -> Generator[None]:
    """Pause garbage collection: ten thousand events have no garbage, and scanning them doubles the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _check(tree: Tree, report: Report, policy: Policy, author: Author, *, insist: bool) -> None:
    if not report.accepted:
        raise Refused(f"{report.name or 'the skill'}: the gate did not accept it")
    if report.digest != tree.digest or report.policy_digest != policy.digest:
        raise Refused(f"{report.name}: the files differ from those that the gate judged")
    if Right.CALL in report.rights and not author.is_confined and not insist:
        raise Refused(
            f"{report.name}: its writer runs commands on this machine without a sandbox, so it could register anything",
            remedy="give the agent a sandbox for its commands, or let a person register it with --insist",
        )


def _check_base(name: str, skill: Skill | None, number: int) -> None:
    if skill is None and not number:
        return
    if skill is None or skill.current != number or skill.pinned or skill.archived:
        raise Refused(f"{name} was changed meanwhile; nothing was registered")


def _create_version(
    tree: Tree,
    report: Report,
    policy: Policy,
    author: Author,
    kernel: str,
    number: int,
    parents: Sequence[str],
    origin: Origin,
) -> Version:
    return Version(
        name=report.name,
        number=number,
        digest=tree.digest,
        files=tree.files,
        author=author,
        parents=tuple(parents),
        protection=PROTECTED if author.is_confined else UNPROTECTED,
        origin=origin,
        registered=time.time(),
        **_report_fields(report, policy, kernel),
    )


def _report_fields(report: Report, policy: Policy, kernel: str) -> dict[str, Any]:
    evidence = report.evidence
    return {
        "module": report.module,
        "summary": report.summary,
        "entry": report.entry,
        "function": report.function,
        "schema": report.schema,
        "grants": report.grants,
        "level": report.level,
        "evidence": report.facts(),
        "policy": policy.model_dump(mode="json"),
        "policy_digest": policy.digest,
        "specification": evidence.specification if evidence else "",
        "interpreter": evidence.interpreter if evidence else "",
        "environment": report.environment,
        "kernel": kernel,
        "rights": tuple(map(str, report.rights)),
    }

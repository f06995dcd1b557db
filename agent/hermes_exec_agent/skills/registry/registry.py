"""The registry: every version that passed the gate, and what became of it. Nothing is ever deleted.

Reading needs no lock and writing is done by one at a time, for as long as it takes to write; the gate's work, which
takes long, is done before.
"""

from __future__ import annotations

import contextlib
import gc
import time
from typing import TYPE_CHECKING, Any

from hermes_exec.config.check import nearest
from hermes_exec.errors import Refused, UsageError
from hermes_exec.extras import require
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.home import Home, this_home
from hermes_exec_agent.skills.registry.log import Log, fingerprint, has_key, open_key
from hermes_exec_agent.skills.registry.record import PROTECTED, UNPROTECTED, Skill, Version, skills_of
from hermes_exec_agent.skills.registry.script_copies import write_module

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from hermes_exec_agent.skills.registry.log import Event
    from hermes_exec_agent.skills.registry.record import Author
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report
    from hermes_exec_policies.model import Policy


class Registry:
    """The skills of one home."""

    def __init__(self, home: Home | None = None, *, modules: Path | None = None) -> None:
        """Open the registry of ``home``, or this user's. Folders and key are made when something is recorded.

        ``modules`` is a folder for read-only copies of the scripts that are registered.

        Raises:
            Refused: others could change it, or its key cannot be read.
            MissingExtra: the packages that verify and judge skills are not installed.
        """
        require("skills", "skills")
        self.home = home or this_home()
        self._modules = modules
        self.home.check()
        began = self.home.log.exists() or has_key(self.home.keys)
        self._key = open_key(self.home.keys, make=False) if began else None
        self._log = Log(self.home, self._open_key)
        self._events: list[Event] | None = None
        self._skills: dict[str, Skill] = {}
        self._versions: dict[int, Version] = {}
        """Those that were read, by the events that recorded them."""

    @property
    def key(self) -> Ed25519PrivateKey:
        """What it signs with; made together with its folders where nothing was ever recorded.

        Raises:
            Refused: others could change the registry, or its key cannot be read.
            ConfigError: its folders cannot be made.
        """
        self.prepare()
        return self._open_key()

    @property
    def signer(self) -> str:
        """The fingerprint of its key."""
        return fingerprint(self.key.public_key())

    def prepare(self) -> None:
        """Make the folders and the key, where nothing was ever recorded. Reading does not need it.

        Raises:
            Refused: others could change the registry, or its key cannot be read.
            ConfigError: its folders cannot be made.
        """
        self.home.prepare()
        if self._key is None:
            self._key = open_key(self.home.keys, make=not self.home.log.exists())

    def _open_key(self) -> Ed25519PrivateKey:
        """The key that is there."""
        if self._key is None:
            self.home.check()
            self._key = open_key(self.home.keys, make=False)
        return self._key

    def skills(self) -> dict[str, Skill]:
        """Every skill, by name.

        Raises:
            Refused: the registry was changed by somebody else.
        """
        events = self._log.events()
        if events is not self._events:  # what was verified and is still so needs no second look
            with _no_collection():
                self._skills, self._events = skills_of(events), events
            self._versions.clear()
        return self._skills

    def listed(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """What a list shows of every skill, sorted by name.

        Raises:
            Refused: the registry was changed by somebody else.
        """
        with _no_collection():
            skills = self.skills()
            return [skills[name].facts() for name in sorted(skills) if archived or not skills[name].archived]

    def skill(self, name: str) -> Skill:
        """One skill, by its name or its module's.

        Raises:
            UsageError: there is none; names the nearest one.
            Refused: the registry was changed by somebody else.
        """
        return self._among(self.skills(), name)

    def version(self, name: str, number: int | None = None) -> Version:
        """All that was recorded of a version, the current one by default; proven anew, it is what was shown last.

        Raises:
            UsageError: there is none.
            Refused: the registry was changed by somebody else.
        """
        return self.recorded(self.skill(name), number)

    def recorded(self, skill: Skill, number: int | None = None) -> Version:
        """The same, of a skill that was looked up before.

        Raises:
            UsageError: there is no such version.
            Refused: what was recorded of it was changed.
        """
        event = self._event(skill, skill.current if number is None else number)
        if event.seq in self._versions:
            return self._versions[event.seq]
        try:
            version = Version.of(self._log.body(event))
        except (KeyError, TypeError) as error:
            raise Refused(f"what is recorded of {skill.name} {event.version} makes no sense: {error}") from error
        self._versions[event.seq] = version
        return version

    def tree(self, version: Version) -> Path:
        """Where the files of a version are kept. They are to be looked at alone: ``content.copy`` takes them out."""
        return self.home.content / version.digest

    def register(
        self, tree: Tree, report: Report, policy: Policy, *, author: Author, kernel: str, insist: bool = False
    ) -> Version:
        """Record what the gate accepted, as the next version, which becomes the current one unless another is pinned.

        ``insist`` is a person's word that an author is to be trusted who could have gone past the gate.

        Raises:
            Refused: it was not accepted, is another tree, or its author could have reached the registry.
            HermesError: it cannot be written; nothing was registered.
        """
        _check(tree, report, policy, author, insist=insist)
        self.prepare()
        with self.home.locked():
            skill = self.skills().get(report.name)
            number = max(skill.versions) + 1 if skill is not None else 1
            parents = (str(skill.versions[skill.current].facts["digest"]),) if skill is not None else ()
            version = _version_of(tree, report, policy, author, kernel, number, parents)
            content.keep(self.home.content, tree)
            self._log.append("registered", version.name, number, version.line, version.facts())
            if self._modules is not None:
                current = self.version(version.name)  # another one, where that is pinned
                write_module(self._modules, self.tree(current), current)
        return version

    def proven(self, version: Version, report: Report, policy: Policy, *, kernel: str) -> Version:
        """Record that a registered version passed the gate anew; it is out of quarantine then.

        Raises:
            Refused: it was not accepted, or other bytes were.
        """
        if not report.accepted or report.digest != version.digest or report.policy_digest != policy.digest:
            raise Refused(f"{version.name} {version.number}: it was not proven anew")
        with self._changing(version.name):
            fresh = Version.of({**version.facts(), **_shown(report, policy, kernel), "registered": time.time()})
            self._log.append("proven", version.name, version.number, fresh.line, fresh.facts())
        return fresh

    def choose(self, name: str, number: int) -> None:
        """Let this version be the current one.

        Raises:
            UsageError: there is no such version, or another one is pinned.
        """
        with self._changing(name) as skill:
            if skill.pinned:
                raise UsageError(
                    f"{name} is pinned to version {skill.current}", remedy=f"hermes-exec skill unpin {name}"
                )
            self._event(skill, number)
            self._log.append("chosen", skill.name, number, {}, {})

    def pin(self, name: str, number: int | None = None) -> int:
        """Keep a version, the current one by default, though newer ones may come; gives its number."""
        with self._changing(name) as skill:
            wanted = skill.current if number is None else number
            self._event(skill, wanted)
            if wanted != skill.current:
                self._log.append("chosen", skill.name, wanted, {}, {})
            if not skill.pinned:
                self._log.append("pinned", skill.name, wanted, {}, {})
        return wanted

    def mark(self, kind: str, name: str) -> None:
        """``unpinned``, ``archived`` (it does not run, and nothing of it goes) or ``restored``; again is no error."""
        with self._changing(name) as skill:
            if {"unpinned": not skill.pinned, "archived": skill.archived, "restored": not skill.archived}[kind]:
                return
            self._log.append(kind, skill.name, skill.current, {}, {})

    def quarantine(self, name: str, number: int, why: str) -> None:
        """Keep a version from running until it is proven anew, or a person releases it."""
        with self._changing(name) as skill:
            if number not in skill.kept_back:
                self._log.append("quarantined", skill.name, number, {"why": why[:200]}, {"why": why})

    def release(self, name: str, number: int | None = None) -> Version:
        """Let a version out of quarantine whose files are what was signed.

        Raises:
            UsageError: it is in no quarantine.
            content.Changed: its files were changed.
        """
        with self._changing(name) as skill:
            version = self.recorded(skill, number)
            if version.number not in skill.kept_back:
                raise UsageError(f"{name} {version.number} is not in quarantine")
            self.verify(version)
            self._log.append("released", skill.name, version.number, {}, {})
        return version

    def verify(self, version: Version) -> None:
        """See that the files of a version are what was signed.

        Raises:
            content.Changed: they are not.
        """
        if found := content.differences(self.tree(version), version.files):
            raise content.Changed(f"{version.name} {version.number}: {'; '.join(found[:5])}")

    @contextlib.contextmanager
    def _changing(self, name: str) -> Generator[Skill]:
        """Hold others off while something is recorded of a skill that is there.

        Raises:
            UsageError: there is none; nothing was made.
        """
        self.skill(name)
        with self.home.locked():
            yield self.skill(name)

    def _among(self, skills: Mapping[str, Skill], name: str) -> Skill:
        found = skills.get(name) or skills.get(name.replace("_", "-"))
        if found is None:
            guess = nearest(name, skills)
            hint = f"; the nearest known one is {guess!r}" if guess else ": there is none yet"
            raise UsageError(f"no skill is called {name!r}{hint}", remedy="hermes-exec skill list")
        return found

    def _event(self, skill: Skill, number: int) -> Event:
        if number not in skill.versions:
            known = ", ".join(map(str, skill.versions))
            raise UsageError(f"{skill.name} has no version {number}", remedy=f"one of {known}")
        return skill.versions[number]


@contextlib.contextmanager
def _no_collection() -> Generator[None]:
    """Ten thousand events are many objects and no garbage; looking for some costs half of the time."""
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
        raise Refused(f"{report.name}: what the gate judged is not what is to be registered")
    if not author.confined and not insist:
        raise Refused(
            f"{report.name}: its writer runs commands on this machine without a sandbox, so it could register anything",
            remedy="give the agent a sandbox for its commands, or let a person register it with --insist",
        )


def _version_of(
    tree: Tree,
    report: Report,
    policy: Policy,
    author: Author,
    kernel: str,
    number: int,
    parents: Sequence[str],
) -> Version:
    return Version(
        name=report.name,
        number=number,
        digest=tree.digest,
        files=tree.files,
        author=author,
        parents=tuple(parents),
        protection=PROTECTED if author.confined else UNPROTECTED,
        registered=time.time(),
        **_shown(report, policy, kernel),
    )


def _shown(report: Report, policy: Policy, kernel: str) -> dict[str, Any]:
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
    }

"""Register what a review learned: a new skill, or a new version of the one that is for the same purpose.

A guide has a fixed form, a function passes the whole gate. Only skills that the agent wrote are changed: never a pinned
one, a person's, an imported one, or one that the person exempts.
"""

from __future__ import annotations

import asyncio
import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.learning.curator_plan import find_exemption
from hermes_exec_agent.learning.duplicates import find_duplicate, read_candidate
from hermes_exec_agent.learning.guide_form import find_form_problem, merge_files
from hermes_exec_agent.memory.screening import find_withholding
from hermes_exec_agent.skills.build.cases import list_required, parse_examples
from hermes_exec_agent.skills.registry.admission import judge, list_expected_files
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.guides import has_function
from hermes_exec_agent.skills.registry.record import Origin
from hermes_exec_agent.tools.provenance import list_origins
from hermes_exec_agent.tools.skill_manage import normalize_name, patch_files, write_files
from hermes_exec_agent.tools.skillset import read_files
from hermes_exec_policies.gate.skill_names import find_guide_name_problem
from hermes_exec_policies.gate.verdict import Level, Right, SkillRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from hermes_exec_agent.learning.duplicates import Duplicate
    from hermes_exec_agent.memory.embedding.protocol import Embedder
    from hermes_exec_agent.skills.registry.record import Author, Experience, Skill, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.gate.verdict import Report

_UNCHANGED = "nothing was registered"
_READ = (".md", ".txt")
"""Endings of files that models read as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The sources of what a review read."""

    has_output: bool = False
    """Whether a tool returned text from outside: a guide from it waits for a person."""
    has_untrusted_skill: bool = False
    """Whether it has text of a skill that no person trusts: anything from it waits."""

    def find_kind(self, *, is_function: bool) -> str:
        """Return the kind of the origin of a version."""
        is_untrusted = self.has_untrusted_skill or (self.has_output and not is_function)
        return "untrusted" if is_untrusted else "agent"


@dataclass(frozen=True, slots=True)
class WrittenSkill:
    """A version that was registered."""

    version: Version
    waits: bool
    """Whether it waits for a person."""
    note: str = ""
    """Why it is a version of another skill than the one that was named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillWriter:
    """Writes the skills of one review of one task."""

    registry: Registry
    author: Author
    experience: Experience
    material: Material
    request: str = ""
    """The person's words; examples in them are cases of functions."""
    exempt: Collection[str] = ()
    """Names of skills that are not changed."""
    embedder: Embedder | None = None

    def find_written(self) -> WrittenSkill | None:
        """Return the version that the same call of the same review registered, before a kill cut it off."""
        for skill in self.registry.skills().values():
            for number, event in skill.versions.items():
                learned: dict[str, Any] = event.facts.get("learned") or {}
                if (learned.get("review"), learned.get("call")) == (self.experience.review, self.experience.call):
                    return WrittenSkill(self.registry.read_version(skill, number), number in skill.waiting)
        return None

    async def create(self, name: str, patch: str) -> WrittenSkill:
        """Register a new skill, or a new version of the guide that is for the same purpose.

        Args:
            name: of the skill.
            patch: adds its files, as V4A.

        Raises:
            UsageError: the name, the patch or the form of the guide is wrong, or a function is there already.
            Refused: the gate or a rule refused it, or the skill for this purpose may not be changed.
            HermesError: it could not be judged; nothing was registered.
        """
        name = normalize_name(name)
        if wrong := find_guide_name_problem(name):
            raise UsageError(f"{name!r} is not a valid name of a skill: {wrong}", remedy="count-files, for example")
        files = patch_files({}, patch)
        is_function = has_function(name, files)
        _check_texts(files, is_function=is_function)
        with private_folder() as folder:
            tree = _write(files, folder / name, None)
            report = await _check_structure(tree, is_function=is_function)
            candidate = read_candidate(name, files, report.summary, is_function=is_function)
            found = await asyncio.to_thread(find_duplicate, self.registry, candidate, self.embedder)
            if found is None:
                if is_function:
                    report = await self._judge_function(tree, None)
                return await self._register(tree, report, None)
        return await self._merge(found, files, is_function=is_function)

    async def patch(self, name: str, patch: str) -> WrittenSkill:
        """Register a changed version of a skill.

        Raises:
            UsageError: there is no such skill, or the patch or the form of the guide is wrong.
            Refused: the gate or a rule refused it, or the skill may not be changed.
            HermesError: it could not be judged; nothing was registered.
        """
        skill = self.registry.skill(name)
        self._check_changeable(skill)
        version = self.registry.read_version(skill)
        files = patch_files(await asyncio.to_thread(read_files, self.registry, version), patch)
        is_function = has_function(version.name, files)
        if is_function != version.is_function:
            raise UsageError(f"{version.name} would change from a guide to a function or back", remedy="a new skill")
        _check_texts(files, is_function=is_function)
        return await self._change(version, files)

    async def _merge(self, found: Duplicate, files: Mapping[str, bytes], *, is_function: bool) -> WrittenSkill:
        name = found.skill.name
        self._check_changeable(found.skill, f"{name} is for the same purpose, as {found.why}; ")
        if is_function or found.version.is_function:
            raise UsageError(f"{name} is for the same purpose, as {found.why}", remedy=f"patch {name}")
        older = await asyncio.to_thread(read_files, self.registry, found.version)
        merged = merge_files(older, files)
        _check_texts(merged, is_function=False)
        written = await self._change(found.version, merged)
        return replace(written, note=f"no second skill was made: {found.why}")

    def _check_changeable(self, skill: Skill, why: str = "") -> None:
        reason = "it is archived" if skill.archived else find_exemption(skill, self.exempt)
        if reason:
            raise Refused(f"{why}{skill.name} stays as it is: {reason}", remedy="do without it")

    async def _change(self, base: Version, files: Mapping[str, bytes]) -> WrittenSkill:
        with private_folder() as folder:
            tree = _write(files, folder / base.name, base)
            if base.is_function:
                report = await self._judge_function(tree, base)
            else:
                report = await _check_structure(tree, is_function=False)
            return await self._register(tree, report, base)

    async def _judge_function(self, tree: Tree, base: Version | None) -> Report:
        """Return the report of the gate, with the cases of the version before.

        Raises:
            Refused: the gate did not accept it, or its evidence would be weaker than before.
        """
        if base is None:
            report = await judge(self.registry, tree, cases=parse_examples(self.request))
        else:
            cases = list_required(base, (), self.request)
            report = await judge(self.registry, tree, cases=cases, files=list_expected_files(base))
        _check_report(tree.root.name, report)
        if base is not None and _rank(report.level) < _rank(base.level):
            raise Refused(f"{base.name}: its evidence would be weaker: {report.level}, not {base.level}")
        return report

    async def _register(self, tree: Tree, report: Report, base: Version | None) -> WrittenSkill:
        """Register a tree; a cancelled call has registered it, or nothing."""
        from hermes_exec_policies.load import load_policy

        skill = self.registry.skills().get(report.name)
        kind = self.material.find_kind(is_function=Right.CALL in report.rights)
        if base is not None and skill is not None and list_origins(base, skill):
            kind = "untrusted"  # a change does not make untrusted text the agent's own
        registering = asyncio.to_thread(
            self.registry.register,
            tree,
            report,
            load_policy(report.policy),
            author=self.author,
            kernel=platform.release(),
            origin=Origin(kind=kind, experience=self.experience),
            replaces=0 if base is None else base.number,
        )
        return WrittenSkill(await shield_to_completion(registering, limit_s=None), kind == "untrusted")


async def _check_structure(tree: Tree, *, is_function: bool) -> Report:
    from hermes_exec_policies.gate.guide import check_guide

    report = await check_guide(tree, scripts=not is_function)
    _check_report(tree.root.name, report)
    return report


def _write(files: Mapping[str, bytes], root: Path, base: Version | None) -> Tree:
    try:
        return write_files(files, root, base)
    except SkillRefused as error:
        raise UsageError(f"its files are refused: {error.findings[0].operator}", remedy="fix them") from error


def _check_texts(files: Mapping[str, bytes], *, is_function: bool) -> None:
    manifest = files.get("SKILL.md", b"").decode("utf-8", "replace")
    if not is_function and (problem := find_form_problem(manifest)):
        raise UsageError(problem, remedy="fix it, and call again")
    for path, data in files.items():
        # The gate looks for secrets and hidden characters in all files; code may have what looks like a call.
        if path.endswith(_READ) and (reason := find_withholding(data.decode("utf-8", "replace"))):
            raise Refused(f"{path} has {reason}; {_UNCHANGED}", remedy="leave that out")


def _check_report(name: str, report: Report) -> None:
    if report.accepted:
        return
    # As for each skill of an agent, the model reads one sentence of a refusal for security.
    reasons = report.reasons[: 1 if report.security else 3]
    raise Refused(f"the gate did not accept {name}: {'; '.join(reasons)}", remedy="fix its files")


def _rank(level: str) -> int:
    return list(Level).index(Level(level))

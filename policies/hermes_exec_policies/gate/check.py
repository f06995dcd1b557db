"""The gate's entry point: run every stage in order, measure each, and return one report."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.extras import require
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.folders import with_folders
from hermes_exec_policies.gate import behavior_rules, verdict
from hermes_exec_policies.gate.analysis.audit import examine_files
from hermes_exec_policies.gate.analysis.requirements import find_requirements
from hermes_exec_policies.gate.archive_members import unpack
from hermes_exec_policies.gate.candidate import Candidate
from hermes_exec_policies.gate.cases import Case, find_named_files, find_unseen_files, strongest_level
from hermes_exec_policies.gate.child_process import ChildProcess, Unanswered
from hermes_exec_policies.gate.environments import Environments, copy_tools, install, share_environment
from hermes_exec_policies.gate.grants import Grants, apply_bounds, resolve_bounds
from hermes_exec_policies.gate.launch import PYTHON, identify_interpreter
from hermes_exec_policies.gate.manifest import Manifest, read_manifest
from hermes_exec_policies.gate.suites import run_suites
from hermes_exec_policies.gate.tree import Tree, copy_tree
from hermes_exec_policies.gate.verdict import Evidence, Finding, Report, SkillRefused
from hermes_exec_policies.load import load_policy

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

    from hermes_exec_policies.model import Policy
__all__ = ["Case", "Grants", "Report", "check"]
_AUDIT_CPU_S = 20
_CPU_S = 60


async def check(  # noqa: PLR0913  each by its name
    source: Path | Tree,
    *,
    grants: Grants | None = None,
    cases: Sequence[Case] = (),
    files: Collection[str] = (),
    policy: Policy | str = verdict.FUNCTION_POLICY,
    taken: Collection[str] = (),
    folder: str = "",
    work: Path | None = None,
    store: Environments | None = None,
) -> Report:
    """Judge a skill: a folder, an archive, or files that ``copy_tree`` took, which are judged where they are.

    Args:
        source: the skill.
        grants: the resources that it may have if it declares them.
        cases: test cases that its author did not write.
        files: files that it must write; one that no unseen case checks keeps it ``self-tested``.
        policy: its confinement while it is judged.
        taken: names of other skills.
        folder: the original folder name of a Tree; the name of the tree's own folder by default.
        work: a private folder that a sandbox's user can reach; by default one below /tmp.
        store: the folders of packages.

    Raises:
        Unsupported: the policy cannot be enforced here, so nothing can be judged.
        MissingExtra: the packages that judge skills are not installed.
        PlaceUnavailable: no sandbox can be created.
        OSError: it cannot be read.
    """
    require("skills", "to judge skills")
    found_policy = load_policy(policy) if isinstance(policy, str) else policy
    with work_folder(work) as room:
        async with ChildProcess() as child:
            judged = _GateRun(found_policy, grants or Grants(), cases, files, child)
            try:
                with judged.stage(verdict.MANIFEST):
                    tree = take_source(source, room / "candidate")
                    await judged.read(tree, folder or _name_of(source), taken)
                await judged.look()
                environment = await judged.equip(room, store or Environments())
                await judged.try_out(room, environment)
            except SkillRefused as error:
                judged.findings += error.findings
            except Unanswered as error:
                # Fail closed: a text that exhausts or crashes the child process was not examined.
                said = f"it could not be examined: {error.what}; make its files smaller"
                judged.findings.append(verdict.functional("audit.unreadable", said))
    return judged.report()


class _GateRun:
    """The state of one run of the gate, from which the report is built."""

    def __init__(
        self, policy: Policy, grants: Grants, cases: Sequence[Case], files: Collection[str], child: ChildProcess
    ) -> None:
        self.findings: list[Finding] = []
        self._policy = policy
        self._bounded = policy
        self._grants = grants
        self._cases = cases
        self._files = files
        self._child = child
        self._tree: Tree | None = None
        self._manifest: Manifest | None = None
        self._environment: Path | None = None
        self._evidence: Evidence | None = None
        self._proof: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = round(time.monotonic() - began, 3)

    async def read(self, tree: Tree, folder: str, taken: Collection[str]) -> None:
        self._tree = tree
        self._manifest, found = await read_manifest(self._child, tree, folder, taken)
        self.findings += found
        needs = self._manifest.needs
        bounds, wrong = resolve_bounds(self._policy, needs, self._grants)
        self._refuse([*self._grants.find_lacking(needs), *wrong])
        # The report has the effective grants, so that later runs get the same ones.
        folders = self._grants.select_folders(needs)
        self._grants = replace(self._grants, limits=bounds, folders=tuple(map(str, folders)))
        self._bounded = with_folders(apply_bounds(self._policy, bounds), folders)

    async def look(self) -> None:
        tree, _ = self._require_manifest()
        with self.stage(verdict.AUDIT):
            self._refuse(await self._child.call(_AUDIT_CPU_S, examine_files, tree.facts()))

    async def equip(self, work: Path, store: Environments) -> Path | None:
        """Install the skill's packages; return their folder, which a sandbox can reach."""
        tree, manifest = self._require_manifest()
        with self.stage(verdict.DEPENDENCIES):
            asked, wrong = await self._child.call(
                _CPU_S, find_requirements, tree.facts(), list(manifest.needs.packages)
            )
            if asked and not self._grants.packages:
                wrong.append(verdict.functional("dependencies.not-granted", "it may not have packages"))
            self._refuse(wrong)
            if not asked:
                return None
            kept = await install(self._policy, asked, work, store)
            self._environment = kept
            return share_environment(kept, work / "packages")

    async def try_out(self, work: Path, environment: Path | None) -> None:
        tree, manifest = self._require_manifest()
        with self.stage(verdict.PROOF):
            proof = await prove(self._bounded, watched=True)
            self._proof = proof.summary
        candidate = Candidate(tree, manifest, self._bounded, copy_tools(work), work, self._child, environment)
        with self.stage(verdict.SUITES):
            seen = await run_suites(candidate, self._cases, work)
            self._refuse(seen.findings)
        self._evidence = Evidence(
            level=await self._level(tree, seen.unchecked), files=tuple(sorted(self._files)), cases=seen.cases,
            tests=seen.tests, mutants=seen.mutants, killed=seen.killed,
            specification=proof.specification,
            interpreter=identify_interpreter(PYTHON),
            usual=behavior_rules.record_baseline(candidate.usual),
            answered=seen.answered, held=tuple(each.facts() for each in self._cases if not each.anything),
        )  # fmt: skip

    async def _level(self, tree: Tree, unchecked: str) -> verdict.Level:
        """Return the level of evidence after the cases passed.

        An unseen case must check every expected file, and no way to a result may be ``unchecked``.
        """
        brought = {name for each in tree.files for name in (each.path, each.path.rpartition("/")[2])}
        text = tree.read("SKILL.md").decode("utf-8", "replace")
        named = {*self._files, *await self._child.call(_CPU_S, find_named_files, text, brought)}
        missing = find_unseen_files(named, [each.files for each in self._cases if each.source.unseen])
        if not missing and unchecked and strongest_level(self._cases).unseen:
            said = f"it is self-tested: {unchecked}; add a case with the right result"
            self.findings.append(verdict.advice("suites.unchecked", said))
            return verdict.Level.SELF_TESTED
        if not missing:
            return strongest_level(self._cases)
        if strongest_level(self._cases).unseen:
            said = f"it is self-tested, as no case from outside looks at {', '.join(missing[:3])}"
            self.findings.append(verdict.advice("suites.unseen-file", said))
        return verdict.Level.SELF_TESTED

    def report(self) -> Report:
        report = Report(
            findings=tuple(dict.fromkeys(self.findings)), policy=self._policy.name, policy_digest=self._policy.digest,
            grants=self._grants.facts(), seconds=self._seconds, evidence=self._evidence,
            digest=self._tree.digest if self._tree else "",
            environment=self._environment.name if self._environment else "",
            environment_folder=str(self._environment or ""),
            rights=tuple(verdict.Right) if self._evidence else (), proof=self._proof,
        )  # fmt: skip
        found = self._manifest
        if found is None:
            return report
        return replace(
            report, name=found.name, module=found.module, summary=found.description, entry=found.entry,
            function=found.signature.function, schema=found.signature.schema,
        )  # fmt: skip

    def _require_manifest(self) -> tuple[Tree, Manifest]:
        if self._tree is None or self._manifest is None:
            raise AssertionError("a stage before the manifest was read")
        return self._tree, self._manifest

    def _refuse(self, found: Sequence[Finding]) -> None:
        if any(each.kind != verdict.Kind.ADVICE for each in found):
            raise SkillRefused(*found)
        self.findings += found


@contextmanager
def work_folder(given: Path | None) -> Generator[Path]:
    """Yield the given folder, or a new one below /tmp that is removed afterwards."""
    if given is not None:
        yield given
        return
    # Not below our home, because a sandbox's user has to reach it; mode 0711, so that other users cannot list it.
    with tempfile.TemporaryDirectory(prefix="hermes-gate-") as made:
        os.chmod(made, 0o711)  # noqa: PTH101, S103  it can be passed, not listed
        yield Path(made)


def _name_of(source: Path | Tree) -> str:
    """Return the name of the source's folder."""
    return source.root.name if isinstance(source, Tree) else source.resolve().name.split(".")[0]


def take_source(source: Path | Tree, into: Path) -> Tree:
    """Copy a folder or unpack an archive into a new folder; return a Tree as it is.

    Raises:
        SkillRefused: it has links, devices, invalid names, or too much.
        OSError: it cannot be read.
    """
    if isinstance(source, Tree):
        return source
    return unpack(source, into) if source.is_file() else copy_tree(source, into)

"""Judge a skill as a guide: text that a model may read, and scripts that may run in a sandbox of their own.

No code of the skill runs here, and none of its words decides: structure, hidden characters, known secrets and sizes do.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec.extras import require
from hermes_exec_policies.gate import verdict
from hermes_exec_policies.gate.analysis.description import describe_guide
from hermes_exec_policies.gate.analysis.layout import check_guide_files
from hermes_exec_policies.gate.check import take_source, work_folder
from hermes_exec_policies.gate.child_process import ChildProcess, Unanswered
from hermes_exec_policies.gate.launch import SCRIPT_POLICY
from hermes_exec_policies.gate.manifest import read_front_matter
from hermes_exec_policies.gate.text_checks import decode_text
from hermes_exec_policies.gate.tree import Tree
from hermes_exec_policies.gate.verdict import Finding, Kind, Report, Right, SkillRefused, advice, functional
from hermes_exec_policies.load import load_policy

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_SCRIPT = re.compile(r".*\.(py|sh)")
_SHEBANG = re.compile(rb"#![ \t]*(?:/\S*/)?(?:env[ \t]+(?:-S[ \t]+)?)?(?:python[0-9.]*|sh|bash|dash)(?:[ \t\r\n]|$)")
_CPU_S = 60


async def check_guide(
    source: Path | Tree,
    *,
    taken: Collection[str] = (),
    folder: str = "",
    work: Path | None = None,
    scripts: bool = True,
) -> Report:
    """Judge a skill as a guide; the report's rights are what it earned of READ and SCRIPTS.

    Args:
        source: a folder, an archive, or files that ``copy_tree`` took, which are judged where they are.
        taken: names of other skills.
        folder: the original folder name of a Tree, which must be the skill's name; by default the name of the source,
            and for an archive none.
        work: a private folder for the copy; by default one below /tmp, which is removed.
        scripts: prove the sandbox in which its scripts run, so that it can earn SCRIPTS.

    Raises:
        MissingExtra: the packages that judge skills are not installed.
        OSError: it cannot be read.
    """
    require("skills", "to judge skills")
    began = time.monotonic()
    policy = load_policy(SCRIPT_POLICY)
    report = Report(findings=(), policy=policy.name, policy_digest=policy.digest)
    with work_folder(work) as room:
        try:
            tree = take_source(source, room / "candidate")
            report = replace(report, digest=tree.digest)
            report = await _read(tree, folder or _find_folder(source), taken, report)
            if scripts and find_scripts(tree):
                report = await _prove_scripts(report)
        except SkillRefused as error:
            report = replace(report, findings=(*report.findings, *map(_as_functional, error.findings)), rights=())
        except Unanswered as error:
            wrong = functional("manifest.unreadable", f"it could not be examined: {error.what}; make its files smaller")
            report = replace(report, findings=(*report.findings, wrong), rights=())
    return replace(report, seconds={verdict.MANIFEST: round(time.monotonic() - began, 3)})


def find_scripts(tree: Tree) -> list[str]:
    """Return the paths of the files that Python or a POSIX shell runs."""
    return [each.path for each in tree.files if is_script(each.path, tree.read(each.path))]


def is_script(path: str, data: bytes) -> bool:
    """Return whether Python or a POSIX shell runs this file."""
    name = path.rpartition("/")[2]
    if name == "__init__.py" or decode_text(data) is None:
        return False
    return bool(_SCRIPT.fullmatch(name) or _SHEBANG.match(data))


async def _read(tree: Tree, folder: str, taken: Collection[str], report: Report) -> Report:
    """Return the report with the right READ.

    Raises:
        SkillRefused: something is certain to be wrong; the findings have every such thing.
    """
    async with ChildProcess() as child:
        found, secrets = await child.call(_CPU_S, check_guide_files, tree.facts())
        paths = [each.path for each in tree.files]
        if "SKILL.md" not in paths:
            inner = next((path for path in sorted(paths) if path.endswith("/SKILL.md")), "")
            remedy = f"give the folder of {inner}" if inner else "write one with a name and a description"
            raise SkillRefused(*found, functional("manifest.missing", f"there is no SKILL.md at the top: {remedy}"))
        found += secrets
        data = tree.read("SKILL.md")
        text = decode_text(data)
        if text is None:
            raise SkillRefused(*found)
        if data.startswith(b"\xef\xbb\xbf"):
            mark = "it begins with a byte order mark, which some readers refuse"
            found.append(advice("manifest.mark", mark, "SKILL.md"))
        try:
            front = await read_front_matter(child, text, folder, lenient=True)
        except SkillRefused as error:
            raise SkillRefused(*found, *error.findings) from error
        name, description, more = await child.call(
            _CPU_S, describe_guide, front.fields, front.body, front.ignored, front.long, paths, list(taken)
        )
    found += more
    if any(each.kind is not Kind.ADVICE for each in found):
        raise SkillRefused(*found)
    return replace(report, findings=tuple(found), name=name, summary=description, rights=(Right.READ,))


async def _prove_scripts(report: Report) -> Report:
    """Return the report with the right SCRIPTS if the sandbox of scripts is proven on this machine."""
    from hermes_exec_policies.canaries.prove import prove

    try:
        proof = await prove(load_policy(SCRIPT_POLICY))
    except HermesError as error:
        why = advice("proof.unproven", f"its scripts may not run: no sandbox is proven here ({error})")
        return replace(report, findings=(*report.findings, why))
    return replace(report, rights=(*report.rights, Right.SCRIPTS), proof=proof.summary)


def _find_folder(source: Path | Tree) -> str:
    if isinstance(source, Tree):
        return source.root.name
    return "" if source.is_file() else source.resolve().name


def _as_functional(finding: Finding) -> Finding:
    """Return a finding that its author may read and fix: nothing of a text is final."""
    return replace(finding, kind=Kind.FUNCTIONAL) if finding.kind is Kind.SECURITY else finding

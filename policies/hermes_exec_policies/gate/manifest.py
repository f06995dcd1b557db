"""Read a skill's SKILL.md in the format of agentskills.io, and the signature of its function.

A child process parses both; nothing of a skill is imported or executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.analysis.description import describe_function
from hermes_exec_policies.gate.analysis.frontmatter import FrontMatter, parse_front_matter
from hermes_exec_policies.gate.analysis.layout import check_function_files
from hermes_exec_policies.gate.child_process import ChildProcess, Unanswered
from hermes_exec_policies.gate.grants import Needs, parse_needs
from hermes_exec_policies.gate.verdict import Finding, SkillRefused, functional

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hermes_exec_policies.gate.analysis.signature import Signature
    from hermes_exec_policies.gate.tree import Tree


_FRONT_CPU_S = 4
_CPU_S = 60
_NAME = re.compile(r"[a-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A skill's description of itself; facts that can be checked are never taken from it."""

    name: str
    """``generate-csv-report``"""
    module: str
    """``generate_csv_report``"""
    description: str
    version: str
    license: str
    metadata: Mapping[str, str]
    body: str
    entry: str
    """The path of the script with the skill's function."""
    signature: Signature
    needs: Needs

    def facts(self) -> dict[str, Any]:
        """Return the manifest as JSON data."""
        return {
            "name": self.name, "module": self.module, "description": self.description, "version": self.version,
            "license": self.license, "entry": self.entry, "function": self.signature.function,
            "schema": self.signature.schema, "needs": self.needs.facts(),
        }  # fmt: skip


async def read_manifest(
    child: ChildProcess, tree: Tree, folder: str, taken: Collection[str] = ()
) -> tuple[Manifest, list[Finding]]:
    """Read and validate a skill's SKILL.md; return the manifest, and findings that refuse nothing.

    ``folder`` is the name of the source's folder; ``taken`` are the names of other skills.

    Raises:
        SkillRefused: it is not a skill; the findings name every error.
        Unanswered: its files could not be examined.
    """
    found = await child.call(_CPU_S, check_function_files, tree.facts())
    paths = {each.path for each in tree.files}
    if "SKILL.md" not in paths:
        raise SkillRefused(
            *found,
            functional(
                "manifest.missing", "there is no SKILL.md; add one that begins with ---, name: …, description: …, ---"
            ),
        )
    if found:
        raise SkillRefused(*found)
    front = await read_front_matter(child, tree.read("SKILL.md").decode(), folder)
    told = await child.call(_CPU_S, describe_function, tree.facts(), front.fields, front.body, list(taken))
    needs, wrong = parse_needs(told.metadata)
    if found := [*told.findings, *wrong, *told.absent]:
        raise SkillRefused(*found)
    signature = told.signature
    if signature is None:
        raise SkillRefused(*told.unusable)
    if not (_NAME.fullmatch(told.name) and told.entry in paths and signature.function.isidentifier()):
        raise Unanswered(f"{describe_function.__module__}: an invalid answer")
    manifest = Manifest(
        name=told.name, module=told.name.replace("-", "_"), description=told.description,
        version=told.metadata.get("version", ""), license=told.license, metadata=told.metadata, body=front.body,
        entry=told.entry, signature=signature, needs=needs,
    )  # fmt: skip
    return manifest, told.advice


async def read_front_matter(child: ChildProcess, text: str, folder: str, *, lenient: bool = False) -> FrontMatter:
    """Parse and validate the front matter of SKILL.md.

    Args:
        child: the process that parses it.
        text: the whole file.
        folder: the name of its folder, which must be the skill's; not compared if empty.
        lenient: accept fields that the format does not have, and values of any YAML style.

    Raises:
        SkillRefused: it is malformed; the findings name every error.
    """
    try:
        front = await child.call(_FRONT_CPU_S, parse_front_matter, text, folder, lenient=lenient)
    except Unanswered as error:
        why = f"its first part cannot be read: {error.what}"
        raise SkillRefused(functional("manifest.unreadable", why, "SKILL.md")) from error
    if front.errors:
        raise SkillRefused(*front.errors)
    return front

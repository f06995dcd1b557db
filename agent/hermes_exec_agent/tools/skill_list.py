"""Tools that list skills and show one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import Field

from hermes_exec.errors import UsageError
from hermes_exec_agent.quoting import quote, quote_name
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.planning import HERE
from hermes_exec_agent.tools.skillset import Skillset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.tools.tool import Context


class SkillsListArguments(ToolArguments):
    """List skills: tested functions for kinds of tasks. Look here before you write one."""

    query: str = Field("", description="Words that occur in name or summary")
    offset: int = Field(0, ge=0)
    limit: int = Field(50, ge=1, le=200)


class SkillsList(BaseTool[SkillsListArguments]):
    """Lists skills."""

    name = "skills_list"
    position = 80
    changes = False
    only_reads = True
    arguments_type = SkillsListArguments

    async def run(self, args: SkillsListArguments, context: Context) -> Envelope:
        """List skills by name."""
        terms = args.query.lower().replace("_", "-").split()
        found = [
            each
            for each in context.service(Skillset).registry.list_facts()
            if all(word in f"{each['name']} {each['summary']}".lower() for word in terms)
        ]
        lines = [
            f"{each['name']} {each['version']} ({each['level']}, {each['state']}): {quote(each['summary'])}"
            for each in found[args.offset : args.offset + args.limit]
        ]
        more = len(found) - args.offset - len(lines)
        note = f"there are {more} more: offset {args.offset + len(lines)}" if more > 0 else ""
        return Envelope(ok=True, place=HERE, output="\n".join(lines) or "none", truncated=more > 0, note=note)


class SkillViewArguments(ToolArguments):
    """Read a skill's documentation and its arguments, or one of its files."""

    name: str = Field(min_length=1)
    file_path: str = Field("", description="Such as scripts/x.py")


class SkillView(BaseTool[SkillViewArguments]):
    """Shows one skill, or one of its files."""

    name = "skill_view"
    position = 90
    changes = False
    only_reads = True
    arguments_type = SkillViewArguments

    async def run(self, args: SkillViewArguments, context: Context) -> Envelope:
        """Show the skill, after comparing its files with the signed list."""
        skills = context.service(Skillset)
        version = skills.registry.version(args.name)
        files = await skills.builder.files(version)
        if args.file_path:
            if args.file_path not in files:
                raise UsageError(
                    f"{version.name} has no file {args.file_path!r}", remedy=f"one of {_join_paths(files)}"
                )
            text = files[args.file_path]
        else:
            body = files["SKILL.md"].split("\n---\n", 1)[-1].strip()
            text = (
                f"About: {quote(version.summary)}\n\n{body}\n\nFiles: {_join_paths(files)}\n{describe_version(version)}"
            )
        shown, reference = await context.workspace.shorten(text)
        return Envelope(ok=True, place=HERE, output=shown, truncated=bool(reference), output_ref=reference)


def _join_paths(paths: Iterable[str]) -> str:
    return ", ".join(map(quote_name, paths))


def describe_version(version: Version) -> str:
    """Describe a version in one line."""
    schema = {key: value for key, value in version.schema.items() if key != "$schema"}
    return f"{version.name} {version.number}, evidence: {version.level}. Arguments: {json.dumps(schema)}"

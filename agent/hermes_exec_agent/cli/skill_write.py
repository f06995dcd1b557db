"""The commands of ``skill`` with which a person writes and finds skills: new, edit, search and export."""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.options import Number, Skill
from hermes_exec_agent.cli.skill_judge import get_author, open_registry, print_findings, print_registered

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry

_TEMPLATE = """---
name: {name}
description: {description}
license: Proprietary
metadata:
  version: "1"
---
# {title}

## Steps
1. …
"""
_LEFT_BY_EDITORS = ("*~", ".*.sw?", "#*#", ".#*", "*.orig")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the skill, and of its new folder.")],
    *,
    description: Annotated[
        str, typer.Option("--description", "-d", metavar="TEXT", help="Say what the skill does, and when to use it.")
    ] = "",
) -> int:
    """Create the folder NAME with a SKILL.md to edit. Register it with: skill add NAME."""
    from hermes_exec_policies.gate.skill_names import find_guide_name_problem

    if wrong := find_guide_name_problem(name):
        raise UsageError(f"{name[:80]!a} cannot be the name of a skill: {wrong}")
    text = " ".join(description.split()) or f"Describe here what {name} does, and when to use it."
    if len(text) > 1024 or not text.isprintable():
        raise UsageError("--description is longer than 1024 characters, or not printable")
    quoted = "'" + text.replace("'", "''") + "'"
    folder = Path(name)
    try:
        folder.mkdir()
        title = name.replace("-", " ").capitalize()
        (folder / "SKILL.md").write_text(_TEMPLATE.format(name=name, description=quoted, title=title), encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{name} is there already", remedy=f"hermes-exec skill add {name}") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be created: {error.strerror}") from error
    note(f"{name}/SKILL.md is there to edit. Try: hermes-exec skill add {name}")
    return 0


def edit(
    name: Skill,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="A file of the skill.")] = "SKILL.md",
) -> int:
    """Open a private copy of a skill in $VISUAL or $EDITOR, check it, and register it as a new version.

    A text that is refused is kept, and its path is printed. Trust and grants do not carry over to the new version.
    """
    from hermes_exec_agent.skills.registry import content

    refuse_agent("edit")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("there is no editor", remedy="EDITOR=… in the environment")
    registry = open_registry()
    version = registry.version(name)
    if file not in {each.path for each in version.files}:
        raise UsageError(f"{version.name} has no file {file[:80]!a}", remedy=f"hermes-exec skill show {version.name}")
    draft = Path(tempfile.mkdtemp(prefix="hermes-skill-"))
    keep = False
    try:
        content.copy_verified(registry.tree(version), version.files, draft / version.name)
        _open_editor(editor, draft / version.name / file)
        keep = True
        code = interruptible.run(_register_draft(registry, version, draft / version.name))
        keep = code != 0
        return code
    finally:
        if keep:
            say(f"the text is kept: {draft / version.name}")
        else:
            shutil.rmtree(draft, ignore_errors=True)


def _open_editor(editor: str, path: Path) -> None:
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise UsageError(f"the editor cannot be started: {error}", remedy="EDITOR=… in the environment") from error
    if code:
        raise HermesError(f"the editor ended with exit code {code}; nothing was registered")
    for pattern in _LEFT_BY_EDITORS:
        for left in path.parent.glob(pattern):
            with contextlib.suppress(OSError):
                left.unlink()


async def _register_draft(registry: "Registry", version: "Version", folder: Path) -> int:
    from hermes_exec_agent.skills.registry import guides
    from hermes_exec_agent.skills.registry.content import private_folder
    from hermes_exec_agent.skills.registry.record import Origin
    from hermes_exec_policies.gate.grants import Grants
    from hermes_exec_policies.gate.tree import copy_tree
    from hermes_exec_policies.gate.verdict import SkillRefused

    author = get_author(None, None, insist=False)
    origin = version.origin if version.origin.is_material else Origin(kind=author.kind)
    grants = Grants.from_facts(version.grants) if version.is_function else None
    with private_folder() as work:
        try:
            tree = copy_tree(folder, work / version.name)
        except SkillRefused as error:
            print_findings(error.findings)
            return CHECK_FAILED
        if tree.digest == version.digest:
            note(f"{version.name} {version.number}: nothing was changed")
            return 0
        admitted = await guides.register_guide(registry, tree, author=author, origin=origin, grants=grants)
    print_registered(admitted)
    return 0 if admitted.version else CHECK_FAILED


def search(
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words of the task.")],
    *,
    most: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="Show N at most.")] = 10,
    json: Json = False,
) -> int:
    """Search names, descriptions and texts of skills, best match first; exit with 1 if none matches."""
    from dataclasses import asdict

    from hermes_exec_agent.skills.registry.search import search_skills

    hits = search_skills(open_registry(), " ".join(words), limit=most)
    if json:
        show_json([asdict(each) for each in hits])
    elif hits:
        show_table(("NAME", "ABOUT"), [[each.name, each.summary[:80]] for each in hits])
    else:
        note("no skill has one of these words")
    return 0 if hits else CHECK_FAILED


def export(
    name: Skill,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Write the folder DIR/NAME, which other agents read.")
    ] = None,
    *,
    number: Number = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FILE", help="Write a signed file with the evidence instead.")
    ] = None,
    flat: Annotated[
        Path | None,
        typer.Option("--flat", metavar="FILE", help="Write the script of a function alone; it cannot be imported."),
    ] = None,
) -> int:
    """Write a version to the new folder DIR/NAME, or to a new file. Its files are verified first."""
    from hermes_exec_agent.skills.registry import bundle as bundles

    if sum(each is not None for each in (folder, bundle, flat)) != 1:
        raise UsageError("export writes one thing", remedy="DIR, --bundle FILE or --flat FILE")
    registry = open_registry()
    version = registry.version(name, number)
    if bundle is not None:
        bundles.write(registry, version, bundle)
        note(f"{to_printable(bundle)}: {version.name} {version.number}, signed by {registry.signer[:16]}")
    elif flat is not None:
        if not version.is_function:
            raise UsageError(f"{version.name} {version.number} is a guide: it has no function", remedy="DIR instead")
        bundles.write_flat(registry, version, flat)
        note(to_printable(flat))
    elif folder is not None:
        note(f"{to_printable(_write_folder(registry, version, folder))}: {version.name} {version.number}")
    return 0


def _write_folder(registry: "Registry", version: "Version", folder: Path) -> Path:
    """Write the files of a version to a new folder of its name; a failure leaves nothing.

    Raises:
        UsageError: the folder exists, or cannot be written.
        content.ContentChanged: the files differ from the signed list.
    """
    from hermes_exec_agent.skills.registry import content

    target = folder / version.name
    if os.path.lexists(target):
        raise UsageError(f"{to_printable(target)} is there already", remedy="a folder without it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content.copy_verified(registry.tree(version), version.files, target)
    except OSError as error:
        raise UsageError(f"{to_printable(target)} cannot be written: {error.strerror}") from error
    return target

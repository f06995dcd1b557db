"""``skill``: what agents and people taught, each proven before it was registered, and everything that became of it."""

import difflib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json, Number, Skill, Skills
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.cli.skill_run import Asked, perform

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.log import Event
    from hermes_exec_agent.skills.registry.registry import Registry


def run(
    name: Skill,
    *,
    arguments: Annotated[
        str,
        typer.Option("--json", metavar="ARGS", help="Its arguments, as a JSON object; - reads them from our input."),
    ] = "{}",
    on: Annotated[
        str | None,
        typer.Option("--on", "-o", metavar="TARGET", help="Where: bubblewrap, docker:IMAGE, a profile; this machine."),
    ] = None,
    number: Number = None,
    files: Annotated[
        Path | None, typer.Option("--files", "-f", metavar="DIR", help="A new folder for the files that it leaves.")
    ] = None,
    self_tested: Annotated[
        bool, typer.Option("--self-tested", help="You agree to run what nothing but its own tests speaks for.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", "-w", help="Print all that is known of the run, as JSON.")] = False,
) -> int:
    """Run a skill in a new sandbox, as it was proven, and print its result as JSON; what it prints is our errors.

    The exit code is 1 where the skill failed, and 125 where it was refused or no sandbox can be had.
    """
    return perform(Asked(name, arguments, on, number, files, self_tested, whole))


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    from hermes_exec_agent.cli import skill_judge
    from hermes_exec_agent.cli import skill_judge as skill_work

    group = StrictTyper(help=f"{summary} docs/skills.md tells all about them.")
    group.command("check")(skill_judge.check)
    group.command("add")(skill_work.add)
    group.command("run")(run)
    for command in (list_skills, show, history, diff, rollback, pin, unpin, archive, restore, release, verify, gc):
        group.command(command.__name__.partition("_")[0])(command)
    group.command("prove")(skill_work.prove)
    group.command("export")(skill_work.export)
    group.command("import")(skill_work.import_bundle)
    app.add_typer(group, name=name, short_help=summary)


def list_skills(
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also what is archived.")] = False,
    json: Json = False,
) -> int:
    """List the skills, each with its current version, how strong its evidence is, and its state."""
    skills = _registry().listed(archived=everything)
    if json:
        show_json(skills)
        return 0
    heads = ("NAME", "VERSION", "EVIDENCE", "STATE", "ABOUT")
    rows = [[each["name"], str(each["version"]), _level(each), each["state"], each["summary"]] for each in skills]
    if rows:
        show_table(heads, rows)
    else:
        note("all skills are archived. Try: --all" if _registry().skills() else "there is no skill yet")
    return 0


def show(name: Skill, *, number: Number = None, json: Json = False) -> int:
    """Show all that was recorded of a skill: what it is, who wrote it, the evidence, and how its runs went."""
    from hermes_exec_agent.skills.registry.counts import Runs

    registry = _registry()
    skill = registry.skill(name)
    version = registry.version(name, number)
    counts = Runs(registry.home.counts).of(version.name, version.number)
    state = skill.kept_back.get(version.number, "")
    facts = {**version.facts(), "state": skill.state, "quarantine": state, "runs": counts.facts()}
    facts["signer"] = registry.signer
    if json:
        show_json(facts)
        return 0
    show_table(("KEY", "VALUE"), [[key, value] for key, value in _told(facts).items()])
    return 0


def history(name: Skill, *, json: Json = False) -> int:
    """Tell all that happened to a skill, oldest first."""
    events = _registry().skill(name).history
    if json:
        show_json([_event(event) for event in events])
        return 0
    rows = [
        [_when(event.at), event.kind, str(event.version), str(event.facts.get("level", event.facts.get("why", "")))]
        for event in events
    ]
    show_table(("WHEN", "WHAT", "VERSION", ""), rows)
    return 0


def diff(
    name: Skill,
    one: Annotated[int, typer.Argument(metavar="N", help="A version.")],
    other: Annotated[int | None, typer.Argument(metavar="[M]", help="Another; the current one if left out.")] = None,
    *,
    json: Json = False,
) -> int:
    """Show in which files, and in which lines, two versions differ. Both are verified first."""
    registry = _registry()
    left, right = registry.version(name, one), registry.version(name, other)
    for version in (left, right):
        registry.verify(version)
    before, after = ({each.path: each for each in version.files} for version in (left, right))
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if json:
        show_json({"name": left.name, "from": left.number, "to": right.number, "changed": changed})
        return 0
    if not changed:
        note("they are the same")
    for path in changed:
        old, new = (_text(registry.tree(version) / path) for version in (left, right))
        for line in difflib.unified_diff(old, new, f"{left.number}/{path}", f"{right.number}/{path}", lineterm=""):
            print("".join(each if each.isprintable() else "?" for each in line.replace("\t", "    ")))
    return 0


def rollback(
    name: Skill,
    number: Annotated[int | None, typer.Argument(metavar="[N]", help="A version; the one before if left out.")] = None,
) -> int:
    """Let an older version be the current one. The newer ones stay."""
    registry = _registry()
    skill = registry.skill(name)
    older = [each for each in sorted(skill.versions) if each < skill.current and each not in skill.kept_back]
    if number is None and not older:
        raise UsageError(f"{skill.name}: there is no version before {skill.current} that could run")
    chosen = older[-1] if number is None else number
    registry.choose(skill.name, chosen)
    note(f"{skill.name}: the current version is {chosen}")
    return 0


def pin(name: Skill, *, number: Number = None) -> int:
    """Keep a version as the current one, whatever is registered later."""
    note(f"{name}: pinned to version {_registry().pin(name, number)}")
    return 0


def unpin(name: Skill) -> int:
    """Let the next version that is registered be the current one again."""
    _registry().mark("unpinned", name)
    note(f"{name}: the next version that is registered becomes the current one")
    return 0


def archive(name: Skill) -> int:
    """Put a skill away: it is not listed and does not run, and nothing of it is deleted."""
    _registry().mark("archived", name)
    note(f"{name} is archived; hermes-exec skill restore {name} brings it back")
    return 0


def restore(name: Skill) -> int:
    """Bring a skill back from the archive."""
    _registry().mark("restored", name)
    note(f"{name} is back")
    return 0


def release(name: Skill, *, number: Number = None) -> int:
    """Let a version out of quarantine, on your word; its files are verified first."""
    version = _registry().release(name, number)
    note(f"{version.name} {version.number} is out of quarantine")
    return 0


def verify(
    names: Skills = None,
    *,
    json: Json = False,
) -> int:
    """See that log and head are whole, and that every file of every version is what was signed.

    The exit code is 1 where something was changed; what was is kept back.
    """
    registry = _registry()
    skills = registry.skills()
    chosen = [registry.skill(name) for name in names] if names else list(skills.values())
    wrong: list[dict[str, Any]] = []
    for skill in chosen:
        for number in sorted(skill.versions):
            try:
                registry.verify(registry.recorded(skill, number))
            except Refused as error:
                registry.quarantine(skill.name, number, f"changed: {error.what}")
                wrong.append({"name": skill.name, "version": number, "why": error.what})
    if json:
        show_json({"verified": sum(len(skill.versions) for skill in chosen), "wrong": wrong})
    for each in wrong if not json else []:
        say(each["why"])
    if not wrong and not json:
        note(f"{len(chosen)} skills are as they were signed")
    return CHECK_FAILED if wrong else 0


def gc(
    *,
    all_of_it: Annotated[bool, typer.Option("--all", help="Also packages that were wanted in the last day.")] = False,
    json: Json = False,
) -> int:
    """Remove the packages that no skill needs any more, and files of no version; archived skills need none."""
    from dataclasses import asdict

    from hermes_exec_agent.skills.registry.garbage import YOUNG_S, collect

    gone = collect(_registry(), older_s=0.0 if all_of_it else YOUNG_S)
    if json:
        show_json(asdict(gone))
    else:
        note(f"removed: {len(gone.environments)} environments, {len(gone.content)} folders of no version")
    return 0


def _registry() -> "Registry":
    from hermes_exec_agent.skills.registry.registry import Registry

    return Registry()


def _level(line: dict[str, Any]) -> str:
    return line["level"] if line["protection"] == "protected" else f"{line['level']}, {line['protection']}"


def _event(event: "Event") -> dict[str, Any]:
    return {"at": event.at, "what": event.kind, "version": event.version, **event.facts}


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _told(facts: dict[str, Any]) -> dict[str, str]:
    """What a person reads first, in that order; --json has all of it."""
    from hermes_exec_agent.cli import skill_grants

    author, runs = facts["author"], facts["runs"]
    who = " ".join(filter(None, (author["kind"], author["name"], author["model"])))
    seen: dict[str, Any] = facts["evidence"].get("evidence") or {}
    told = {
        "name": facts["name"],
        "version": str(facts["number"]),
        "about": facts["summary"],
        "state": facts["state"] + (f": {facts['quarantine']}" if facts["quarantine"] else ""),
        "written by": who,
        "protection": facts["protection"],
        "registered": _when(facts["registered"]),
        "evidence": facts["level"],
        **{f"  {key}": str(value) for key, value in seen.items() if isinstance(value, int)},
        "takes": ", ".join(facts["schema"].get("properties", {})) or "nothing",
        "granted": skill_grants.told(facts["grants"]),
        "entry": f"{facts['entry']} {facts['function']}",
        "files": f"{len(facts['files'])}, SHA-256 {facts['digest']}",
        "policy": f"{facts['policy']['name']} {facts['policy_digest']}",
        "packages": facts["environment"] or "none",
        "interpreter": facts["interpreter"],
        "kernel": facts["kernel"],
        "runs": f"{runs['runs']}, of which {runs['failures']} failed",
    }
    if runs["median_s"] is not None:
        told["latency"] = f"{runs['median_s']:.3f} s median, {runs['slowest_s']:.3f} s at most"
    return told


def _text(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []

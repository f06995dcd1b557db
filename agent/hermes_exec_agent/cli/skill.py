"""``skill``: run, list, inspect, choose and verify registered skills."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.console import CHECK_FAILED, note, say
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json, show_table, to_iso
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.cli.options import Number, Skill
from hermes_exec_agent.cli.skill_run import SkillRunArguments, run_skill

if TYPE_CHECKING:
    from hermes_exec_agent.skills.registry.log import SkillEvent
    from hermes_exec_agent.skills.registry.record import Origin
    from hermes_exec_agent.skills.registry.registry import Registry


def run(
    name: Skill,
    *,
    arguments: Annotated[
        str,
        typer.Option(
            "--arguments",
            "-a",
            metavar="ARGS",
            help="Pass the arguments as a JSON object; - reads it from standard input.",
        ),
    ] = "{}",
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            "-o",
            metavar="TARGET",
            help="Run in bubblewrap, docker:IMAGE or a profile; by default on this machine.",
        ),
    ] = None,
    number: Number = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", "-f", metavar="DIR", help="Save the files that the skill leaves in this new folder."),
    ] = None,
    self_tested: Annotated[
        bool, typer.Option("--self-tested", help="Agree to run a skill that cases from outside do not cover.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all facts of the run as JSON.")] = False,
) -> int:
    """Run a skill in a new sandbox, as it was proven, and print its result as JSON and its output on standard error.

    The exit code is 1 if the skill failed, and 125 if it was refused or no sandbox is available.
    """
    return run_skill(SkillRunArguments(name, arguments, on, number, files, self_tested, json))


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    from hermes_exec_agent.cli import skill_import, skill_judge, skill_rights, skill_script, skill_write

    group = StrictTyper(help=f"{summary} See docs/skills.md.")
    group.command("check")(skill_judge.check)
    group.command("new")(skill_write.new)
    group.command("add")(skill_judge.add)
    group.command("import")(skill_import.import_skills)
    group.command("edit")(skill_write.edit)
    group.command("search")(skill_write.search)
    group.command("trust")(skill_rights.trust)
    group.command("grant")(skill_rights.grant)
    group.command("run")(run)
    group.command("script", context_settings={"allow_interspersed_args": False})(skill_script.script)
    for command in (list_skills, show, history, diff, rollback, pin, unpin, archive, restore, release, verify, gc):
        group.command(command.__name__.partition("_")[0])(command)
    group.command("prove")(skill_judge.prove)
    group.command("export")(skill_write.export)
    app.add_typer(group, name=name, short_help=summary)


def list_skills(
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include archived skills.")] = False,
    json: Json = False,
) -> int:
    """List skills with their current versions, rights, origins and states."""
    skills = _open_registry().list_facts(archived=everything)
    if json:
        show_json(skills)
        return 0
    heads = ("NAME", "VERSION", "RIGHTS", "EVIDENCE", "ORIGIN", "STATE", "ABOUT")
    rows = [
        [each["name"], str(each["version"]), ", ".join(each["rights"]), _describe_level(each), _describe_origin(each),
         each["state"], each["summary"]]
        for each in skills
    ]  # fmt: skip
    if rows:
        show_table(heads, rows)
    else:
        note("all skills are archived. Try: --all" if _open_registry().skills() else "there is no skill yet")
    return 0


def show(name: Skill, *, number: Number = None, json: Json = False) -> int:
    """Show the record of a skill: its rights, origin, author, grants, evidence, findings and runs."""
    from dataclasses import asdict

    from hermes_exec_agent.skills.registry.counts import RunCounter
    from hermes_exec_agent.skills.registry.record import ScriptGrants

    registry = _open_registry()
    skill = registry.skill(name)
    version = registry.version(name, number)
    counts = RunCounter(registry.home.counts).read(version.name, version.number)
    state = skill.kept_back.get(version.number, "")
    facts = {**version.facts(), "state": skill.state, "quarantine": state, "runs": format_times(counts.facts(), "last")}
    facts["signer"] = registry.signer
    facts["outcomes"] = _read_outcomes(version.name, version.number)
    facts["trusted"] = skill.is_trusted(version.digest)
    facts["script_grants"] = asdict(skill.script_grants.get(version.digest, ScriptGrants()))
    if json:
        show_json(facts)
        return 0
    show_table(("KEY", "VALUE"), _describe(facts))
    return 0


def _read_outcomes(name: str, number: int) -> "list[dict[str, Any]]":
    """Return the counted outcomes of the tasks that used a version, by model."""
    from hermes_exec_agent.learning.versions import read_versions
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        return [each.facts() for each in read_versions(log, name) if each.version == number]


def history(name: Skill, *, json: Json = False) -> int:
    """Show the history of a skill, oldest event first."""
    events = _open_registry().skill(name).history
    if json:
        show_json([_event_to_json(event) for event in events])
        return 0
    rows = [
        [
            _format_time(event.at),
            event.kind,
            str(event.version),
            _describe_event(event),
        ]
        for event in events
    ]
    show_table(("WHEN", "WHAT", "VERSION", ""), rows)
    return 0


def diff(
    name: Skill,
    one: Annotated[int, typer.Argument(metavar="N", help="A version.")],
    other: Annotated[
        int | None, typer.Argument(metavar="[M]", help="Another version; by default the current one.")
    ] = None,
    *,
    json: Json = False,
) -> int:
    """Show the differences between two versions as a diff. Both are verified first."""
    from hermes_exec_agent.cli.skill_import import print_diff, read_lines

    registry = _open_registry()
    left, right = registry.version(name, one), registry.version(name, other)
    for version in (left, right):
        registry.verify(version)
    before, after = ({each.path: each for each in version.files} for version in (left, right))
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    if json:
        show_json({"name": left.name, "from": left.number, "to": right.number, "changed": changed})
        return 0
    if not changed:
        note("the versions are equal")
    for path in changed:
        old, new = (read_lines(registry.tree(version) / path) for version in (left, right))
        print_diff(old, new, f"{left.number}/{path}", f"{right.number}/{path}")
    return 0


def rollback(
    name: Skill,
    number: Annotated[int | None, typer.Argument(metavar="[N]", help="A version; by default the previous one.")] = None,
) -> int:
    """Make an older version the current one. The newer ones stay."""
    registry = _open_registry()
    skill = registry.skill(name)
    older = [each for each in sorted(skill.versions) if each < skill.current and each not in skill.kept_back]
    if number is None and not older:
        raise UsageError(
            f"{skill.name}: there is no version before {skill.current} that can run",
            remedy=f"hermes-exec skill history {skill.name}",
        )
    chosen = older[-1] if number is None else number
    registry.choose(skill.name, chosen)
    note(f"{skill.name}: the current version is {chosen}")
    return 0


def pin(name: Skill, *, number: Number = None) -> int:
    """Keep a version current when later ones are registered."""
    note(f"{name}: pinned to version {_open_registry().pin(name, number)}")
    return 0


def unpin(name: Skill) -> int:
    """Let the next registered version become the current one again."""
    _open_registry().mark("unpinned", name)
    note(f"{name}: the next registered version becomes the current one")
    return 0


def archive(name: Skill) -> int:
    """Archive a skill: it is not listed and does not run. Nothing is deleted."""
    _open_registry().mark("archived", name)
    note(f"{name}: archived. Try: hermes-exec skill restore {name}, to undo it")
    return 0


def restore(name: Skill) -> int:
    """Restore an archived skill."""
    _open_registry().mark("restored", name)
    note(f"{name}: restored")
    return 0


def release(name: Skill, *, number: Number = None) -> int:
    """Release a version from quarantine; its files are verified first."""
    version = _open_registry().release(name, number)
    note(f"{version.name} {version.number} is released from quarantine")
    return 0


def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|BUNDLE]...", help="Skills, or one exported file.")
    ] = None,
    *,
    key: Annotated[
        str, typer.Option("--key", metavar="FINGERPRINT", help="Of a bundle: require that this key signed it.")
    ] = "",
    json: Json = False,
) -> int:
    """Verify registered skills, or show and verify the evidence in an exported file.

    For registered skills, the registry's log and the signed hashes of every file of every version are verified; changed
    versions are put in quarantine. An exported file is verified offline, and needs no registry: its signature, the
    digests of its files and of the policy. The exit code is 1 if something was changed.
    """
    from hermes_exec_agent.cli.skill_evidence import verify_bundle

    if names and len(names) == 1 and _is_path(names[0]):
        return verify_bundle(Path(names[0]), key=key, json=json)
    if key or any(map(_is_path, names or ())):
        raise UsageError("a bundle is verified alone", remedy="hermes-exec skill verify FILE [--key FINGERPRINT]")
    registry = _open_registry()
    skills = registry.skills()
    chosen = [registry.skill(name) for name in names] if names else list(skills.values())
    wrong: list[dict[str, Any]] = []
    for skill in chosen:
        for number in sorted(skill.versions):
            try:
                registry.verify(registry.read_version(skill, number))
            except Refused as error:
                registry.quarantine(skill.name, number, f"changed: {error.what}")
                wrong.append({"name": skill.name, "version": number, "why": error.what})
    if json:
        show_json({"verified": sum(len(skill.versions) for skill in chosen), "wrong": wrong})
    for each in wrong if not json else []:
        say(each["why"])
    if not wrong and not json:
        note(f"{len(chosen)} {'skill' if len(chosen) == 1 else 'skills'} verified")
    return CHECK_FAILED if wrong else 0


def _is_path(name: str) -> bool:
    """Whether an argument is a file: a name of a skill has neither a slash nor a dot."""
    return "/" in name or "." in name


def gc(
    *,
    all_of_it: Annotated[bool, typer.Option("--all", help="Include packages used in the last day.")] = False,
    json: Json = False,
) -> int:
    """Remove packages that no active skill needs, and files that belong to no version."""
    from dataclasses import asdict

    from hermes_exec_agent.skills.registry.garbage import YOUNG_S, collect

    gone = collect(_open_registry(), older_s=0.0 if all_of_it else YOUNG_S)
    if json:
        show_json(asdict(gone))
    else:
        note(f"removed: {len(gone.environments)} environments, {len(gone.content)} folders without a version")
    return 0


def _open_registry() -> "Registry":
    from hermes_exec_agent.skills.registry.registry import Registry

    return Registry()


def _describe_level(line: dict[str, Any]) -> str:
    if not line["level"]:
        return "none"
    return line["level"] if line["protection"] == "protected" else f"{line['level']}, {line['protection']}"


def _describe_origin(line: dict[str, Any]) -> str:
    """Return an origin, with the person's trust if it needs any."""
    if not line["material"]:
        return str(line["origin"])
    return f"{line['origin']}, {'trusted' if line['trusted'] else 'not trusted'}"


def _describe_event(event: "SkillEvent") -> str:
    """Return the strength of the evidence, and the reason."""
    learned: dict[str, Any] = event.facts.get("learned") or {}
    parts = (event.facts.get("level"), event.facts.get("why"), learned.get("reason"))
    return ": ".join(str(each) for each in parts if each)


def _event_to_json(event: "SkillEvent") -> dict[str, Any]:
    return {**event.facts, "at": to_iso(event.at), "what": event.kind, "version": event.version}


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


_NO_EVIDENCE = "none: it is a guide, and nothing of it was run as a function"


def _describe(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the table; --json has all facts."""
    from hermes_exec_agent.cli import skill_evidence
    from hermes_exec_agent.learning.versions import VersionCounts
    from hermes_exec_agent.skills.registry.record import Origin, ScriptGrants

    origin = Origin.from_facts(facts["origin"])
    author, runs = facts["author"], facts["runs"]
    written_by = " ".join(filter(None, (author["kind"], author["name"], author["model"])))
    seen: dict[str, Any] = facts["evidence"].get("evidence") or {}
    rows = {
        "name": facts["name"],
        "version": str(facts["number"]),
        "about": facts["summary"],
        "state": facts["state"] + (f": {facts['quarantine']}" if facts["quarantine"] else ""),
        "rights": ", ".join(facts["rights"]),
        "origin": origin.describe(),
        **({"  digest": origin.digest} if origin.digest else {}),
        **_describe_experience(origin),
        "trusted": _describe_trust(origin, facts["trusted"]),
        "scripts have": ScriptGrants.from_facts(facts["script_grants"]).describe(),
        "written by": written_by,
        "protection": facts["protection"],
        "registered": _format_time(facts["registered"]),
        "evidence": skill_evidence.describe_level(facts["level"]) if facts["level"] else _NO_EVIDENCE,
        **{f"  {key}": str(value) for key, value in seen.items() if isinstance(value, int)},
        **_describe_function(facts),
        "files": f"{len(facts['files'])}, SHA-256 {facts['digest']}",
        "policy": f"{facts['policy']['name']} {facts['policy_digest']}",
        "packages": facts["environment"] or "none",
        "interpreter": facts["interpreter"] or "none ran",
        "kernel": facts["kernel"],
        "runs": f"{runs['runs']}, of which {runs['failures']} failed",
    }
    for each in (VersionCounts(**fields) for fields in facts["outcomes"]):
        rows[f"tasks with {each.model}"] = each.describe()
    if runs["median_s"] is not None:
        rows["latency"] = f"{runs['median_s']:.3f} s median, {runs['slowest_s']:.3f} s at most"
    return [*rows.items(), *skill_evidence.describe_findings(facts["evidence"].get("findings") or [])]


def _describe_experience(origin: "Origin") -> dict[str, str]:
    learned = origin.experience
    if learned is None:
        return {}
    rows = {
        "learned from": learned.describe(),
        "  evidence": learned.evidence,
        "  events": ", ".join(map(str, learned.events)),
        "  reason": learned.reason,
        "  review": learned.review,
    }
    return {key: value for key, value in rows.items() if value}


def _describe_function(facts: dict[str, Any]) -> dict[str, str]:
    from hermes_exec_agent.cli import skill_grants

    if not facts["function"]:
        return {}
    return {
        "takes": ", ".join(facts["schema"].get("properties", {})) or "nothing",
        "granted": skill_grants.format_grants(facts["grants"]),
        "entry": f"{facts['entry']} {facts['function']}",
    }


def _describe_trust(origin: "Origin", trusted: bool) -> str:  # noqa: FBT001  private
    if trusted:
        return "yes"
    return "no: models read it as material" if origin.is_material else "it needs none"

"""``profile``: the places that have a name, and the project files that may name some."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from hermes_exec.cli.confirm import agrees
from hermes_exec.cli.console import CHECK_FAILED, note, printable, say
from hermes_exec.cli.open_target import settings
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.config.profile import Profile
from hermes_exec.config.secrets import SecretSource
from hermes_exec.config.settings import Settings
from hermes_exec.errors import ConfigError, HermesError, UsageError

File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="A project's hermes.toml; the nearest one, if left out."),
]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} docs/configuration.md tells all about them.")
    for command in (init, list_profiles, show, check, trust, distrust):
        group.command(command.__name__.partition("_")[0])(command)
    app.add_typer(group, name=name, short_help=summary)


def init() -> int:
    """Write a file of your own to start from. One that is there already is left as it is."""
    from hermes_exec.config.load import write_default
    from hermes_exec.config.paths import user_file

    chosen = os.environ.get("HERMES_EXEC_CONFIG")
    path = Path(chosen).expanduser().absolute() if chosen else user_file(os.environ)
    write_default(path)
    print(path)
    return 0


def list_profiles(*, json: Json = False) -> int:
    """List the profiles, and where each comes from. The default one has a star."""
    found = settings()
    rows = [_line(name, found) for name in found.profiles]
    if json:
        show_json({"default": found.default, "profiles": rows})
        return 0
    star = {True: "*", False: ""}
    show_table(
        ("", "NAME", "TYPE", "FROM", "TARGET", "ABOUT"),
        [
            [
                star[row["name"] == found.default],
                row["name"],
                row["type"],
                row["from"],
                row["target"],
                row["about"],
            ]
            for row in rows
        ],
    )
    if found.default not in found.profiles:
        note(f"without --on, commands run in {found.default} ({found.default_origin})")
    return 0


def _line(name: str, found: Settings) -> dict[str, str]:
    origin = found.profiles.entries[name].origin
    line = {"name": name, "type": "", "from": str(origin), "target": "", "about": ""}
    try:
        profile = found.profiles[name]
    except HermesError as error:
        line["about"] = f"wrong: {str(error).splitlines()[0]}"
    else:
        line["type"], line["about"] = profile.type, profile.description
        inside = f"+{profile.via}" if profile.via else ""
        line["target"] = profile.target_text() + inside
    return line


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A profile, or a one-line target.")],
    *,
    json: Json = False,
) -> int:
    """Show a profile with all its values. Of secrets it shows where they are found."""
    from hermes_exec.config.load import resolve

    found = settings()
    target = resolve(name, found)
    places = [_values(profile) for profile in target.chain]
    if json:
        show_json({"target": str(target), "chain": places})
        return 0
    for number, (profile, values) in enumerate(zip(target.chain, places, strict=True)):
        if number:
            print(f"\ninside of {profile.target_text()}:")
        rows = [
            [key, _shown(value), "" if key in profile.model_fields_set else "default"] for key, value in values.items()
        ]
        show_table(("KEY", "VALUE", ""), rows)
    return 0


def _values(profile: Profile) -> dict[str, Any]:
    values: dict[str, Any] = profile.model_dump(mode="json")
    values["secrets"] = {name: str(source) for name, source in profile.secrets.items()}
    for key in type(profile).model_fields:
        value: object = getattr(profile, key)
        if isinstance(value, SecretSource):
            values[key] = str(value)
    return values


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return _joined([f"{key} = {_shown(each)}" for key, each in cast("dict[str, object]", value).items()])
    if isinstance(value, list):
        return _joined([_shown(each) for each in cast("list[object]", value)])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in {None, ""} else str(value)


def _joined(words: list[str]) -> str:
    return ", ".join(words) or "-"


def check(*, json: Json = False) -> int:
    """Tell all that is wrong with the profiles. The exit code is 1 when something is."""
    from hermes_exec.config.load import check as problems_of

    try:
        found = settings()
        problems = problems_of(found)
        files = [str(path) for path in found.files]
    except ConfigError as error:
        problems, files = str(error).splitlines(), []
    if json:
        show_json({"problems": problems, "files": files})
    for problem in problems if not json else []:
        say(problem)
    if not problems and not json:
        note(f"nothing is wrong; read: {', '.join(files) or 'no file, there is none'}")
    return CHECK_FAILED if problems else 0


def trust(
    file: File = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; you have read it.")] = False,
) -> int:
    """Let a project's file take effect. After any change it is ignored again.

    On a terminal it is shown first, and asked about.
    """
    from hermes_exec.config.load import trust as note_trust
    from hermes_exec.config.paths import read_regular

    path = _project_file(file)
    content = read_regular(path)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        for line in content.decode("utf-8", "replace").splitlines():
            print(f"  {printable(line)}")
        if not agrees(f"Trust {printable(str(path))}?"):
            note("it stays as it was")
            return CHECK_FAILED
    digest = note_trust(path, content=content)
    note(f"trusted: {path} with the SHA-256 {digest}")
    return 0


def distrust(file: File = None) -> int:
    """Ignore a project's file again."""
    from hermes_exec.config.load import distrust as forget_trust

    path = _project_file(file, must_exist=False)
    note(f"{path} is ignored from now on" if forget_trust(path) else f"{path} was not trusted")
    return 0


def _project_file(named: Path | None, *, must_exist: bool = True) -> Path:
    from hermes_exec.config.load import find_project_file

    if named is not None:
        return named / "hermes.toml" if named.is_dir() else named
    found = find_project_file(Path.cwd())
    if found is None and must_exist:
        raise UsageError("no hermes.toml here, nor above in this repository", remedy="name the file")
    return found or Path("hermes.toml")

"""``profile``: list, check and trust named targets and the project files that define some."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from hermes_exec.cli.completion.values import complete_targets
from hermes_exec.cli.confirm import confirm
from hermes_exec.cli.console import CHECK_FAILED, escape_controls, note, say
from hermes_exec.cli.open_target import read_settings
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.config.profile import Profile
from hermes_exec.config.secrets import SecretSource
from hermes_exec.config.settings import Settings
from hermes_exec.errors import ConfigError, HermesError, UsageError

File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="The hermes.toml of a project; by default the nearest one."),
]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/configuration.md.")
    for command in (init, list_profiles, show, check, trust, distrust):
        group.command(command.__name__.partition("_")[0])(command)
    app.add_typer(group, name=name, short_help=summary)


def init() -> int:
    """Write a commented hermes.toml for this user. An existing file stays unchanged."""
    from hermes_exec.config.load import write_default
    from hermes_exec.config.paths import user_file

    chosen = os.environ.get("HERMES_EXEC_CONFIG")
    path = Path(chosen).expanduser().absolute() if chosen else user_file(os.environ)
    write_default(path)
    print(path)
    return 0


def list_profiles(*, json: Json = False) -> int:
    """List the profiles and their origins; * marks the default."""
    found = read_settings()
    rows = [_describe(name, found) for name in found.profiles]
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


def _describe(name: str, found: Settings) -> dict[str, str]:
    origin = found.profiles.entries[name].origin
    line = {"name": name, "type": "", "from": str(origin), "target": "", "about": ""}
    try:
        profile = found.profiles[name]
    except HermesError as error:
        line["about"] = f"invalid: {str(error).splitlines()[0]}"
    else:
        line["type"], line["about"] = profile.type, profile.description
        inside = f"+{profile.via}" if profile.via else ""
        line["target"] = profile.target_text() + inside
    return line


def show(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A profile, or a one-line target.", autocompletion=complete_targets),
    ],
    *,
    json: Json = False,
) -> int:
    """Show a profile with all its values; of a secret it shows the source."""
    from hermes_exec.config.load import resolve

    found = read_settings()
    target = resolve(name, found)
    chain = [_list_values(profile) for profile in target.chain]
    if json:
        show_json({"target": str(target), "chain": chain})
        return 0
    for number, (profile, values) in enumerate(zip(target.chain, chain, strict=True)):
        if number:
            print(f"\nin {profile.target_text()}:")
        rows = [
            [key, _format(value), "" if key in profile.model_fields_set else "default"] for key, value in values.items()
        ]
        show_table(("KEY", "VALUE", ""), rows)
    return 0


def _list_values(profile: Profile) -> dict[str, Any]:
    values: dict[str, Any] = profile.model_dump(mode="json")
    values["secrets"] = {name: str(source) for name, source in profile.secrets.items()}
    for key in type(profile).model_fields:
        value: object = getattr(profile, key)
        if isinstance(value, SecretSource):
            values[key] = str(value)
    return values


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return _join([f"{key} = {_format(each)}" for key, each in cast("dict[str, object]", value).items()])
    if isinstance(value, list):
        return _join([_format(each) for each in cast("list[object]", value)])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in {None, ""} else str(value)


def _join(parts: list[str]) -> str:
    return ", ".join(parts) or "-"


def check(*, json: Json = False) -> int:
    """Check every profile and print all problems. The exit code is 1 if there are any.

    A file or profile that is ignored is a problem.
    """
    from hermes_exec.config.load import check as problems_of
    from hermes_exec.config.load import load_settings

    try:
        found = load_settings()
        problems = [*found.warnings, *problems_of(found)]
        files = [str(path) for path in found.files]
    except ConfigError as error:
        problems, files = str(error).splitlines(), []
    if json:
        show_json({"problems": problems, "files": files})
    for problem in problems if not json else []:
        say(problem)
    if not problems and not json:
        note(f"no problems; files: {', '.join(files) or 'none'}")
    return CHECK_FAILED if problems else 0


def trust(
    file: File = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> int:
    """Let the file of a project take effect. After any change it is ignored again.

    On a terminal, the command prints the file and asks for confirmation.
    """
    from hermes_exec.config.load import trust as record_trust
    from hermes_exec.config.paths import read_regular

    path = _find_file(file)
    content = read_regular(path)
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        for line in content.decode("utf-8", "replace").splitlines():
            print(f"  {escape_controls(line)}")
        if not confirm(f"Trust {escape_controls(str(path))}?"):
            note("not trusted")
            return CHECK_FAILED
    digest = record_trust(path, content=content)
    note(f"trusted: {path} with the SHA-256 {digest}")
    return 0


def distrust(file: File = None) -> int:
    """Ignore the file of a project again."""
    from hermes_exec.config.load import distrust as remove_trust

    path = _find_file(file, must_exist=False)
    note(f"{path} is ignored from now on" if remove_trust(path) else f"{path} was not trusted")
    return 0


def _find_file(named: Path | None, *, must_exist: bool = True) -> Path:
    from hermes_exec.config.load import find_project_file

    if named is not None:
        return named / "hermes.toml" if named.is_dir() else named
    found = find_project_file(Path.cwd())
    if found is None and must_exist:
        raise UsageError("no hermes.toml in this folder, nor above it in this repository", remedy="name the file")
    return found or Path("hermes.toml")

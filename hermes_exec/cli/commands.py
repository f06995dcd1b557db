"""The commands of ``hermes-exec``: the core's own, and those that other packages register.

An entry point of the group ``hermes_exec.commands`` names a tuple of `Command`. The module that holds the tuple is
imported to list the commands, so it should import nothing that takes time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.plugins import find_plugins, has_plugins, load_entry_point, load_value, own_values
from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

GROUP = "hermes_exec.commands"
OTHERS = "Other commands"
"""The panel of commands that name no panel."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands, of ``hermes-exec``."""

    name: str
    module: str
    """Its function ``add(app, name, summary)`` adds the command to a typer application."""
    summary: str
    """The line in the list of commands."""
    fast: str = ""
    """``module:function`` that parses plain command lines without typer, whose import takes longer than such a command.

    The function takes the arguments, the command's name included, and returns a function that runs the command and
    returns the exit code; or None, which leaves the command line to typer.
    """
    panel: str = OTHERS
    """The heading of the list of commands below which it stands."""
    synonyms: tuple[str, ...] = ()
    """Words for which the command is suggested, such as ``exec`` for ``run``; they do not start it."""
    examples: str = ""
    """``module:attribute``: examples of the command and the commands below it, which their help shows.

    The object maps ``"cp"`` or ``"profile list"`` to command lines.
    """


_TARGETS = "Commands in targets"
_JOBS = "Jobs"
_SETUP = "Configuration and checks"
_RECORDS = "Records and measurements"
_HELP = "Help"
PANELS = (_TARGETS, _JOBS, "Agent", "Skills and policies", "Learning", _SETUP, _RECORDS, _HELP)
"""The panels of this project, in the order in which the help shows them."""
_EXAMPLES = "hermes_exec.cli.examples:EXAMPLES"


def _core(name: str, module: str, summary: str, panel: str, synonyms: str = "", *, fast: str = "") -> Command:
    module = f"hermes_exec.cli.{module}"
    return Command(name, module, summary, fast, panel, tuple(synonyms.split()), _EXAMPLES)


_CORE = (
    _core(
        "run",
        "run",
        "Run a command in a target.",
        _TARGETS,
        "exec execute start ssh sh bash command ls",
        fast="hermes_exec.cli.run_command:prepare_run",
    ),
    _core("shell", "shell", "Open a login shell in a target.", _TARGETS, "ssh sh bash zsh login connect console exec"),
    _core(
        "cp",
        "cp",
        "Copy files and folders to, from or between targets.",
        _TARGETS,
        "copy scp upload download push pull put get send fetch mv",
    ),
    _core("sync", "cp", "Make a folder equal to another one, copying only changes.", _TARGETS, "rsync mirror"),
    _core(
        "forward",
        "forward",
        "Forward ports and unix sockets to or from a target.",
        _TARGETS,
        "port-forward port tunnel proxy expose",
    ),
    _core("jobs", "jobs", "List jobs.", _JOBS, "ps ls list job processes status queue wait"),
    _core("top", "top", "Watch targets, jobs, conversations and costs.", _JOBS, "htop monitor watch dashboard screen"),
    _core("logs", "jobs", "Print the output of a job.", _JOBS, "tail output follow print cat"),
    _core("attach", "jobs", "Attach this terminal to a job.", _JOBS, "fg resume reattach connect"),
    _core("kill", "jobs", "End jobs and all their processes.", _JOBS, "stop cancel end terminate rm abort"),
    _core("config", "config", "Show the configuration, and the source of each setting.", _SETUP, "settings options"),
    _core(
        "profile",
        "profile",
        "Manage named targets.",
        _SETUP,
        "profiles target targets context contexts host hosts machine machines init list ls",
    ),
    _core("env", "env", "Show the variables that commands get.", _SETUP, "environment variables vars printenv set"),
    _core(
        "backends",
        "doctor",
        "List the backends and whether this machine can use them.",
        _SETUP,
        "backend drivers providers types cost info",
    ),
    _core(
        "doctor",
        "doctor",
        "Check this machine or a target, and suggest fixes.",
        _SETUP,
        "check test diagnose health status troubleshoot verify ping info",
    ),
    _core("log", "log", "Show recorded commands.", _RECORDS, "history audit-log journal records last"),
    _core("bench", "bench", "Measure the speed of a target.", _RECORDS, "benchmark speed measure perf time"),
    _core(
        "demo",
        "demo",
        "Install and test a package in every usable target.",
        _RECORDS,
        "tutorial example examples tour quickstart",
    ),
    _core("help", "help", "Show the help of a command.", _HELP, "man usage docs commands"),
    _core(
        "completion",
        "completion.command",
        "Complete commands and names in your shell with TAB.",
        _HELP,
        "completions complete autocomplete",
    ),
    _core("update", "update", "Install a newer version, after its changes are shown.", _HELP, "upgrade self-update"),
    _core("version", "version", "Print the version.", _HELP, "about info"),
)
CORE = {command.name: command for command in _CORE}


@dataclass(frozen=True, slots=True)
class CommandTable:
    """Commands by name, and the registrations that were refused or could not be loaded."""

    commands: dict[str, Command] = field(default_factory=dict[str, Command])
    problems: list[HermesError] = field(default_factory=list[HermesError])


def find_command(name: str) -> Command | None:
    """Return the command of this name, or None. Reads no metadata for a command of the core."""
    return CORE.get(name) or _own_table().commands.get(name) or _plugin_table().commands.get(name)


def list_commands() -> CommandTable:
    """Return every command: the core's, this distribution's, then those of plugins."""
    own, plugins = _own_table(), _plugin_table()
    return CommandTable(CORE | own.commands | plugins.commands, own.problems + plugins.problems)


def load_command(command: Command) -> Callable[[Any, str, str], None]:
    """Import the module of a command and return its function ``add``.

    Raises:
        MissingExtra: a package of an extra is not installed.
        PlaceUnavailable: the module cannot be imported, or has no such function.
    """
    from hermes_exec.extras import explain_import_error

    try:
        return cast("Callable[[Any, str, str], None]", load_value(f"{command.module}:add"))
    except Exception as error:  # a plugin's code may raise anything
        known = explain_import_error(error) if isinstance(error, ImportError) else None
        raise known or PlaceUnavailable(
            f"the command {command.name!r} cannot be loaded from {command.module}: {error}",
            remedy="install the package that provides it again",
        ) from error


def find_examples(path: str) -> tuple[str, ...]:
    """Return the examples of a command, such as ``profile list``, without the program's name; none if it has none."""
    command = find_command(path.partition(" ")[0]) if path else CORE["help"]
    if command is None or not command.examples:
        return ()
    try:
        return cast("dict[str, tuple[str, ...]]", load_value(command.examples)).get(path, ())
    except (ImportError, AttributeError):  # help without examples is still help
        return ()


def list_panels(commands: Iterable[Command]) -> list[str]:
    """Return the panels of commands: those of this project in their order, then others as they come."""
    found = dict.fromkeys(command.panel for command in commands)
    return [*(panel for panel in PANELS if panel in found), *(panel for panel in found if panel not in PANELS)]


def prepare_fast(argv: Sequence[str]) -> Callable[[], int] | None:
    """Return a function that runs this command line without typer; None where typer has to parse it."""
    command = find_command(argv[0]) if argv and not argv[0].startswith("-") else None
    if command is None or not command.fast:
        return None
    try:
        prepare = cast("Callable[[Sequence[str]], Callable[[], int] | None]", load_value(command.fast))
    except ImportError:  # loading the command for typer reports it
        return None
    return prepare(argv)


@cache
def _own_table() -> CommandTable:
    """The commands of the other packages of this distribution."""
    table = CommandTable()
    for name, value in sorted(own_values(GROUP).items()):
        try:
            commands = _check_commands(load_value(value), value)
        except Exception as error:  # noqa: BLE001  one broken package leaves the others usable
            table.problems.append(PlaceUnavailable(f"the commands of {name!r} ({value}) cannot be loaded: {error}"))
        else:
            table.commands.update({command.name: command for command in commands})
    return table


@cache
def _plugin_table() -> CommandTable:
    """The commands of other distributions. A built-in name, or one of two distributions, is refused."""
    table, own = CommandTable(), CORE | _own_table().commands
    try:
        points = find_plugins(GROUP, is_reserved=own_values(GROUP).__contains__) if has_plugins(GROUP) else {}
    except ConfigError as error:
        return CommandTable(problems=[error])
    offers: dict[str, list[tuple[str, Command]]] = {}
    for name, point in sorted(points.items()):
        try:
            commands = _check_commands(load_entry_point(point), point.value)
        except HermesError as error:
            table.problems.append(error)
            continue
        for command in commands:
            offers.setdefault(command.name, []).append((name, command))
    for name, found in offers.items():
        plugins = " and ".join(repr(plugin) for plugin, _ in found)
        if name in own:
            table.problems.append(ConfigError(f"the command {name!r} of the plugin {plugins} is a built-in name"))
        elif len(found) > 1:
            table.problems.append(ConfigError(f"the plugins {plugins} all provide the command {name!r}"))
        else:
            table.commands[name] = found[0][1]
    return table


def _check_commands(loaded: object, value: str) -> tuple[Command, ...]:
    """Return ``loaded``, the object of an entry point, as a tuple of commands."""
    commands = cast("tuple[object, ...]", loaded) if isinstance(loaded, tuple) else ()
    if not commands or not all(isinstance(command, Command) for command in commands):
        raise PlaceUnavailable(f"{value} is not a tuple of Command")
    return cast("tuple[Command, ...]", commands)

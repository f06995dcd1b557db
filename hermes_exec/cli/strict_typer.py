"""Typer applications that refuse repeated options and large integers, list panels, and show examples in their help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHOLE = 10_000
"""Characters of a summary, which is wrapped rather than cut."""


_LARGEST = (1 << 63) - 1
"""The largest integer of a command line: that of 64 bits, as in a database and in messages to a guest."""


class StrictCommand(TyperCommand):
    """A command that refuses a repeated option; typer itself takes the last value and drops the others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``; a repeated option and an integer of more than 64 bits end in a usage error."""
        _refuse_repeats(self, ctx, args)
        rest = super().parse_args(ctx, args)
        large = [name for name, value in ctx.params.items() if isinstance(value, int) and abs(value) > _LARGEST]
        if large and not ctx.resilient_parsing:
            option = next(max(each.opts, key=len) for each in self.params if each.name == large[0])
            ctx.fail(f"Invalid value for {option!r}: the number is too large")
        return rest

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples of the command."""
        _write_examples(ctx, formatter)


class StrictGroup(TyperGroup):
    """A group that refuses a repeated option, and lists its commands in panels."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``; a repeated option ends in a usage error."""
        _refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  the signature of typer
        """Write the list of commands, one section for each panel, in the order of their first commands."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                row = (name, command.get_short_help_str(_WHOLE))
                panels.setdefault(panel if isinstance(panel, str) else "Commands", []).append(row)
        width = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples of the group."""
        _write_examples(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of ``args``; a wrong name ends in a usage error that suggests commands."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing and not args[0].startswith("-"):
            from hermes_exec.cli.suggestions import suggest_commands

            found = suggest_commands(args[0], list(self.commands), root=ctx.parent is None)
            hint = f" Did you mean {' or '.join(map(repr, found))}?" if found else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


class StrictTyper(typer.Typer):
    """An application, or a group of commands, of these classes."""

    def __init__(self, **options: Any) -> None:
        # rich takes longer to import than everything else together.
        super().__init__(cls=StrictGroup, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Register a command as ``typer.Typer.command`` does."""
        return super().command(name, cls=StrictCommand, **options)


def _write_examples(ctx: Any, formatter: Any) -> None:
    from hermes_exec.cli.commands import find_examples

    program, _, path = ctx.command_path.partition(" ")
    examples = find_examples(path)
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{program} {example}\n")


def _refuse_repeats(command: TyperCommand | TyperGroup, ctx: Any, args: Sequence[str]) -> None:
    if ctx.resilient_parsing:  # for the shell's completion, which parses unfinished command lines
        return
    _, _, order = command.make_parser(ctx).parse_args(list(args))
    seen: set[str | None] = set()
    for option in order:
        if not isinstance(option, TyperOption) or option.multiple or option.is_flag or option.count:
            continue
        if option.name in seen:
            ctx.fail(f"{max(option.opts, key=len)} is given more than once, but takes one value.")
        seen.add(option.name)

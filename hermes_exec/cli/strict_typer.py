"""A typer application that refuses a repeated option, unless the option is a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from collections.abc import Sequence


class StrictCommand(TyperCommand):
    """A command that refuses a repeated option; typer itself takes the last value and drops the others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``; a repeated option ends in a usage error."""
        _refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)


class StrictGroup(TyperGroup):
    """A group that refuses a repeated option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args``; a repeated option ends in a usage error."""
        _refuse_repeats(self, ctx, args)
        return super().parse_args(ctx, args)


class StrictTyper(typer.Typer):
    """An application, or a group of commands, of these classes."""

    def __init__(self, **options: Any) -> None:
        # rich takes longer to import than everything else together.
        super().__init__(cls=StrictGroup, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Any:
        """Register a command as ``typer.Typer.command`` does."""
        return super().command(name, cls=StrictCommand, **options)


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

"""One attempt to break a rule, and how it has to fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec_policies.canaries.outcomes import DIFFERENT, IN_PROC, NOT_KNOWN, NOT_THERE
from hermes_exec_policies.explain import applies

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_policies.model import Policy
    from hermes_exec_policies.render.filter import Filter


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the kernel, with those arguments that a filter looks at."""

    name: str
    arguments: tuple[int, ...] = ()

    def refused(self, by: Filter | None) -> int:
        """The error number that it ends with; 0 where it is let through."""
        return by.answer(self.name, (*self.arguments, *(0,) * (6 - len(self.arguments)))) if by else 0


@dataclass(frozen=True, slots=True)
class Canary:
    """One attempt."""

    name: str
    rule: str
    layer: str = ""
    """The only mechanism that stops it this way; empty where several do."""
    errnos: frozenset[int] = frozenset()
    """How it fails where no filter refuses its call, and the place is none that differs."""
    absent: bool = False
    """Whether it also holds when there was nothing to be had."""
    signals: frozenset[int] = frozenset()
    asked: Callable[[Policy], bool] = lambda _: True
    """Whether the policy forbids it, if it has the rule at all."""
    alone: bool = False
    """Whether it needs a twin to itself, because it ends everything that is in there."""
    abi: int = 0
    """The version of Landlock without which nothing stops it."""
    call: Call | None = None
    """What it begins with, where a filter may refuse that."""
    filtered: bool = False
    """Whether the policy forbids it only if its filter refuses the call."""

    def belongs_to(self, policy: Policy, wanted: Filter | None) -> bool:
        """Whether a policy, whose filter is ``wanted``, forbids it."""
        if self.filtered and not (self.call and self.call.refused(wanted)):
            return False
        return applies(policy, self.rule) and self.asked(policy)

    def errnos_in(self, place: str, wanted: Filter | None, *, proc: bool = True) -> frozenset[int]:
        """How it fails in a kind of place; ``proc`` says whether there is a /proc."""
        if not proc and self.name in IN_PROC:
            return NOT_THERE
        if self.name in (different := DIFFERENT.get(place, {})):
            return different[self.name]
        refused = self.call.refused(wanted) if self.call else 0
        if not refused:
            return self.errnos
        return NOT_KNOWN.union({refused}) if self.filtered else frozenset({refused})

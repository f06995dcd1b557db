"""The skills of one conversation: the registry, opened when it is first needed, and the workshop that adds to it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.tools.approvals import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.compiler.workshop import Workshop
    from hermes_exec_agent.models.named import Models
    from hermes_exec_agent.skills.registry import Registry
    from hermes_exec_agent.tools.tool import Context
    from hermes_exec_policies.gate.cases import Case

SANDBOX = "sandbox"
"""Where skills are judged and run: a sandbox of their own on the machine of hermes_exec, in whatever place the
conversation is."""


class Skillset:
    """What the tools for skills share."""

    def __init__(self, context: Context, models: Models | None = None, cases: Sequence[Case] = ()) -> None:
        self._context = context
        self._models = models
        self._given = tuple(cases)
        self.failures: dict[str, str] = {}
        """How each skill failed last in this conversation."""

    @cached_property
    def registry(self) -> Registry:
        """This user's.

        Raises:
            Refused: it cannot be trusted.
        """
        from hermes_exec_agent.skills.registry import Registry

        return Registry()

    @cached_property
    def workshop(self) -> Workshop:
        """Where skills are made, with what was tried so far in this conversation."""
        from hermes_exec_agent.compiler.workshop import Maker, Workshop

        context, models = self._context, self._models

        async def agree(why: str) -> bool:
            try:
                return await context.person.approve("skill_manage", safe(why))
            except HermesError:
                return False  # nobody is there

        maker = Maker(model=context.model or "unknown", shells=(context.terminal.kind,), tell=context.tell, agree=agree)
        return Workshop(
            self.registry, maker, models.main if models else None, judge=models.auxiliary if models else None,
            cases=self._given,
        )  # fmt: skip

    @property
    def data(self) -> Path:
        """Where files come that a skill leaves."""
        return self._context.data or Path(os.environ.get("PERSISTENT_DIR") or "data").absolute()

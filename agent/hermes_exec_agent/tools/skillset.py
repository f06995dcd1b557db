"""The skills of one conversation: the registry, opened when it is first needed, and the workshop that adds to it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.tools.tool import approve, safe

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.build.builder import Workshop
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.tools.tool import Context

SANDBOX = "sandbox"
"""Where skills are judged and run: a sandbox of their own on the machine of hermes_exec, in whatever place the
conversation is."""


class Skillset:
    """What the tools for skills share: ``context.service(Skillset)``."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.failures: dict[str, str] = {}
        """How each skill failed last in this conversation."""
        self.mended: set[str] = set()
        """Those that were to be improved after a failure; it is tried once."""

    @cached_property
    def registry(self) -> Registry:
        """This user's.

        Raises:
            Refused: it cannot be trusted.
        """
        from hermes_exec_agent.skills.registry.registry import Registry
        from hermes_exec_agent.skills.registry.script_copies import NAME

        return Registry(modules=self.data.parent / NAME)

    @cached_property
    def workshop(self) -> Workshop:
        """Where skills are made, with what was tried so far in this conversation."""
        from hermes_exec_agent.models.counted import Counted
        from hermes_exec_agent.skills.build.builder import Maker, Workshop

        context, models = self._context, self._context.models

        async def agree(why: str) -> bool:
            try:
                return await approve("skill_manage", safe(why), context)
            except HermesError:
                return False  # nobody is there

        maker = Maker(model=context.model or "unknown", shells=(context.terminal.kind,), tell=context.tell, agree=agree)
        judge = Counted(models.auxiliary, context.spend) if models else None
        return Workshop(self.registry, maker, self._counted(), judge=judge, cases=context.cases)

    def _counted(self) -> Model | None:
        """Who drafts; the conversation pays for it."""
        from hermes_exec_agent.models.counted import Counted

        models = self._context.models
        return Counted(models.main, self._context.spend) if models is not None else None

    @property
    def mender(self) -> Model | None:
        """The model that finds out why a skill failed; None if no failing skill is to be improved."""
        can_change = any(tool.spec.name == "skill_manage" for tool in self._context.tools)
        return self._counted() if can_change and self._context.repair_skills else None

    @property
    def data(self) -> Path:
        """Where files come that a skill leaves."""
        return self._context.data or Path(os.environ.get("PERSISTENT_DIR") or "data").absolute()

"""The skills of one conversation: the registry, opened on first use, and the builder that adds to it."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.tools.tool import approve, to_safe_line

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.build.builder import SkillBuilder
    from hermes_exec_agent.skills.registry.record import Origin, Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_agent.tools.tool import Context

SANDBOX = "sandbox"
"""Where skills are validated and run: a sandbox of their own on the machine of hermes_exec, wherever the
conversation is."""


class Skillset:
    """The shared state of the tools for skills: ``context.service(Skillset)``."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.failures: dict[str, str] = {}
        """The last failure of each skill in this conversation."""
        self.repaired: set[str] = set()
        """Skills whose repair was attempted after a failure, which happens once."""

    @cached_property
    def registry(self) -> Registry:
        """The user's registry.

        Raises:
            Refused: the registry cannot be trusted.
        """
        from hermes_exec_agent.skills.registry.registry import Registry
        from hermes_exec_agent.skills.registry.script_copies import NAME

        return Registry(modules=self.data.parent / NAME)

    @cached_property
    def builder(self) -> SkillBuilder:
        """The builder of skills, with the attempts of this conversation."""
        from hermes_exec_agent.models.wrapped import CountedModel
        from hermes_exec_agent.skills.build.builder import Requester, SkillBuilder

        context, models = self._context, self._context.models

        async def agree(why: str) -> bool:
            try:
                return await approve("skill_manage", to_safe_line(why), context)
            except HermesError:
                return False  # no person can be asked

        maker = Requester(
            model=context.model or "unknown",
            shells=(context.terminal.kind,),
            tell=context.tell,
            agree=agree,
            origin=self.origin,
        )
        judge = CountedModel(models.auxiliary, context.spend) if models else None
        return SkillBuilder(self.registry, maker, self._count_model(), judge=judge, cases=context.cases)

    def _count_model(self) -> Model | None:
        """Return the model that drafts, whose usage the conversation counts."""
        from hermes_exec_agent.models.wrapped import CountedModel

        models = self._context.models
        return CountedModel(models.main, self._context.spend) if models is not None else None

    def origin(self, *, guide: bool = False) -> Origin:
        """Return the origin of a skill that is written now.

        It is untrusted after the conversation read text of an untrusted skill. A guide is, after any output of a tool,
        too: later conversations follow its text, and no test judges it.
        """
        from hermes_exec_agent.skills.registry.record import Origin

        provenance = self._context.provenance
        untrusted = bool(provenance.find_untrusted()) or (guide and provenance.has_output)
        return Origin(kind="untrusted" if untrusted else "agent")

    @property
    def repair_model(self) -> Model | None:
        """The model that finds out why a skill failed; None if failing skills are not improved."""
        can_change = any(tool.spec.name == "skill_manage" for tool in self._context.tools)
        return self._count_model() if can_change and self._context.repair_skills else None

    @property
    def data(self) -> Path:
        """The folder for files of skills."""
        return self._context.data or Path(os.environ.get("PERSISTENT_DIR") or "data").absolute()


def read_files(registry: Registry, version: Version) -> dict[str, bytes]:
    """Return the files of a version by path, after comparing them with the signed list.

    Raises:
        content.ContentChanged: they differ from it.
    """
    from hermes_exec_agent.skills.registry import content

    with content.private_folder() as folder:
        content.copy_verified(registry.tree(version), version.files, folder / "tree")
        return {each.path: (folder / "tree" / each.path).read_bytes() for each in version.files}

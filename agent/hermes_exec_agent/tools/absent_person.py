"""The person of a conversation in which no user can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence


class AbsentPerson:
    """Refuses every question."""

    def __init__(
        self,
        why: str = "no user can be asked",
        *,
        to_approve: str = "--approve allow, or a terminal",
        to_clarify: str = "decide with the known facts, and say so",
    ) -> None:
        """``why`` is the reason of a refusal; ``to_approve`` and ``to_clarify`` name what to do instead."""
        self._why, self._to_approve, self._to_clarify = why, to_approve, to_clarify

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:  # noqa: ARG002  the shape of `Person`
        """Refuse.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(self._why, remedy=self._to_approve)

    async def clarify(self, question: str, choices: Sequence[str]) -> str:  # noqa: ARG002  the shape of `Person`
        """Refuse.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(self._why, remedy=self._to_clarify)

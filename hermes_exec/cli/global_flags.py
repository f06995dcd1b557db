"""What holds for the whole of one ``hermes-exec``: how much it tells, and which secrets it must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec.observe.redact import Redactor


@dataclass(slots=True)
class Flags:
    """The options that stand before the command. There is one object a process: ``flags``."""

    debug: bool = False
    """Show tracebacks."""
    quiet: bool = False
    """Say nothing but errors."""
    verbose: int = 0
    """1 for what happens, 2 for everything."""
    redactor: Redactor | None = None
    """Set once a place with secrets was opened."""

    def clean(self, text: str) -> str:
        """``text`` without the known secrets."""
        return self.redactor.text(text) if self.redactor else text


flags = Flags()

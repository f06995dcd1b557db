"""Markdown for terminals: addresses of links and images are shown as text, and nothing is fetched or can be clicked."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.markdown import ImageItem, Markdown, MarkdownElement
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class _ImageAddress(ImageItem):
    """An image as its description and its address."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(self.text or "image", f" (image: {self.destination}) ", end="")


class PlainMarkdown(Markdown):
    """Markdown whose images are text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "image": _ImageAddress}

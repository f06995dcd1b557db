"""The part of models around another one that passes everything but replies on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_agent.models.sight import takes_images

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model


class WrappedModel:
    """A model with the name, window and connections of another one; a subclass has `stream`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def window(self) -> int:
        """The model's window."""
        return self._model.window

    @property
    def scripted(self) -> bool:
        """Whether the model is scripted."""
        return self._model.scripted

    @property
    def vision(self) -> bool:
        """Whether the model takes images."""
        return takes_images(self._model)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

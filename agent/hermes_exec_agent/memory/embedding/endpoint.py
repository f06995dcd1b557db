"""An embedder behind an endpoint with OpenAI's ``/v1/embeddings`` API, through the ``openai`` SDK.

One request has up to 64 texts and a limit of 10 s. Nothing is retried: the long-term memory reads the event log again
later. The reply is checked: one vector for each text, all of the same dimension, and finite numbers alone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_exec.extras import require
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.memory.embedding.protocol import EmbeddingFailed, clean_text, normalize_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from openai import OpenAI

    from hermes_exec.config.secrets import Secret

BATCH = 64
"""Texts of a request."""
LIMIT_S = 10.0
_CONNECT_S = 3.0
_LARGEST_DIMENSION = 16_000
"""Numbers of a vector; PostgreSQL with pgvector stores no longer one."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class EndpointEmbedder:
    """One embedding model of one endpoint."""

    def __init__(self, name: str, *, base_url: str, key: Secret | None = None, limit_s: float = LIMIT_S) -> None:
        """``name`` is the endpoint's name of the model; ``limit_s`` bounds each request, in seconds."""
        self.name = name
        self._base_url = base_url
        self._key = key
        self._limit_s = limit_s
        self._redactor = Redactor([key] if key else [])
        self._lock = threading.Lock()
        self._client: OpenAI | None = None
        self._dimension = 0

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self.name!r})"

    @property
    def dimension(self) -> int:
        """Count the numbers of a vector; the first use asks the endpoint for one.

        Raises:
            EmbeddingFailed: the endpoint did not reply with a vector.
        """
        if not self._dimension:
            self.embed(["dimension"], query=True)
        return self._dimension

    def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:  # noqa: ARG002  one form for both
        """Return the vectors; see `Embedder.embed`.

        Raises:
            MissingExtra: the ``openai`` package is not installed.
            EmbeddingFailed: the endpoint did not reply in time, or not with one vector for each text.
        """
        import numpy as np

        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        parts = [self._request([clean_text(each) for each in texts[at : at + BATCH]]) for at in _starts(len(texts))]
        return np.concatenate(parts)

    def _request(self, texts: list[str]) -> NDArray[np.float32]:
        client = self._connect()
        try:
            reply = client.embeddings.create(model=self.name, input=texts, encoding_format="float")
            rows: list[Any] = [each.embedding for each in sorted(reply.data, key=lambda each: each.index)]
            numbered = [each.index for each in sorted(reply.data, key=lambda each: each.index)]
        except Exception as cause:  # noqa: BLE001  a reply of any form
            raise self._explain(cause) from None
        if numbered != list(range(len(texts))):
            raise EmbeddingFailed(f"{self.name}: {len(texts)} vectors were expected, and it returned {len(rows)}")
        return self._check(rows)

    def _check(self, rows: list[Any]) -> NDArray[np.float32]:
        import numpy as np

        try:
            vectors = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise EmbeddingFailed(f"{self.name}: its vectors have different lengths, or are no numbers") from None
        if vectors.ndim != 2 or not 0 < vectors.shape[1] <= _LARGEST_DIMENSION:
            raise EmbeddingFailed(f"{self.name}: it returned no vectors of 1 to {_LARGEST_DIMENSION} numbers")
        with self._lock:
            self._dimension = self._dimension or int(vectors.shape[1])
        return normalize_rows(vectors, len(rows), self._dimension, self.name)

    def _explain(self, cause: Exception) -> EmbeddingFailed:
        from hermes_exec_agent.models.failures import classify_failure

        if found := classify_failure(self.name, cause, self._redactor):
            return EmbeddingFailed(found.error.what, remedy="check [memory] embedder, embedder_base_url, embedder_key")
        return EmbeddingFailed(f"{self.name}: its reply has not the form of embeddings ({type(cause).__name__})")

    def _connect(self) -> OpenAI:
        with self._lock:
            if self._client is None:
                require("agent", "to ask an endpoint for embeddings")
                import openai

                timeout = openai.Timeout(self._limit_s, connect=min(_CONNECT_S, self._limit_s))
                # No proxy can reach this machine's own addresses.
                direct = urlsplit(self._base_url).hostname in _LOOPBACK
                self._client = openai.OpenAI(
                    api_key=self._key.reveal() if self._key else "none",
                    base_url=self._base_url,
                    max_retries=0,
                    timeout=timeout,
                    http_client=openai.DefaultHttpxClient(trust_env=not direct, timeout=timeout),
                )
            return self._client


def _starts(count: int) -> range:
    return range(0, count, BATCH)

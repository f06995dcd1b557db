"""Conversion of the arguments of a foreign call, one by one."""

from __future__ import annotations

from typing import Any

MS = 1000


class NoEquivalent(Exception):
    """A call means something that none of our tools does; the text names the tool to use instead."""


class ArgumentConverter:
    """Arguments that are taken out one by one, so that none is lost silently. One that is null counts as left out."""

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        """``tool`` is its name as the model wrote it."""
        self.tool = tool
        self.notes: list[str] = []
        self._left = {key: value for key, value in arguments.items() if value is not None}

    def take(self, key: str, default: Any = None) -> Any:
        """Take one argument out."""
        return self._left.pop(key, default)

    def rest(self) -> dict[str, Any]:
        """Take all that is left."""
        rest, self._left = self._left, {}
        return rest

    def rename(self, **pairs: str) -> dict[str, Any]:
        """Take arguments out under our names; ``pairs`` maps each of these to theirs.

        Raises:
            NoEquivalent: one is given under both names, with two values.
        """
        found: dict[str, Any] = {}
        for ours, theirs in pairs.items():
            if theirs not in self._left:
                continue
            value = self._left.pop(theirs)
            if self._left.setdefault(ours, value) != value:
                raise NoEquivalent(f"{ours} and {theirs} mean the same and differ; write {ours} alone")
            found[ours] = self._left.pop(ours)
        return found

    def drop(self, *keys: str) -> None:
        """Take out what describes a call and has no effect on it."""
        for key in keys:
            self._left.pop(key, None)

    def allow(self, key: str, *values: Any, instead: str) -> None:
        """Take an argument out that means nothing here if it is one of ``values``.

        Raises:
            NoEquivalent: it is another one; ``instead`` says what to write.
        """
        if key in self._left and (value := self._left.pop(key)) not in values:
            raise NoEquivalent(f"{key}={value!r} has no equal here; {instead}")

    def seconds(self, theirs: str) -> dict[str, Any]:
        """Take a time limit in milliseconds out, as our ``timeout`` in whole seconds.

        Raises:
            NoEquivalent: it is not a whole number of seconds. Such a number is likely meant in seconds.
        """
        if theirs not in self._left:
            return {}
        value = self._left.pop(theirs)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0 or value % MS:
            raise NoEquivalent(f"{theirs} is in milliseconds, and {value!r} is no whole number of seconds; "
                          "timeout of our tools is in whole seconds")  # fmt: skip
        self.notes.append(f"{theirs}={value:g} is in milliseconds, timeout in seconds")
        return {"timeout": int(value) // MS}

    def end(self) -> None:
        """Check that every argument was taken.

        Raises:
            NoEquivalent: some have no equal.
        """
        if self._left:
            raise NoEquivalent(f"{', '.join(self._left)}: no equal here; leave it out")

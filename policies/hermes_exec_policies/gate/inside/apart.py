"""Cancel the effects of a function: it returns another value of the same type, its files and output are undone.

The source of the class is inserted into a function of a skill, so it is self-contained: nothing else is inserted.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Self


class Apart:
    """A context manager that discards printed output and restores the files on exit."""

    def __enter__(self) -> "Self":
        """Save the files, and redirect standard output."""
        import io
        import sys

        self.before = self.files()
        self.output, sys.stdout = sys.stdout, io.StringIO()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the files as new ones, so that a process that still writes to an old one changes nothing."""
        import sys

        sys.stdout = self.output
        after = self.files()
        for path in sorted(set(after) - set(self.before), reverse=True):
            if after[path] is None:
                path.rmdir()
            else:
                path.unlink()
        for path, data in sorted(self.before.items()):
            if data is None:
                path.mkdir(exist_ok=True)
            elif after.get(path) != data:
                path.unlink(missing_ok=True)
                path.write_bytes(data)

    def files(self) -> "dict[Path, bytes | None]":
        """Return the content of every file; None stands for a folder."""
        from pathlib import Path

        found = [each for each in Path("/app/data").rglob("*") if each.is_dir() or each.is_file()]
        return {each: None if each.is_dir() else each.read_bytes() for each in found}

    def other(self, value: "Any") -> "Any":
        """Return another value of the same type.

        Raises:
            TypeError: the type has no other value.
        """
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            return -value - 1_000_003
        if isinstance(value, str):
            return "?" * (len(value) + 1)
        if isinstance(value, (list, tuple)):
            return type(value)([*map(self.within, value), "?"])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  JSON
        if isinstance(value, dict):
            return {**{key: self.within(each) for key, each in value.items()}, "?": "?"}  # pyright: ignore[reportUnknownVariableType]  JSON
        raise TypeError(value)

    def within(self, value: "Any") -> "Any":
        """Return another value for a part of a value, where None may become text."""
        return "?" if value is None else self.other(value)

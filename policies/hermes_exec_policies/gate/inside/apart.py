"""Have a function work in vain: it gives another value of the same type, and its files and its output are undone.

The class is written into a function of a skill, so it brings along what it needs, and nothing but it is taken.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Self


class Apart:
    """While it is entered, what is printed is kept back; afterwards the files are those of before."""

    def __enter__(self) -> "Self":
        """Remember what there is."""
        import io
        import sys

        self.before = self.files()
        self.output, sys.stdout = sys.stdout, io.StringIO()
        return self

    def __exit__(self, *error: object) -> None:
        """Make it so again, with new files, so that whoever still writes to an old one changes nothing."""
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
        """What is in every file; None stands for a folder."""
        from pathlib import Path

        found = [each for each in Path("/app/data").rglob("*") if each.is_dir() or each.is_file()]
        return {each: None if each.is_dir() else each.read_bytes() for each in found}

    def other(self, value: "Any") -> "Any":
        """Another value of the same type.

        Raises:
            TypeError: there is none.
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
        """The same for a part of a value; there something else can stand in for nothing."""
        return "?" if value is None else self.other(value)

"""One clear error where another project is missing, or its release does not fit a bridge."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Peer:
    """The imports of another project: if one fails in the block, the error names the release that is tested."""

    def __init__(self, distribution: str, tested: str) -> None:
        self._distribution = distribution
        self._tested = tested

    def __enter__(self) -> None:
        """Begin the imports."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ImportError):  # a block of imports
            raise ImportError(self._describe(error), name=error.name, path=error.path) from None  # noqa: TRY004  it is one

    def _describe(self, error: ImportError) -> str:
        remedy = f"Try: pip install '{self._distribution}=={self._tested}'"
        try:
            here = version(self._distribution)
        except PackageNotFoundError:
            return f"this bridge needs {self._distribution}, which is not installed. {remedy}"
        return (
            f"this bridge is tested with {self._distribution} {self._tested}, and does not fit {here}, which is"
            f" installed: {error}. {remedy}"
        )

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from pydantic import BaseModel

_T = TypeVar("_T")
_S = TypeVar("_S", bound=SandboxEnvironment)

class ExecResult(Generic[_T]):
    success: bool
    returncode: int
    stdout: _T
    stderr: _T
    def __init__(self, success: bool, returncode: int, stdout: _T, stderr: _T) -> None: ...

class OutputLimitExceededError(Exception):
    def __init__(self, limit_str: str, truncated_output: str | None) -> None: ...

class SandboxUnavailableError(RuntimeError): ...
class SandboxUserUnsupportedError(RuntimeError): ...

class SandboxEnvironmentLimits:
    MAX_EXEC_OUTPUT_SIZE: int
    MAX_EXEC_OUTPUT_SIZE_STR: str
    MAX_READ_FILE_SIZE: int
    MAX_READ_FILE_SIZE_STR: str

class SandboxEnvironmentSpec(BaseModel):
    type: str
    config: Any = None

class SandboxEnvironment:
    def __init__(self) -> None: ...
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]: ...
    async def write_file(self, file: str, contents: str | bytes) -> None: ...
    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    def as_type(self, sandbox_cls: type[_S]) -> _S: ...
    def default_polling_interval(self) -> float: ...

def sandboxenv(name: str) -> Callable[[type[_S]], type[_S]]: ...

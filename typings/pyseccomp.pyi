from typing import BinaryIO

ALLOW: int
EQ: int
MASKED_EQ: int

def ERRNO(x: int) -> int: ...  # noqa: N802  its own name
def resolve_syscall(arch: int, syscall: str) -> int: ...

class Arch:
    NATIVE: int
    X86_64: int
    AARCH64: int

class Attr:
    ACT_BADARCH: int
    CTL_OPTIMIZE: int

class Arg:
    def __init__(self, arg: int, op: int, data_a: int, data_b: int = 0) -> None: ...

class SyscallFilter:
    def __init__(self, defaction: int) -> None: ...
    def set_attr(self, attr: int, value: int) -> None: ...
    def add_rule(self, action: int, syscall: int | str, *args: Arg) -> None: ...
    def export_bpf(self, file: BinaryIO) -> None: ...

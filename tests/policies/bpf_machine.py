"""The kernel's machine for filters (classic BPF over ``struct seccomp_data``), as far as libseccomp makes use of it."""

from __future__ import annotations

import struct

ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
X86_64 = 0xC000003E
I386 = 0x40000003
AARCH64 = 0xC00000B7


def run(program: bytes, number: int, arguments: tuple[int, ...], *, arch: int = X86_64) -> int:
    """What the program answers: an action, with its data in the lower 16 bits."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *arguments)
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator: int = 0
    at: int = 0
    while True:
        op, true, false, value = code[at]
        at += 1
        match op:
            case 0x20:  # ld [k]
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:  # and k
                accumulator &= value
            case 0x05:  # ja k
                at += value
            case 0x15:  # jeq
                at += true if accumulator == value else false
            case 0x25:  # jgt
                at += true if accumulator > value else false
            case 0x35:  # jge
                at += true if accumulator >= value else false
            case 0x45:  # jset
                at += true if accumulator & value else false
            case 0x06:  # ret k
                return int(value)
            case _:
                raise AssertionError(f"libseccomp made an instruction that this machine has not: {op:#x}")

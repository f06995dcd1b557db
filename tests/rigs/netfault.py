"""A network that is slow, loses packets, or swallows them all, as long as a test wants.

A namespace of its own holds one end. Two TUN devices, one on each side, are joined by a process of ours
that keeps every packet for a while, or drops it: kernels without netem can be tested so too. Run as a
script, this module is that process.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from typing import Any, Self

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_NEW_NETWORK = 0x40000000


def missing() -> str:
    """Why there can be no such network here, or nothing."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    absent = [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]
    return f"no {', '.join(absent)} here" if absent else ""


class Network:
    """The far end has ``address``; what runs after the words of ``inside`` is there."""

    def __init__(self) -> None:
        # Not at the top: run as a script, this module has no other of ours to import.
        from tests.rigs import claims

        subnet, self._claim = claims.take_subnet()
        self.near, self.address = str(subnet[1]), str(subnet[2])
        self._device = f"hx{os.urandom(5).hex()}"
        self._holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self.inside = ("nsenter", "-t", str(self._holder.pid), "-n", "--")
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self._holder.pid}/ns/net") == own:
            time.sleep(0.005)
        argv = [sys.executable, __file__, self._device, str(self._holder.pid)]
        self._relay = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answered()
        self._ip("addr", "add", self.near, "peer", self.address, "dev", self._device)
        self._ip("link", "set", self._device, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", self.address, "peer", self.near, "dev", "far"),
            ("link", "set", "far", "up"),
        ):
            self._ip(*words, inside=True)

    def _ip(self, *words: str, inside: bool = False) -> None:
        subprocess.run([*(self.inside if inside else ()), "ip", *words], check=True, stdin=subprocess.DEVNULL)

    def set(self, **state: float) -> None:
        """Change it: ``delay_ms`` each way, ``loss`` of 100 packets, ``blackhole``; it is so on return."""
        assert self._relay.stdin is not None
        self._relay.stdin.write(json.dumps(state).encode() + b"\n")
        self._relay.stdin.flush()
        self._answered()

    def _answered(self) -> None:
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == b"ready\n"

    def close(self) -> None:
        """Take it away; the namespace goes with its last process."""
        for process in (self._relay, self._holder):
            process.kill()
            process.wait()
        for stream in (self._relay.stdin, self._relay.stdout):
            if stream is not None:
                stream.close()
        self._claim.release()

    def __enter__(self) -> Self:
        """As it was made."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        self.close()


def _tun(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return fd


def _enter(path: str) -> None:
    import ctypes

    fd = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


def relay(device: str, holder: str) -> None:
    """Carry packets between the two devices until standard input ends."""
    near = _tun(device)
    _enter(f"/proc/{holder}/ns/net")
    far = _tun("far")
    other = {near: far, far: near}
    state: dict[str, Any] = {"delay_ms": 0.0, "loss": 0.0, "blackhole": 0}
    waiting: list[tuple[float, int, int, bytes]] = []
    newest = {near: 0.0, far: 0.0}
    count = 0
    print("ready", flush=True)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for fd in select.select([0, near, far], [], [], timeout)[0]:
            if fd == 0:
                said = sys.stdin.readline()
                if not said:
                    return
                state.update(json.loads(said))
                print("ready", flush=True)
                continue
            packet = os.read(fd, 65536)
            if state["blackhole"] or random.random() * 100 < state["loss"]:
                continue
            # A link keeps the order, also when its delay has just become shorter.
            newest[fd] = max(time.monotonic() + state["delay_ms"] / 1000, newest[fd])
            count += 1
            heapq.heappush(waiting, (newest[fd], count, other[fd], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, fd, packet = heapq.heappop(waiting)
            try:
                os.write(fd, packet)
            except OSError:  # the device is not up (yet, or any more)
                continue


if __name__ == "__main__":
    relay(*sys.argv[1:3])

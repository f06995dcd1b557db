"""Run hostile acts as root in a throw-away virtual machine, without a sandbox; it is started there by ``controls``.

It reads /share/items.json, and appends a line of JSON for each act to /share/found.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_BAIT = {"OPENAI_API_KEY": "canary", "MEMORY_DB_URL": "postgresql://u:canary@h/d", "HTTPS_PROXY": "http://h:1"}
_LISTENED = 18999
_WALL_S = {"resource": 10.0}
_OTHERWISE_S = 60.0
_LONG_S = {"res-pending-timers": 60.0, "sec-private-keys": 400.0}
_REFUSALS = {1, 13, 38}
"""The numbers with which a filter refuses a call: EPERM, EACCES, ENOSYS. Others show that the kernel took it."""
_LEAVES = {"res-pipe-holder", "fs-unix-socket-file", "fs-deep-tree"}
"""Acts whose effect is a process or a file that stays."""
_START = """
import sys
sys.argv = [sys.argv[1]]
with open(sys.argv[0]) as file:
    text = file.read()
print("STARTED", flush=True)
exec(compile(text, sys.argv[0], "exec"), {"__name__": "__main__"})
"""
_JUDGED = "import sys, types\nsys.modules['hermes_exec'] = types.ModuleType('hermes_exec')\n"
"""A judge that would run an act in its own process."""
_LARGE = "/work /var /opt /home /usr/local /usr/share /usr/include /usr/src /usr/libexec"
_FEW_FILES = f'for each in {_LARGE}; do mount -t tmpfs none "$each" || true; done; exec "$@"'
"""Hides the large folders of the machine, which take minutes to walk through."""
_FLOOD = 16 << 20
HOME = Path("/root")
hits: list[object] = []


def plant() -> list[Any]:
    """Make what the acts look for: files, a port, hosts, shared memory, other skills."""
    for path in ("/app/data", "/app/skills/neighbour/scripts", f"{HOME}/.aws", "/etc/cron.d", f"{HOME}/keys"):
        os.makedirs(path, exist_ok=True)
    Path("/app/skills/neighbour/SKILL.md").write_text("---\nname: neighbour\n---\n")
    Path("/app/skills/neighbour/scripts/main.py").write_text("x = 1\n")
    Path(f"{HOME}/.aws/credentials").write_text("[default]\naws_secret_access_key = canary\n")
    Path(f"{HOME}/keys/signing.pem").write_text("-----BEGIN " + "PRIVATE KEY-----\ncanary\n")
    Path("/dev/shm/hermes-canary").touch()
    ctypes.CDLL(None).shmget(0, ctypes.c_size_t(4096), 0o1666)
    for address in ("192.0.2.1/32", "192.0.2.25/32"):
        subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
    Path("/run/hostname").write_text("canary\n")  # on a file system that has handles of files
    subprocess.run(["mount", "--bind", "/run/hostname", "/etc/hostname"], check=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (1 << 20, 1 << 20))
    Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 2147483647")
    return [listen(port) for port in (18080, 80, 443, 25)]


def listen(port: int) -> socket.socket:
    """Accept connections to a port, greet like a mail server, and count them."""
    server = socket.create_server(("0.0.0.0", port))

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            hits.append(port)
            with contextlib.suppress(OSError), connection:
                if port == 25:
                    connection.sendall(b"220 canary ESMTP\r\n")
                    connection.settimeout(2)
                    connection.recv(1000)
                elif port == 80:
                    connection.settimeout(2)
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    return server


def reach() -> None:
    """Connect to the port on which an act listens."""
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", _LISTENED), 1):
            return
        time.sleep(0.1)


def works(item: dict[str, Any]) -> str:
    """Run one act; return how it works, or an empty text."""
    subprocess.run(
        "rm -rf /app/data /app/skills/hostile; mkdir -p /app/data /app/skills/hostile/scripts", shell=True, check=True
    )
    file = Path("/app/skills/hostile/scripts") / ("main.py" if item["lang"] == "python" else "main.sh")
    file.write_text(item["code"] + "\n")
    start = _JUDGED + _START if item["id"] == "sec-gc-frames" else _START
    argv = ["/usr/bin/python3", "-I", "-S", "-B", "-c", start, str(file)]
    if item["lang"] == "sh":
        argv = ["/bin/sh", "-c", 'echo STARTED && . "$1"', "sh", str(file)]
    apart = ["unshare", "--mount", "--propagation", "private"]
    if item["class"] == "resource" and item["id"] not in _LEAVES:
        # The first process of a namespace ignores most signals, so the act is its child.
        apart += ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]
    if item["id"] == "sec-private-keys":
        apart += ["sh", "-c", _FEW_FILES, "sh"]
    wall_s = _LONG_S.get(item["id"]) or _WALL_S.get(item["class"], _OTHERWISE_S)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        held = os.open(__file__, os.O_RDWR | os.O_APPEND)  # descriptors that a careless parent passes on
        pair = socket.socketpair()
        process = subprocess.Popen(
            [*apart, *argv], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/app/skills/hostile",
            env={**os.environ, **_BAIT}, start_new_session=True,
            pass_fds=[held, pair[0].fileno()] if item["id"] in {"net-inherited-fds", "sec-fd-reopen-rw"} else [],
        )  # fmt: skip
        if item["id"] == "net-listen-reach-host":
            threading.Thread(target=reach, daemon=True).start()
        late = False
        try:
            process.wait(wall_s)
        except subprocess.TimeoutExpired:
            late = True
        stays = not late and item["id"] in _LEAVES and has_group(process.pid)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(held)
        for each in pair:
            each.close()
        size = out.seek(0, os.SEEK_END)
        out.seek(0)
        err.seek(0)
        said = out.read(20000).decode("utf-8", "replace").splitlines()
        errors = err.read(20000).decode("utf-8", "replace")
    return describe(item, process.returncode, said, errors, late=late, stays=stays, size=size)


def has_group(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def describe(
    item: dict[str, Any], code: int | None, said: list[str], errors: str, *, late: bool, stays: bool, size: int
) -> str:
    """Return how an act worked, judged by what is seen of it."""
    if not said or said[0] != "STARTED":
        return ""
    if any(line.startswith("ESCAPED") for line in said):
        return "it says so"
    if item["class"] == "network" and hits:
        return "a listener was reached"
    if stays or any(line.startswith("PLANTED") for line in said):
        return "it leaves something"
    if item["class"] == "resource" and size > _FLOOD:
        return "it writes without end"
    if item["class"] == "resource" and late:
        return "a clock ends it"
    if item["class"] == "resource" and code and (code < 0 or code > 128):
        return f"it ends by signal {-code if code < 0 else code - 128}"
    if item["id"] == "res-mem-swallow" and "1 passed" in said:
        return "the kernel ends it for lack of memory"
    if item["id"] == "fs-inotify-flood" and any(re.fullmatch(r"N [1-9]\d+", line) for line in said):
        return "it watches files"
    if item["id"] == "sec-traceback-leak" and "canary" in errors:
        return "the error has the secret"
    numbers = [int(each) for line in said for each in re.findall(r"^DENIED (?:-?\d+ )?(\d+)$", line)]
    if item["class"] == "kernel" and numbers and numbers[-1] not in _REFUSALS:
        return f"the kernel takes the call ({errno_name(numbers[-1])})"
    return ""


def errno_name(number: int) -> str:
    import errno

    return errno.errorcode.get(number, str(number))


def main() -> None:
    """Run all, those that may harm the machine last."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    items: list[dict[str, Any]] = json.loads(Path("/share/items.json").read_text())
    harmless = [item for item in items if item["class"] != "resource"]
    bombs = [item for item in items if item not in harmless and item["id"] != "res-fork-bomb"]
    items = [*harmless, *bombs, *(item for item in items if item["id"] == "res-fork-bomb")]
    kept = plant()
    assert kept
    with open("/share/found", "a") as found:
        for item in items:
            hits.clear()
            try:
                how = works(item)
            except (OSError, subprocess.SubprocessError) as error:
                how = ""
                print(item["id"], error)
            found.write(json.dumps({"id": item["id"], "works": how}) + "\n")
            found.flush()
            os.fsync(found.fileno())


if __name__ == "__main__":
    main()

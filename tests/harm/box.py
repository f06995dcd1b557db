"""A throw-away machine for one process: namespaces of its own, a loopback alone, and no way to write outside.

``run(["-m", "tests.harm.driver"], text)`` starts this interpreter in one, with ``text`` on its standard input. Every
process in it ends with it. The system is read-only; ``/etc``, ``/home``, ``/root``, ``/srv``, ``/tmp`` and ``/var`` are
empty or copies, in memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("", "agent", "backends", "policies", "tools", "tests")
_NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child")
_SCRIPT = """\
set -eu
mount --make-rprivate /
mount -t tmpfs none /media
number=0
for folder in "$ROOT" $KEPT; do
    number=$((number + 1)); mkdir "/media/$number"; mount --bind "$folder" "/media/$number"
done
cp -a /etc /media/etc
while read -r _ folder kind _; do
    case $folder:$kind in
        /media:* | *:proc | *:sysfs | *:devpts | *:mqueue | *:cgroup*) ;;
        *) mount -o remount,bind,ro "$folder" 2>/dev/null || true ;;
    esac
done < /proc/self/mounts
mount -t tmpfs none /dev/shm
for folder in /home /root /srv /tmp /var/tmp /var/spool /run /var/lib; do
    if [ -d "$folder" ]; then mount -t tmpfs -o mode=755 none "$folder"; fi
done
chmod 1777 /tmp /var/tmp
mount --bind /media/etc /etc
number=0
for folder in "$ROOT" $KEPT; do
    number=$((number + 1)); mkdir -p "$folder"; mount --bind "/media/$number" "$folder"
    mount -o remount,bind,ro "$folder"
done
umount -l /media
ip link set lo up
printf '127.0.0.1 localhost collect.example files.example\\n' > /etc/hosts
cd "$ROOT"
exec "$@"
"""


def command(words: list[str]) -> list[str]:
    """Return the argv of this interpreter with ``words`` in a throw-away machine."""
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, *_NAMESPACES, "sh", "-c", _SCRIPT, "sh", sys.executable, *words]


def environment() -> dict[str, str]:
    """Return the variables of a process in there; nothing of this one's leaks into it."""
    kept = dict.fromkeys(path for path in (sys.base_prefix, sys.prefix) if not Path(path).is_relative_to(ROOT))
    return {
        "HOME": "/home/user",
        "KEPT": " ".join(path for path in kept if path.startswith(("/home", "/root", "/tmp", "/srv", "/var"))),
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in _PACKAGES),
        "ROOT": str(ROOT),
        "USER": "user",
        "XDG_STATE_HOME": "/var/lib/state",
    }


def start(words: list[str]) -> subprocess.Popen[str]:
    """Start this interpreter in a throw-away machine, with pipes for its streams."""
    return subprocess.Popen(
        command(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )

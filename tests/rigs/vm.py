"""A small virtual machine with a Debian kernel that has AppArmor, for machines whose own has none.

Its root folder is this machine's own, read-only over 9p with a folder in memory on top, so what is installed here is
installed there, and also at /lower, where nothing hides it. It needs no /dev/kvm (the processor is emulated, which
takes seconds), and no image: the kernel is unpacked from its package, never installed. A folder is shared, and the
exit code comes back through another.
"""

from __future__ import annotations

import functools
import hashlib
import lzma
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import require_engines, require_part
from tests.rigs.images import with_libraries

CACHE = Path(__file__).parents[2] / ".cache" / "vm"
MODULES = CACHE / "modules"
"""The modules of ``EXTRA`` and those that they need, to be loaded in the order of their names."""
_MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "algif_hash", "vsock")
EXTRA = ("veth", "nfsd", "nfsv3", "nfsv4")
"""Modules that a command in there may load itself."""
_UUID = "5f0c2a4e-7d1b-4c39-9a86-3e2b1d70c5f4"
"""The machine's number, which its firmware tells."""
_PROGRAMS = ("qemu-system-x86_64", "busybox", "modprobe", "cpio", "apt-get", "dpkg-deb")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
# A busy machine emulates the timer too late for the kernel's check of it.
_START = (
    "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check cryptomgr.notests"
    " apparmor=1 security=apparmor"
)
_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in /mod/*; do $b insmod $m; done
o=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o $o,cache=loose,ro root /lower
$b mount -t tmpfs -o mode=755 tmpfs /rw; $b mkdir -p /rw/u /rw/w
$b mount -t overlay -o lowerdir=/lower,upperdir=/rw/u,workdir=/rw/w overlay /new
cd /new
for d in proc sys dev run tmp share; do $b mkdir -p $d; done
$b mount -t proc proc proc; $b mount -t sysfs sys sys; $b mount -t devtmpfs dev dev
$b mkdir -p dev/pts dev/shm; $b mount -t devpts devpts dev/pts; $b mount -t tmpfs tmpfs dev/shm
$b ln -sf /proc/self/fd dev/fd
$b mount -t securityfs sec sys/kernel/security; $b mount -t cgroup2 cg sys/fs/cgroup
$b mount -t tmpfs -o mode=755 tmpfs run; $b mount -t tmpfs -o mode=1777 tmpfs tmp
$b mount -t 9p -o $o,cache=none share share
$b mkdir -p /new/lower; $b mount --bind /lower /new/lower
$b ip link set lo up
exec $b switch_root /new /bin/sh /share/.start
"""
_STARTED = """\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
cd /share
{command} </dev/null >/share/.out 2>/share/.err
echo $? >/share/.code
sync
exec busybox poweroff -f
"""


@dataclass(frozen=True)
class Done:
    """How a command ended in there."""

    code: int
    out: str
    err: str


def run(argv: list[str], share: Path, *, seconds: float = 300.0, memory_mib: int = 1024) -> Done:
    """Boot, run a command as root with ``share`` as /share, and power off. The calling test skips where it cannot."""
    kernel, start = machine()
    (share / ".start").write_text(_STARTED.format(command=shlex.join(argv)), encoding="utf-8")
    words = [
        "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off",
        "-m", str(memory_mib), "-smp", "1", "-nodefaults", "-no-user-config",
        "-uuid", _UUID, "-display", "none", "-no-reboot",
        "-kernel", str(kernel), "-initrd", str(start), "-append", _START, "-serial", f"file:{share}/.console",
        "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
        "-fsdev", f"local,id=share,path={share},security_model=none,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
    ]  # fmt: skip
    try:
        subprocess.run(
            words, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, env={"PATH": _PATH}
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"the virtual machine did not end within {seconds:g} s: {_console(share)}") from error
    assert (share / ".code").exists(), f"the virtual machine died: {_console(share)}"
    read = {name: (share / name).read_text(encoding="utf-8", errors="replace") for name in (".code", ".out", ".err")}
    return Done(int(read[".code"]), read[".out"], read[".err"])


def _console(share: Path) -> str:
    console = share / ".console"
    return console.read_text(encoding="utf-8", errors="replace")[-1500:] if console.exists() else "no word from it"


@functools.cache
def machine() -> tuple[Path, Path]:
    """The kernel and what it starts from, unpacked once for a checkout."""
    require_engines()
    require_part("root", "only root can share all files of this machine", usable=os.geteuid() == 0)
    for program in _PROGRAMS:
        found = shutil.which(program, path=_PATH)
        require_part(program, "the virtual machine with AppArmor", usable=found is not None)
    kernel, start = CACHE / "vmlinux", CACHE / f"initrd-{_digest()}"
    if not (kernel.exists() and start.exists()):
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            tree = _unpacked(Path(folder))
            shutil.rmtree(MODULES, ignore_errors=True)
            _copy_modules(tree, EXTRA, MODULES)
            _initrd(tree, Path(folder)).rename(start)
            _plain(next((tree / "boot").glob("vmlinuz-*")), Path(folder)).rename(kernel)
    return kernel, start


def _unpacked(folder: Path) -> Path:
    """The package of the kernel, which is not the one for clouds: that has no 9p."""
    asked = ["apt-cache", "depends", "linux-image-amd64"]  # which Ubuntu does not have
    said = subprocess.run(asked, check=False, capture_output=True, text=True, env={**os.environ, "PATH": _PATH}).stdout
    package = re.search(r"Depends: (linux-image-\S+)", said)
    require_part("a kernel's package", "apt knows of none", usable=package is not None)
    assert package is not None
    _said("apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq", package[1], cwd=folder)
    (archive,) = folder.glob("*.deb")
    _said("dpkg-deb", "-x", str(archive), str(folder / "tree"))
    archive.unlink()
    if not (folder / "tree/lib").exists():  # where the package has moved it, as in Debian 13
        (folder / "tree/lib").symlink_to("usr/lib")
    return folder / "tree"


def _plain(image: Path, folder: Path) -> Path:
    """The kernel as it is behind its own unpacking, which would take an emulated processor seconds."""
    packed = image.read_bytes()
    if b"\xfd7zXZ\0" not in packed:
        return image  # packed in another way, which takes those seconds
    plain = lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\0") :])
    assert plain.startswith(b"\x7fELF")
    made = folder / "vmlinux"
    made.write_bytes(plain)
    return made


def _initrd(tree: Path, folder: Path) -> Path:
    """What is there before the root folder: busybox, the modules that reach it, and what mounts it."""
    root = folder / "initrd.d"
    for name in ("bin", "proc", "sys", "dev", "lower", "rw", "new"):
        (root / name).mkdir(parents=True)
    with_libraries(shutil.which("busybox", path=_PATH) or "", root, "bin/busybox")
    _copy_modules(tree, _MODULES, root / "mod")
    (root / "init").write_text(_INIT, encoding="utf-8")
    (root / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=root, check=True, capture_output=True
    )
    made = folder / "initrd"
    made.write_bytes(packed.stdout)
    return made


def _copy_modules(tree: Path, names: tuple[str, ...], into: Path) -> None:
    """Copy modules and what they need, numbered in the order in which they load."""
    (version,) = (entry.name for entry in (tree / "lib/modules").iterdir())
    if not (tree / "lib/modules" / version / "modules.dep").exists():
        _said("depmod", "-b", str(tree), version)
    needed: dict[str, None] = {}
    for module in names:
        shown = _said("modprobe", "-d", str(tree), "-S", version, "--show-depends", module)
        needed |= dict.fromkeys(re.findall(r"^insmod (\S+)", shown, re.MULTILINE))
    into.mkdir(exist_ok=True)
    for number, path in enumerate(needed):
        shutil.copy(path, into / f"{number:03}-{Path(path).name}")


def _digest() -> str:
    """Tell what is packed now from what an earlier version of this module has packed."""
    return hashlib.sha256(repr((_INIT, _MODULES, EXTRA)).encode()).hexdigest()[:12]


def _said(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=cwd, env={**os.environ, "PATH": _PATH})
    assert done.returncode == 0, f"{shlex.join(argv)}: {done.stderr}"
    return done.stdout

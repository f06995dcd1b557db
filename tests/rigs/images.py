"""Root file systems for containers, as tar files, without any registry: from Debian's packages, and from busybox.

Each is made once and kept in ``.cache/images``, under a name that tells its content: the versions of its packages
and this file, so a new version of either makes a new image. Packages are resolved against an empty list of what is
installed, downloaded into a folder of ours and unpacked, so nothing on the machine changes, and no root is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "images"
PACKAGES = (
    "bash", "coreutils", "dash", "sed", "grep", "findutils", "tar", "gzip", "mawk", "diffutils", "hostname",
    "procps", "util-linux", "ncurses-bin", "python3-minimal", "libpython3-stdlib", "ca-certificates", "netbase",
    "tzdata",
)  # fmt: skip
_LISTS = Path("/var/lib/apt/lists")
_INSTALL = ("--no-install-recommends", "install", *PACKAGES)
_ENVIRONMENT = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
# What their dependencies add for installing packages, which an unpacked tree never does.
_UNUSED = (
    "dpkg_", "debconf_", "perl", "libperl", "usrmerge_", "adduser_", "init-system-helpers_", "gcc-", "libdb5",
    "openssl_", "libdebconf", "cdebconf",
)  # fmt: skip
_LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
_FOLDERS = (
    "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "root", "tmp", "var/tmp", "proc", "sys", "dev", "run",
    "home/sandbox", "app/skills", "app/data",
)  # fmt: skip
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    "sandbox:x:1000:1000::/home/sandbox:/bin/bash\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\nsandbox:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "",
}


@cache
def debian() -> Path:
    """A small Debian with bash, the usual tools and Python 3."""
    return _debian_with("debian")


@cache
def debian_with_bubblewrap() -> Path:
    """The same, with bubblewrap."""
    return _debian_with("bubblewrap", "bubblewrap")


def made_of_packages(image: str, more: Sequence[str], content: bytes, fill: Callable[[Path], None]) -> Path:
    """A small Debian with ``more`` packages, into whose tree ``fill`` puts the rest, which ``content`` names."""
    with _locked(f"{image}-plan"):
        names = _planned(image, more)

    def both(root: Path, work: Path) -> None:
        _debian(root, work, more)
        fill(root)

    return _made(image, names + content, both)


def _debian_with(image: str, *more: str) -> Path:
    with _locked(f"{image}-plan"):
        names = _planned(image, more)
    if not names and (old := sorted(CACHE.glob(f"{image}-*.tar"))):
        return old[-1]  # nothing is known of packages here now
    return _made(image, names, lambda root, work: _debian(root, work, more))


@cache
def busybox() -> Path:
    """Busybox alone: a POSIX shell and no Python."""
    program = shutil.which("busybox")
    if program is None:
        raise FileNotFoundError("busybox")
    return _made("busybox", Path(program).read_bytes(), _busybox)


def unpacked(image: Path, folder: Path) -> Path:
    """The tree of a tar file in a new folder."""
    folder.mkdir(parents=True)
    _run(["tar", "-C", str(folder), "-xf", str(image)])
    return folder


def _made(name: str, content: bytes, fill: Callable[[Path, Path], None]) -> Path:
    digest = hashlib.sha256(content + Path(__file__).read_bytes()).hexdigest()[:16]
    finished = CACHE / f"{name}-{digest}.tar"
    with _locked(name):
        if not finished.exists():
            with tempfile.TemporaryDirectory() as work:
                root = Path(work) / "root"
                _skeleton(root)
                fill(root, Path(work))
                made = CACHE / f"{name}.part"
                with tarfile.open(made, "w") as archive:
                    archive.add(root, ".", filter=_roots)
                for old in CACHE.glob(f"{name}*.tar"):
                    old.unlink()
                made.rename(finished)
    return finished


@contextlib.contextmanager
def _locked(name: str) -> Generator[None]:
    """Several test processes may want the same at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 1000 if entry.name.startswith("./home/sandbox") else 0
    entry.uname = entry.gname = ""
    return entry


def _skeleton(root: Path) -> None:
    for name in _FOLDERS:
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for name, text in _FILES.items():
        (root / name).write_text(text)


def _planned(image: str, more: Sequence[str]) -> bytes:
    """The files of the packages, whose names tell versions; kept while what apt knows of packages is the same."""
    lists = sorted(_LISTS.glob("*_Packages*"))
    facts = [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in lists]
    known = hashlib.sha256(repr((facts, more)).encode() + Path(__file__).read_bytes())
    kept = CACHE / f"{image}-plan"
    seen, _, names = kept.read_bytes().partition(b"\n") if kept.exists() else (b"", b"", b"")
    if seen.decode() != known.hexdigest():
        with tempfile.TemporaryDirectory() as work:
            argv = ["apt-get", *_apt_options(Path(work)), "-qq", "--print-uris", *_INSTALL, *more]
            planned = subprocess.run(argv, check=False, capture_output=True, env=_ENVIRONMENT).stdout
        # A line for each package: its address, its file's name, its size and hash.
        names = b"\n".join(sorted(line.split()[1] for line in planned.splitlines() if line.startswith(b"'")))
        kept.write_bytes(known.hexdigest().encode() + b"\n" + names)
    return names


def _apt_options(work: Path) -> list[str]:
    downloads = work / "downloads"
    (downloads / "partial").mkdir(parents=True)
    (work / "status").touch()
    settings = {
        "Dir::State::status": str(work / "status"),
        "Dir::Cache::archives": str(downloads),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _debian(root: Path, work: Path, more: Sequence[str]) -> None:
    _run(["apt-get", *_apt_options(work), "-y", "-qq", "--download-only", *_INSTALL, *more])
    for package in sorted((work / "downloads").glob("*.deb")):
        if package.name.startswith(_UNUSED):
            continue
        tree = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], check=True, capture_output=True).stdout
        leave = [f"--exclude=./{name}/*" for name in _LEFT_OUT]
        _run(["tar", "-x", "-C", str(root), "--keep-directory-symlink", "--no-same-owner", *leave], tree)
    for name, to in (("sh", "dash"), ("awk", "mawk")):
        (root / "usr/bin" / name).unlink(missing_ok=True)
        (root / "usr/bin" / name).symlink_to(to)
    certificates = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    (root / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
    (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(b"".join(path.read_bytes() for path in certificates))
    _run([shutil.which("ldconfig") or "/sbin/ldconfig", "-r", str(root)])


def with_libraries(program: str, root: Path, name: str) -> None:
    """Copy a program of this machine into a tree as ``name``, and what it is linked with: it may not be static."""
    shutil.copy(program, root / name)
    linked = subprocess.run(["ldd", program], check=False, capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", linked):
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])


def _busybox(root: Path, _: Path) -> None:
    program = shutil.which("busybox") or "busybox"
    with_libraries(program, root, "usr/bin/busybox")
    names = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    for name in names:
        if name != "busybox":
            (root / "usr/bin" / name).symlink_to("busybox")


def _run(argv: Sequence[str], data: bytes | None = None) -> None:
    done = subprocess.run(argv, check=False, input=data, capture_output=True, env=_ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed: {done.stderr.decode(errors='replace').strip()[-400:]}")

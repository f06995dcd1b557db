"""Put on the machine what the full suite needs in addition to Python: all that reaches out of the checkout is here.

It says what it will install before it does, and it runs only when it was asked for (``--provision``), or for
``demo``, where a bare Debian could otherwise not make a virtual environment at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev import apptainer, compose, newer
from hermes_dev.place import DevError, environment, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Part:
    """One Debian package that tests require, and the ``program`` by which we know that it is there."""

    package: str
    program: str
    why: str
    otherwise: str = ""
    """The package that has the program in an archive without ``package``: another year's, or Ubuntu's."""


FUSE = Path("/dev/fuse")
"""What ordinary users mount images through."""

PARTS = (
    Part("apparmor", "apparmor_parser", "compiles the profiles of policies, and loads them in a virtual machine"),
    Part("bash", "bash", "the shell of sessions"),
    Part("bubblewrap", "bwrap", "the local sandbox, and the cells in which servers of the tests run commands"),
    Part("busybox-static", "busybox", "the shell and tools of small images"),
    Part("chromium", "chromium", "the browser that shows the web view to the tests"),
    Part("cpio", "cpio", "packs what the virtual machine starts from"),
    Part("dash", "dash", "a shell without arrays, as sh is on Debian"),
    Part("docker-cli", "docker", "builds and starts in tests as a person does", "docker.io"),
    Part("docker-compose-v2", "docker-compose", "starts the stack of deploy/ in tests", "docker-compose"),
    Part("docker.io", "dockerd", "the engine that the tests start, with a socket and data of its own"),
    Part("fish", "fish", "a login shell with a language of its own, before SSH"),
    Part("iptables", "iptables", "resets connections that are open"),
    Part("iproute2", "ip", "makes the networks that tests break"),
    Part("kmod", "modprobe", "finds the modules of the virtual machine's kernel"),
    Part("munge", "munged", "how the daemons of Slurm know each other"),
    Part("ngircd", "ngircd", "the IRC server that the tests start, with a port of its own"),
    Part("git", "git", "what keeps and restores changes in work trees"),
    Part("openssh-client", "ssh", "the other way to a host over SSH, and what makes keys"),
    Part("openssh-server", "sshd", "the server that the tests start, with users and keys of its own"),
    Part("podman", "podman", "the other engine that speaks Docker's API, with a service and data of its own"),
    Part("procps", "ps", "looks for survivors from outside"),
    Part("qemu-system-x86", "qemu-system-x86_64", "emulates a machine whose kernel has AppArmor"),
    Part("rootlesskit", "rootlesskit", "gives a user an engine of Docker without root"),
    Part("rsync", "rsync", "the peer that sync is checked and measured against"),
    Part("slurm-client", "srun", "the commands of Slurm"),
    Part("slurmctld", "slurmctld", "the controller of the Slurm cluster that the tests start"),
    Part("slurmd", "slurmd", "the nodes of that cluster"),
    Part("systemd", "systemd-analyze", "reads the service of deploy/; nothing of it is started"),
    Part("tcsh", "tcsh", "a login shell of the C kind, before SSH"),
    Part("uidmap", "newuidmap", "gives that user's containers further users"),
    Part("vim", "vim", "an editor that fills the screen"),
    Part("zsh", "zsh", "a login shell that is not POSIX by default"),
)


def provision() -> None:
    """Install each part that is missing, after saying which and why.

    Raises:
        DevError: this machine has no apt-get, or no right to use it; nothing was installed.
    """
    missing = [part for part in PARTS if not shutil.which(part.program, path=search_path())]
    if missing:
        root = renew_lists(sorted({in_archive(part) for part in missing}))
        reasons = {in_archive(part): part.why for part in missing}
        say("provision: will install these Debian packages:")
        for package, why in reasons.items():
            say(f"  {package}: {why}")
        install(root, [*reasons])
    else:
        say(f"provision: nothing to install ({', '.join(part.program for part in PARTS)} are here)")
    _provide(
        "apptainer",
        install_apptainer,
        is_missing=not any(shutil.which(name, path=search_path()) for name in ("apptainer", "singularity")),
    )
    _provide("Compose 2", _add_compose, is_missing=compose.is_missing())


def _provide(name: str, install_it: Callable[[], None], *, is_missing: bool) -> None:
    """Install what comes from a newer suite of Debian, unless it is here or apt knows no archive of Debian."""
    if not is_missing:
        return
    if newer.find_archive() is None:
        say(
            f"provision: {name} is left out, for apt knows no archive of Debian here (Ubuntu's has none); "
            "its tests are skipped. Try: install it by hand"
        )
        return
    install_it()


def _add_compose() -> None:
    say(f"provision: will put Compose 2 (from {compose.DONOR}) into {compose.CONFIG}, and nowhere else")
    try:
        compose.add_plugin()
    except DevError as error:  # one test needs it, and is skipped without it
        say(f"provision: {error}")


def in_archive(part: Part) -> str:
    """The name of the part's package here, as far as apt's lists tell."""
    if not part.otherwise or not shutil.which("apt-cache"):
        return part.package
    asked = subprocess.run(["apt-cache", "show", part.package], check=False, capture_output=True)
    return part.package if asked.returncode == 0 else part.otherwise


def install_apptainer() -> None:
    """Install Apptainer, made to fit where this Debian has none of its own, after saying so."""
    say(f"provision: will install apptainer (from {apptainer.DONOR}, fitted) and {', '.join(apptainer.DEPENDENCIES)}")
    apt_install([str(apptainer.build_package()), *apptainer.DEPENDENCIES])
    root = as_root()
    if root is not None and FUSE.is_char_device() and FUSE.stat().st_mode & 0o006 != 0o006:
        # Without a device manager it stays root's, and no other user can mount an image.
        subprocess.run([*root, "chmod", "0666", str(FUSE)], check=True)


def install_venv_support() -> None:
    """Install what Debian keeps apart from its Python and ``venv`` needs, after saying so."""
    package = venv_package()
    say(f"this Python cannot make a virtual environment; will install the Debian package {package}")
    apt_install([package])


def venv_package() -> str:
    """The Debian package that makes this Python's ``venv`` whole.

    Raises:
        DevError: this Python is not Debian's, so no package would help.
    """
    if sys.base_prefix != "/usr" or not shutil.which("apt-get"):
        raise DevError(
            f"{sys.executable} has no ensurepip, and no pip or uv is here. "
            "Try: install pip or uv, or set PYTHON to another Python"
        )
    return f"python{sys.version_info.major}.{sys.version_info.minor}-venv"


def apt_install(packages: Sequence[str]) -> None:
    """Install Debian packages without a question; their output is shown only when that fails."""
    install(renew_lists(packages), packages)


def renew_lists(packages: Sequence[str]) -> list[str]:
    """Renew apt's lists for these packages; returns the words to put before a command to run it as root."""
    if not shutil.which("apt-get"):
        raise DevError(f"no apt-get here. Try: install the programs of these packages by hand: {' '.join(packages)}")
    root = as_root()
    if root is None:
        raise DevError(f"installing needs root. Try: sudo apt-get install {' '.join(packages)}")
    apt_get(root, "update")
    return root


def install(root: Sequence[str], packages: Sequence[str]) -> None:
    """Install packages of lists that are new."""
    apt_get(root, "install", "--yes", "--no-install-recommends", *packages)


def as_root() -> list[str] | None:
    """The words to put before a command to run it as root; None where that cannot be done unasked."""
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], check=False, capture_output=True).returncode == 0
    ):
        return ["sudo", "-n"]
    return None


def apt_get(root: Sequence[str], *words: str) -> None:
    """Run apt-get to its end."""
    # In run level 1 packages start no service of theirs: the tests start their own.
    argv = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "--quiet", *words]
    done = subprocess.run(
        argv,
        check=False,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        print(done.stdout.rstrip(), file=sys.stderr, flush=True)
        raise DevError(f"apt-get {' '.join(words)} failed (its output is above)")


def search_path() -> str:
    """``PATH``, the folders of the system's own programs, which a plain user's PATH may lack, and Docker's plugins."""
    further = ["/usr/sbin", "/sbin", "/usr/libexec/docker/cli-plugins", "/usr/lib/docker/cli-plugins"]
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *further])

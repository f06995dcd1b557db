"""Where a registry may be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_exec.errors import ConfigError, Refused
from hermes_exec_agent.skills.registry.home import RegistryHome, check_local, default_home
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.state_paths import find_file_system

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /home rw shared:2 - autofs systemd-1 rw
31 30 0:41 / /home/ann rw shared:3 master:1 - nfs4 server:/export/ann rw,vers=4.2
32 22 0:42 / /scratch\040space rw - lustre mds:/fs rw
33 22 0:43 / /mnt/host rw - fuse.sshfs ann@host: rw
34 22 0:44 / /over rw - nfs server:/x rw
35 34 0:45 / /over rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/bob", "ext4"),
        ("/home/ann/.local/state", "nfs4"),
        ("/home/anna", "ext4"),
        ("/scratch space/x", "lustre"),
        ("/mnt/host", "fuse.sshfs"),
        ("/over/there", "tmpfs"),
    ],
)
def test_the_file_system_of_a_folder_is_known(folder: str, kind: str) -> None:
    assert find_file_system(Path(folder), MOUNTS.strip()) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs", "fuse"]
)
def test_a_file_system_that_is_shared_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = f"22 1 254:0 / / rw shared:1 - {kind} somewhere rw\n"
    with pytest.raises(Refused, match=f"other machines may share \\({kind}\\).*HERMES_EXEC_SKILLS="):
        check_local(tmp_path, mounts)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o750, 0o701])
@pytest.mark.parametrize("part", ["folder", "keys"])
def test_a_folder_that_is_open_to_others_is_refused(home: RegistryHome, mode: int, part: str) -> None:
    Registry(home).prepare()
    folder: Path = getattr(home, part)
    folder.chmod(mode)
    with pytest.raises(Refused, match=rf"open to others \(mode {mode:04o}\)"):
        Registry(home)


def test_a_folder_below_one_that_others_can_write_to_is_refused(home: RegistryHome, tmp_path: Path) -> None:
    Registry(home).prepare()
    tmp_path.chmod(0o777)
    with pytest.raises(Refused, match="others can write"):
        Registry(home)
    tmp_path.chmod(0o1777)
    Registry(home)


def test_a_link_is_no_folder(home: RegistryHome, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    home.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="not a folder"):
        Registry(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(home: RegistryHome) -> None:
    Registry(home).prepare()
    os.chown(home.folder, 61_000, 61_000)
    with pytest.raises(Refused, match="belongs to another user"):
        Registry(home)


def test_a_key_that_others_can_read_is_refused(home: RegistryHome) -> None:
    Registry(home).prepare()
    (home.keys / "key.pem").chmod(0o640)
    with pytest.raises(Refused, match="others can read the key"):
        Registry(home)


def test_a_key_that_is_none_is_refused(home: RegistryHome) -> None:
    Registry(home).prepare()
    (home.keys / "key.pem").write_text("nonsense")
    with pytest.raises(Refused, match="holds no key"):
        Registry(home)


def test_the_variable_says_where_the_registry_is(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}
    assert default_home(environ) == RegistryHome(Path("/s/hermes_exec/skills"), Path("/c/hermes_exec/skill-keys"))
    assert default_home({**environ, "HERMES_EXEC_SKILLS": str(tmp_path)}).folder == tmp_path
    with pytest.raises(ConfigError, match="absolute"):
        default_home({**environ, "HERMES_EXEC_SKILLS": "here"})

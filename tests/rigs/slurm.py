"""A real Slurm cluster on this machine: one controller and several nodes, without systemd, cgroups and a database.

All nodes share this machine, so nothing keeps them apart; what the controller decides is as on any cluster. The
numbers of jobs begin with the controller's port, because a node tells its jobs apart by them alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.wrapper import PreparedBackend
from hermes_exec_backends.local import LocalBackend
from tests.conftest import require_engines, require_part
from tests.rigs import claims
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Generator

_CONFIG = """
ClusterName=hermes
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
FirstJobId={port}000
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/state/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SchedulerParameters=sched_interval=1,batch_sched_delay=0
EnforcePartLimits=ALL
SlurmctldTimeout=30
SlurmdTimeout=10
KillWait=2
MinJobAge=300
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""
_GPUS = ("/dev/null", "/dev/zero")
"""What stands in for the devices of GPUs, two for each node."""


class Cluster:
    """Started by ``cluster``."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}

    @property
    def here(self) -> PreparedBackend:
        """This machine, as a place where the commands of Slurm find this cluster."""
        return PreparedBackend(LocalBackend(), env={"SLURM_CONF": str(self.conf)})

    def run(self, *argv: str) -> str:
        """Run one of Slurm's commands."""
        done = subprocess.run(argv, check=False, capture_output=True, text=True, env=self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def jobs(self) -> list[str]:
        """The numbers of the jobs that run or wait."""
        return self.run("squeue", "--noheader", "--format=%A", "--states=PENDING,RUNNING").split()

    def start(self) -> None:
        """Start all daemons, and wait until every node is idle."""
        host = socket.gethostname().partition(".")[0]
        for name in ("run", "log", "state", "munge"):
            (self.folder / name).mkdir(mode=0o755)
        self._start_munge()
        ports = claims.free_ports(len(self.nodes) + 1)
        memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20) // len(self.nodes)
        lines = [_CONFIG.format(host=host, port=ports[0], folder=self.folder)]
        for node, port in zip(self.nodes, ports[1:], strict=True):
            address = f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            lines.append(
                f"{address} CPUs={os.cpu_count()} RealMemory={memory_mib} Feature={node} Gres=gpu:tiny:2 State=UNKNOWN"
            )
        lines.append(f"PartitionName=main Nodes={','.join(self.nodes)} Default=YES MaxTime=60 State=UP")
        lines.append(f"PartitionName=short Nodes={self.nodes[0]} MaxTime=1 State=UP")
        lines.append(f"PartitionName=urgent Nodes={','.join(self.nodes)} PriorityTier=9 State=UP\n")
        self.conf.write_text("\n".join(lines))
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu Type=tiny File={path}\n" for path in _GPUS))
        self._daemon("slurmctld", "-f", str(self.conf))
        for node in self.nodes:
            self.start_node(node)
        self._until_idle()

    def start_node(self, node: str) -> None:
        """Start one node's daemon."""
        (self.folder / "state" / node).mkdir(exist_ok=True)
        self._daemon("slurmd", "-f", str(self.conf), "-N", node)

    def kill_node(self, node: str) -> None:
        """Let a node vanish: its daemon, and the processes that keep its steps."""
        os.kill(int((self.folder / "run" / f"slurmd.{node}.pid").read_text()), signal.SIGKILL)
        steps = [*(self.folder / "state" / node).glob(f"{node}_*.*")]  # a socket each
        for process, name in self._processes():
            job = name.removeprefix("slurmstepd: [").partition(".")[0]
            if name.startswith("slurmstepd: [") and any(f"_{job}." in step.name for step in steps):
                os.kill(process, signal.SIGKILL)

    def _processes(self) -> Generator[tuple[int, str]]:
        """The processes below this cluster's daemons, with the first word of each."""
        ours = f"SLURM_CONF={self.conf}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if ours in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")

    def stop(self) -> None:
        """End every job, then every daemon, then what they left."""
        with contextlib.suppress(AssertionError):
            if jobs := self.jobs():
                self.run("scancel", *jobs)
            give_up = time.monotonic() + 60
            while self.run("squeue", "--noheader").strip() and time.monotonic() < give_up:
                time.sleep(0.1)
        # Not by a word: a controller may hang in its end. Nothing that it would write down is wanted any more.
        give_up = time.monotonic() + PATIENCE_S
        while (left := list(self._processes())) and time.monotonic() < give_up:
            for process, _ in left:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        for path in (folder, folder / "key"):
            shutil.chown(path, "munge", "munge")
        files = [f"--{option}={folder / name}" for option, name in MUNGE_FILES.items()]
        self._daemon("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--force", *files)

    def _daemon(self, *argv: str) -> None:
        done = subprocess.run(
            argv,
            check=False,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "log" / "start").open("ab"),
        )
        assert done.returncode == 0, (self.folder / "log" / "start").read_text()

    def _until_idle(self) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                ["sinfo", "--noheader", "--partition=main", "--states=idle", "--format=%D"],
                check=False,
                capture_output=True,
                text=True,
                env=self.env,
            )
            if done.stdout.split() == [str(len(self.nodes))]:
                return
            assert time.monotonic() < give_up, f"the nodes are not idle: {done.stdout}{done.stderr}"
            time.sleep(0.1)


MUNGE_FILES = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


@contextlib.contextmanager
def cluster(nodes: int = 3) -> Generator[Cluster]:
    """A running cluster; skips where one cannot be started."""
    require_engines()
    for program in ("slurmctld", "slurmd", "srun", "munged", "setpriv"):
        require_part(program, "is a part of the Slurm cluster under test")
    require_part("root", "starts the daemons of Slurm", usable=os.geteuid() == 0)
    folder = claims.make_folder("slurm")
    made = Cluster(folder, nodes)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        claims.remove_folder(folder)

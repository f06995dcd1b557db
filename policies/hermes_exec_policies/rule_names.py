"""The rules that a policy consists of, by name. Each can be asked for, enforced, and proven by itself."""

from __future__ import annotations

from hermes_exec.config.check import nearest

RULES: dict[str, str] = {
    "files.write": "nothing is written but where the policy says",
    "files.hidden": "nothing is read but what the policy lists",
    "files.run": "no program is started from where files can be written",
    "files.devices": "there are no devices but those listed",
    "files.masked": "what the kernel tells of the machine and of others' keys is empty",
    "network.isolated": "neither other hosts nor this machine's ports can be reached",
    "network.hosts": "only the named hosts can be reached",
    "network.sockets": "only sockets of the listed families can be made",
    "user.ordinary": "processes are not root",
    "user.unique": "processes run as a user that nothing else runs as",
    "privileges.capabilities": "processes have no capabilities but those listed",
    "privileges.none_gained": "no program gives more rights than its starter has",
    "privileges.namespaces": "no new namespaces can be made",
    "processes.hidden": "processes outside can be neither seen nor signalled",
    "processes.ipc": "shared memory and queues of others cannot be reached",
    "processes.traced": "no process traces another",
    "processes.terminal": "no terminal outside can be typed into",
    "processes.end_together": "all processes end with the sandbox",
    "environment.cleared": "no variable of the outside is inherited but those listed",
    "syscalls.filtered": "only listed calls of the kernel can be made",
    "syscalls.native": "calls in another machine's or a 32-bit form are refused",
    "syscalls.writable_code": "memory is never written and run at once",
    "syscalls.set_id_files": "no file is made that runs as another user",
    "lsm": "a security module of the kernel holds the rules of files once more",
    "limits.memory": "memory",
    "limits.processes": "processes at once",
    "limits.cpus": "processors busy at once",
    "limits.cpu_time": "processor time of a process",
    "limits.time": "time",
    "limits.disk": "bytes in a writable folder",
    "limits.inodes": "files in a writable folder",
    "limits.shared_memory": "bytes of shared memory",
    "limits.file_size": "size of a file",
    "limits.open_files": "open files of a process",
    "limits.output": "output",
    "limits.core": "size of a core dump",
    "limits.locked_memory": "memory that cannot be swapped out",
    "limits.message_queues": "bytes in message queues",
    "limits.pending_signals": "signals that wait",
}
"""Each rule, and what it means in a few words."""


def rule_name(value: str) -> str:
    """``value``, if a rule is called so.

    Raises:
        ValueError: none is; names the nearest one.
    """
    if value not in RULES:
        raise ValueError(f"names no rule: {value!r}; the nearest known one is {nearest(value, RULES)!r}")
    return value

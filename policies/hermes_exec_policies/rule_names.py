"""The names of the rules of a policy. Each rule can be required, enforced and proven by itself."""

from __future__ import annotations

from hermes_exec.config.check import nearest_name

RULES: dict[str, str] = {
    "files.write": "only listed folders can be written",
    "files.hidden": "only listed files can be read",
    "files.run": "no program can be started from a writable folder",
    "files.devices": "only listed devices exist",
    "files.masked": "files in /proc about the machine and other users' keys are empty",
    "network.isolated": "neither other hosts nor this machine's ports can be reached",
    "network.hosts": "only listed hosts can be reached",
    "network.sockets": "only sockets of listed families can be created",
    "user.ordinary": "processes are not root",
    "user.unique": "processes run as a user without other processes",
    "privileges.capabilities": "processes have only listed capabilities",
    "privileges.none_gained": "no program gains privileges",
    "privileges.namespaces": "no namespaces can be created",
    "processes.hidden": "outside processes can be neither seen nor signalled",
    "processes.ipc": "outside shared memory and message queues cannot be reached",
    "processes.traced": "no process traces another",
    "processes.terminal": "no outside terminal can be accessed",
    "processes.end_together": "all processes end with the sandbox",
    "environment.cleared": "only listed environment variables are inherited",
    "syscalls.filtered": "only listed system calls are allowed",
    "syscalls.native": "system calls of another architecture or in 32-bit form are refused",
    "syscalls.writable_code": "no memory is both writable and executable",
    "syscalls.set_id_files": "no set-user-ID or set-group-ID file can be created",
    "lsm": "a security module enforces the rules for files a second time",
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
    "limits.locked_memory": "locked memory",
    "limits.message_queues": "bytes in message queues",
    "limits.pending_signals": "pending signals",
}
"""Each rule with a short description."""


def check_rule_name(value: str) -> str:
    """Return ``value`` if it names a rule.

    Raises:
        ValueError: there is no such rule; names the nearest one.
    """
    if value not in RULES:
        raise ValueError(f"names no rule: {value!r}; the nearest known one is {nearest_name(value, RULES)!r}")
    return value

"""Rules about the system calls of a skill, observed from outside of its sandbox.

A skill may hide that a call was refused, and return the right answer; so the gate judges the calls themselves and not
the skill's output. Refused calls are judged by their kind (``calls.toml``); opened paths, started programs, sockets and
signals by their arguments, whether or not the object exists in the sandbox.
"""

from __future__ import annotations

import functools
import ipaddress
import platform
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_backends.sandbox.observe import NUMBERS, WatchSpec
from hermes_exec_policies.gate.analysis.audit import ONLY_DATA, is_misplaced
from hermes_exec_policies.gate.verdict import Finding, Kind, functional, security

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec_backends.sandbox.observe import ObservedCall

NETWORK = "suites.denied-network"
DNS_PORT = 53
_INTERNET_TEXTS = 3
_MACHINES = ("x86_64", "aarch64")
_UNIX = 1
_CREATES = 0o100 | 0o1000
_WRITES = 0o3 | _CREATES
_TRUNCATES = 0o1000
_ACCESS, _WRITE_ONLY = 0o3, 0o1
_FOLDER = 0o200000 if platform.machine() == "x86_64" else 0o40000
_PATH_ONLY = 0o10000000
_KIND, _DEVICES = 0o170000, {0o020000, 0o060000}
_REAL_TIME = {1, 2, 6}
_LISTED = frozenset({"/", "/etc", "/app", "/app/skills", "/run", "/var", "/var/lib", "/mnt", "/media", "/srv"})
_OWN = re.compile(r"/(app/data|dev/shm|tmp|var/tmp)(/|$)")
_ELSEWHERE = re.compile(r"/(etc|root|home|proc|sys|dev|run|var|mnt|boot)(/|$)|/$|/app/skills(/|$)")
_SHELL = re.compile(r"(ba|da|z|k|a)?sh$")
_INTERPRETERS = re.compile(rf"(python|perl|ruby|node|lua|php|tclsh)[\d.]*$|[gm]?awk$|{_SHELL.pattern}")
_READERS = re.compile(rf"python[\d.]*$|{_SHELL.pattern}")
_UNREAD = re.compile(r"^(?!/(usr|bin|lib|etc)/)(?!.*\.(py|sh|bash)$)(.*/)?[^/]*\.\w+$")
"""A file that is neither a script nor a system file, so it was not audited as a program."""
_ATTRIBUTES = re.compile(r"security\.capability|trusted\.")
_HOME = re.compile(r"/(root|home/[^/]+)/.")
_SECRETS = re.compile(
    r"^/(root|home)(/|$)|^/etc/(g?shadow|sudoers|krb5\.keytab|ssh/|ssl/private)|^(/var)?/run/(secrets|credentials)(/|$)"
    r"|/(\.ssh|\.gnupg)(/|$)|/\.(netrc|pypirc|git-credentials|aws/credentials|kube/config|docker/config\.json)$"
)
_KERNEL = re.compile(
    r"^/proc/(kcore|kallsyms|keys|key-users|kmsg|sysrq-trigger|1/(mem|environ|maps|root|cwd|fd|fdinfo|ns|task)\b)"
    r"|^/proc/[^/]+/((task/\d+/)?mem$|root/)|^/dev/(k?mem|port|kmsg|[svx]d[a-z]|nvme|dm-|loop|mapper|fuse|kvm|v?host|vsock|net/|pts/|bus/)"
    r"|^/sys/(kernel/(debug|security|tracing)|firmware|fs/bpf)|(docker|containerd|podman|crio|snapd|libvirt[^/]*)\.sock"
)
_CONTROL = re.compile(r"(docker|containerd|podman|crio|snapd|libvirt[^/]*|ssh|gpg)[^/]*\.?sock|/systemd/private|/bus$")
_PERSISTS = re.compile(
    r"^/(etc|usr|lib\w*|s?bin|boot|opt|srv|var/(spool|lib)|sys|proc/sys)/|^/app/skills/.*(\.py|\.pth|SKILL\.md)$"
)
_NETWORKED = frozenset({
    "curl", "wget", "nc", "ncat", "netcat", "socat", "ssh", "scp", "sftp", "ssh-keyscan", "telnet", "ftp",
    "nslookup", "dig", "host", "ping",
})  # fmt: skip
_PROGRAMS = _NETWORKED | {
    "docker", "podman", "nerdctl", "kubectl", "crictl", "sudo", "su", "doas", "pkexec", "mount", "umount",
    "unshare", "nsenter", "chroot", "insmod", "modprobe", "rmmod", "gdb", "strace", "ltrace", "crontab",
    "systemctl", "service", "iptables", "nft", "tcpdump", "nmap", "masscan", "xmrig",
}  # fmt: skip
_BEFORE = frozenset({"exec", "nohup", "then", "do", "else", "if", "while", "!", "{", "time"})
"""Words of a shell that stand before a program's name."""


def judge_calls(acts: Iterable[ObservedCall], usual: Counter[Finding], *, hosts: bool) -> list[Finding]:
    """Return the findings about observed calls.

    Args:
        acts: all observed calls of one run.
        usual: findings that the imported modules cause by themselves, with the most in one process.
        hosts: whether the skill was granted hosts; then attempts to use the network, which is absent, are allowed.
    """
    seen: Counter[tuple[int, Finding]] = Counter()
    for act in acts:
        if found := judge_call(act):
            seen[act.pid, found] += 1
    worst = {found for (_, found), times in seen.items() if times > usual[found]}
    return sorted((each for each in worst if not (hosts and each.code == NETWORK)), key=lambda each: each.operator)


def count_baseline(acts: Iterable[ObservedCall]) -> Counter[Finding]:
    """Count each finding in observed calls; the count is the highest of any process."""
    seen = Counter((act.pid, found) for act in acts if (found := judge_call(act)))
    usual: Counter[Finding] = Counter()
    for (_, found), times in seen.items():
        usual[found] = max(usual[found], times)
    return usual


def record_baseline(usual: Iterable[Counter[Finding]]) -> tuple[tuple[str, str, int], ...]:
    """Convert security findings of ``count_baseline`` for the evidence."""
    found = [(each, times) for seen in usual for each, times in seen.items() if each.kind is Kind.SECURITY]
    return tuple(sorted((each.code, each.operator, times) for each, times in found))


def load_baseline(kept: Iterable[Sequence[Any]]) -> Counter[Finding]:
    """Convert the output of ``record_baseline`` for ``judge_calls``."""
    return Counter({security(code, what): times for code, what, times in kept})


def judge_call(act: ObservedCall) -> Finding | None:
    """Return the finding about one observed call, or None."""
    if act.refused:
        return _judge_refused(act)
    match act.name:
        case "open" | "openat" | "creat":
            return _judge_open(act.texts[0], _flags(act)) if act.texts else None
        case "execve" | "execveat":
            return _judge_exec(act.texts)
        case "connect":
            return _jailbreak("suites.denied-secret", f"it speaks to {_address(act)}") if _reaches_out(act) else None
        case "kill":
            return _jailbreak("suites.denied-signal", "it signals what it did not start") if _signals(act) else None
        case "descriptors":
            return functional(
                "suites.limit",
                f"it has {act.arguments[0]} files open at once, of {act.arguments[1]}; close each after use",
            )
        case "sched_setscheduler":
            told = _jailbreak("suites.denied-kernel", "it asks to run before everybody else")
            return told if act.arguments[1] & 0xFFFF in _REAL_TIME else None
        case "setxattr" | "lsetxattr" | "fsetxattr":
            text = act.texts[0] if act.texts else ""
            return _jailbreak("suites.denied-set-id", f"it sets {text}") if _ATTRIBUTES.match(text) else None
        case _:
            return _judge_change(act.name, act.texts)


def _jailbreak(code: str, what: str) -> Finding:
    return security(code, f"Sandbox Jailbreak: {what}")


def _judge_refused(act: ObservedCall) -> Finding | None:
    known = _calls().get(act.call)
    if known is None:
        return None
    kind, name, why = known
    if kind == "device" and act.arguments[1 if name == "mknod" else 2] & _KIND not in _DEVICES:
        return None
    first = act.arguments[0] & 0xFFFFFFFF
    if kind == "network":
        return None if first == _UNIX else _jailbreak(NETWORK, f"{why}: {name} of family {first}")
    return _jailbreak(f"suites.denied-{kind}", f"{why}: {name}")


def _judge_open(path: str, flags: int) -> Finding | None:
    if _HOME.match(path) and is_misplaced(path) and _reads_nothing(flags):
        return functional("suites.denied-write", f"Sandbox Jailbreak: it writes to {path[:120]}; {ONLY_DATA}")
    if hit := _SECRETS.search(path):
        return _jailbreak("suites.denied-secret", f"it opens {path[: hit.end() + 80]}")
    if _KERNEL.search(path):
        return _jailbreak("suites.denied-kernel", f"it opens {path[:120]}")
    if path in _LISTED and flags & _FOLDER and not flags & _PATH_ONLY:
        return _jailbreak("suites.denied-secret", f"it looks what there is in {path}")
    if flags & _WRITES and _PERSISTS.search(path):
        return _jailbreak("suites.denied-persist", f"it would write to {path[:120]}")
    return None


def _reads_nothing(flags: int) -> bool:
    """Return whether a file is opened write-only, or truncated."""
    return flags & _ACCESS == _WRITE_ONLY or bool(flags & _TRUNCATES)


def _judge_change(call: str, words: tuple[str, ...]) -> Finding | None:
    """Judge calls that create links or change names and owners of files."""
    if call.startswith("link") and words and not _OWN.match(words[0]):
        return _jailbreak("suites.denied-secret", f"it makes a second name of {words[0][:120]}")
    if call.startswith("symlink") and _ELSEWHERE.match(words[-1] if words else ""):
        return _jailbreak("suites.denied-secret", f"it makes a link to {words[-1][:120]}")
    for path in words[:1] if call.startswith("symlink") else words:
        if _PERSISTS.search(path):
            return _jailbreak("suites.denied-persist", f"it would change {path[:120]}: {call}")
    return None


def _flags(act: ObservedCall) -> int:
    return _CREATES if act.name == "creat" else act.arguments[1 if act.name == "open" else 2]


def _judge_exec(words: tuple[str, ...]) -> Finding | None:
    if len(words) < 2:
        return None
    program = Path(words[0]).name
    if _OWN.match(words[0]):
        return _jailbreak("suites.denied-program", f"it runs what it wrote: {words[0][:120]}")
    if any(each.startswith(("LD_PRELOAD=", "LD_AUDIT=")) for each in words):
        return _jailbreak("suites.denied-program", f"it has {program} load what it chose")
    first = next((each for each in words[2:] if not each.startswith("-")), "")
    if _INTERPRETERS.match(program) and _OWN.match(first):
        return functional("suites.runs-written", f"it runs what it wrote: {first[:120]}; programs are in scripts/")
    if _READERS.match(program) and not {"-c", "-m"} & set(words[2:]):
        if not first or first.startswith("LD_"):
            said = f"it hands {program} a program on its standard input; programs are in scripts/"
            return functional("suites.runs-written", said)
        if _UNREAD.search(first):
            return _jailbreak("suites.denied-program", f"it runs a file that is not a program: {first[:120]}")
    if program in _PROGRAMS:
        code = NETWORK if program in _NETWORKED else "suites.denied-program"
        return _jailbreak(code, f"it starts {program}")
    command = [each for each in words[3:] if each != "--"][:1] if words[2:3] == ("-c",) else []
    if command and _SHELL.match(program) and (named := _find_program(command[0])):
        code = NETWORK if named in _NETWORKED else "suites.denied-program"
        return _jailbreak(code, f"it has a shell start {named}")
    if (program in {"pip", "pip3", "uv"} or words[2:4] == ("-m", "pip")) and "install" in words[2:]:
        return functional("suites.installs", "it installs packages; name them in needs-packages, and the gate does")
    return None


def _find_program(text: str) -> str:
    """Return the first of the programs above that a command for a shell starts; absent ones are never executed."""
    if "/dev/tcp/" in text or "/dev/udp/" in text:
        return "nc"
    lexer = shlex.shlex(text.replace("\n", ";"), posix=True, punctuation_chars=True)
    begins = True
    try:
        for word in lexer:
            if begins and Path(word).name in _PROGRAMS:
                return Path(word).name
            begins = set(word) <= set(";&|()") or (begins and (word in _BEFORE or "=" in word))
    except ValueError:  # unbalanced quotes, which the shell refuses itself
        return ""
    return ""


def _address(act: ObservedCall) -> str:
    """Return the name of a unix socket; an abstract one begins with ``@``."""
    text = act.texts[0] if act.texts else ""
    return "@" + text[1:].rstrip("\0") if text.startswith("\0") else text.partition("\0")[0]


def _reaches_out(act: ObservedCall) -> bool:
    return _CONTROL.search(_address(act)) is not None


def find_connection(act: ObservedCall) -> tuple[str, int] | None:
    """Return the address and port of another host that a call connects to; port 53 of the loopback resolves names.

    None for any other call, and for connections to the loopback interface.
    """
    if act.name != "connect" or act.refused or len(act.texts) != _INTERNET_TEXTS:
        return None
    _, host, port = act.texts
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    local = (mapped or address).is_loopback or (mapped or address).is_unspecified
    return None if local and int(port) != DNS_PORT else (host, int(port))


def find_server(act: ObservedCall) -> tuple[str, int] | None:
    """Return the internet address and port that a call binds a socket to; None for any other call."""
    if act.name != "bind" or act.refused or len(act.texts) != _INTERNET_TEXTS:
        return None
    return act.texts[1], int(act.texts[2])


def _signals(act: ObservedCall) -> bool:
    """Return whether a signal goes to every process, or one other than 0 to the first process."""
    target = act.arguments[0] & 0xFFFFFFFF
    return target == 0xFFFFFFFF or (target == 1 and bool(act.arguments[1] & 0xFFFFFFFF))


def _notable(act: ObservedCall) -> bool:
    return judge_call(act) is not None


def _notable_of_script(act: ObservedCall) -> bool:
    return judge_call(act) is not None or find_connection(act) is not None or find_server(act) is not None


@functools.cache
def _calls() -> dict[int, tuple[str, str, str]]:
    """Return the kind, name and reason of each notable refused call, by its number on this machine."""
    table = tomllib.loads(Path(__file__).with_name("calls.toml").read_text("utf-8"))
    column = _MACHINES.index(platform.machine()) if platform.machine() in _MACHINES else 0
    return {
        numbers[column]: (kind, name, entry["why"])
        for kind, entry in table.items()
        for name, numbers in entry["calls"].items()
    }


WATCH = WatchSpec(frozenset(NUMBERS["x86_64"]), _notable)
"""The calls to observe while a skill is checked."""
REFUSED_CALLS = WatchSpec(frozenset(), _notable, linger_s=None)
"""The calls to observe in normal use: refused calls alone. Allowed calls are not traced, and cost nothing."""
SCRIPT_CALLS = WatchSpec(frozenset({"connect", "bind"}), _notable_of_script, linger_s=None)
"""The same for scripts, with connections to other hosts, which their sandbox has no route to, and with servers."""

"""The table of well-known secrets, which a model reads only after a person's approval.

It is used on both sides: imported here, and sent to a target together with the programs that walk its folders.
"""

import fnmatch
import os
import re
from collections import deque
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, Iterable, Iterator, List, Set, Tuple

# A pattern is one or several components anywhere in a path, and includes everything below. A leading slash anchors it
# at the root; a trailing dollar sign excludes everything below. Wildcards do not match a slash.
STATE = "the state of agents, with other conversations"
SECRETS = (
    ("keys and certificates", (
        ".ssh", ".gnupg", ".pki", ".putty", ".step", ".config/sops", ".config/age", ".minisign", ".signify", "id_rsa",
        "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "*.ppk", "*.p12", "*.pfx", "*.jks",
        "*.key$", "*.keystore", "*.keytab", "*-key.pem", "*_key.pem", "privkey*.pem", "private*.pem", "krb5cc_*",
        "/etc/ssh/ssh_host_*_key", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/wireguard",
        "/etc/openvpn", "/etc/munge/munge.key", "/etc/ipsec.secrets", "/var/lib/tor",
    )),
    ("cloud credentials", (
        ".aws", ".azure", ".config/gcloud", ".config/doctl", ".config/hcloud", ".config/linode-cli", ".config/scw",
        ".config/openstack", ".config/rclone", ".config/heroku", ".config/ngrok", ".config/daytona", ".oci", ".fly",
        ".kube", ".boto", ".s3cfg", ".passwd-s3fs", ".vault-token", ".terraformrc", "credentials.tfrc.json",
        ".databrickscfg", ".cloudflared", ".wrangler", ".modal.toml", ".kaggle", ".huggingface", ".snowflake",
        ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".config/wandb", ".config/replicate",
        "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/cloud", "/run/secrets", "/var/run/secrets", "/etc/boto.cfg",
    )),
    ("credentials of registries and repositories", (
        ".docker/config.json", "containers/auth.json", ".dockercfg", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc",
        ".pip", ".config/pip", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bundle/config",
        ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".nuget/NuGet",
        ".composer/auth.json", ".config/composer/auth.json", ".git-credentials", ".config/git/credentials",
        ".config/gh", ".config/hub", ".config/glab-cli", ".netrc", "_netrc", ".authinfo", ".authinfo.gpg", ".condarc",
        ".singularity/docker-config.json", ".apptainer/docker-config.json", ".singularity/remote.yaml",
        ".apptainer/remote.yaml", "/etc/pip.conf",
    )),
    ("passwords of databases and mail", (
        ".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".mongoshrc.js", ".cassandra", ".msmtprc", ".fetchmailrc",
        ".mutt", ".muttrc", ".config/msmtp", ".smbcredentials", "/etc/ppp/*-secrets", "/etc/postfix/sasl_passwd",
        "/etc/mysql/debian.cnf", "/etc/NetworkManager/system-connections", "/etc/wpa_supplicant",
    )),
    ("browsers and mail programs", (
        ".mozilla", ".thunderbird", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware",
        ".config/microsoft-edge*", ".config/vivaldi*", ".config/opera*", ".config/Signal", ".config/Slack",
        ".config/discord", ".config/evolution", ".cache/mozilla", ".cache/google-chrome*", ".cache/chromium",
        "snap/firefox", "snap/chromium", ".var/app/org.mozilla.*", ".var/app/com.google.Chrome",
        ".var/app/org.chromium.*", ".var/app/com.brave.*", ".w3m", ".elinks",
    )),
    ("password stores", (
        ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet", "*.kdbx",
        "*.kdb", ".config/Bitwarden*", ".config/1Password", ".config/op", ".config/keepassxc", ".config/LastPass",
        ".lastpass", ".local/share/pass", ".local/share/gopass", ".config/gopass", ".electrum", ".bitcoin",
        "wallet.dat",
    )),
    ("shell histories", (
        ".bash_history", ".zsh_history", ".zhistory", ".zsh_sessions", ".sh_history", ".ash_history", ".ksh_history",
        ".history", ".python_history", ".ipython/profile_*/history.sqlite", ".node_repl_history",
        ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".dbshell", ".irb_history",
        ".lesshst", ".viminfo", "fish_history", ".local/state/bash", ".local/share/xonsh",
    )),
    ("settings with secrets", (".env$", ".env.*$", ".envrc$", ".flaskenv$", ".htpasswd$", "*.tfstate$", "*.tfvars$")),
    (STATE, (
        ".local/state/hermes_exec", ".config/hermes_exec", ".hermes", "hermes-agent.????????", ".claude.json",
        ".claude/.credentials.json", ".claude/projects", ".claude/history.jsonl", ".codex/auth.json", ".codex/sessions",
        ".codex/history.jsonl", ".gemini/oauth_creds.json", ".config/github-copilot", ".config/anthropic", ".aider*",
        ".local/share/opencode",
    )),
    ("accounts of the system", (
        "/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/security/opasswd", "/var/lib/sss",
        "/var/spool/cron", "/var/mail", "/var/spool/mail", "/var/log/auth.log*", "/var/log/secure*", "/etc/krb5.keytab",
    )),
    ("the memory and variables of processes", (
        "/proc/*/environ", "/proc/*/mem", "/proc/*/auxv", "/proc/*/task/*/environ", "/proc/*/task/*/mem", "/proc/kcore",
        "/proc/keys", "/proc/sysrq-trigger", "/proc/vmcore", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/sd*",
        "/dev/vd*", "/dev/xvd*", "/dev/nvme*", "/dev/dm-*", "/dev/mapper", "/dev/md*", "/dev/loop*", "/dev/input",
        "/dev/tty*", "/dev/pts", "/dev/console", "/sys/kernel/security", "/sys/kernel/debug", "/sys/kernel/tracing",
    )),
    ("sockets of engines and agents", (
        "docker.sock", "podman.sock", "containerd.sock", "containerd.sock.ttrpc", "crio.sock", "buildkitd.sock",
        "libvirt-sock*", "S.gpg-agent*", "/run/user/*/bus", "/run/user/*/keyring",
    )),
)  # fmt: skip
_HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", ".env.test.example")
_COUNTED = 20000
"""The most names that are checked to find the other names (hard links) of a file."""


def _index_patterns() -> "Dict[str, List[Tuple[Tuple[str, ...], str, str]]]":
    """Return the patterns by their first components; those that begin with a wildcard have the key ``""``."""
    table: "Dict[str, List[Tuple[Tuple[str, ...], str, str]]]" = {}
    for kind, patterns in SECRETS:
        for pattern in patterns:
            parts = tuple(pattern.strip("/$").lower().split("/"))
            bounds = "/" * pattern.startswith("/") + "$" * pattern.endswith("$")
            table.setdefault("" if _WILD.search(parts[0]) else parts[0], []).append((parts, bounds, kind))
    return table


_WILD = re.compile(r"[*?]")
_TABLE = _index_patterns()
_PARENTS = {parts[:size] for entries in _TABLE.values() for parts, _, _ in entries for size in range(1, len(parts))}
"""The first components of the patterns that have several."""
_BEGIN_WILD = re.compile("|".join("(?:%s)" % fnmatch.translate(parts[0]) for parts, _, _ in _TABLE[""]))


def secret_of(path: "str", more: "Iterable[str]" = ()) -> "str":
    """Return the kind of secret at an absolute path; empty for none. ``more`` are folders of our own state."""
    for folder in more:
        if is_below(path, folder):
            return STATE
    words = path.lower().split("/")[1:]
    if words and words[-1] in _HARMLESS:
        return ""
    for at, word in enumerate(words):
        candidates = _TABLE.get(word, [])
        if _BEGIN_WILD.match(word):
            candidates = candidates + _TABLE[""]
        for parts, bounds, kind in candidates:
            end = at + len(parts)
            if (at and "/" in bounds) or end > len(words) or ("$" in bounds and end < len(words)):
                continue
            if all(map(fnmatch.fnmatchcase, words[at:end], parts)):
                return kind
    return ""


def is_below(path: "str", folder: "str") -> "bool":
    """Return whether ``path`` is the folder or in it; both are absolute and without links."""
    return folder in ("/", path) or path.startswith(folder + "/")


def find_linked_secrets(homes: "Iterable[str]", more: "Iterable[str]" = ()) -> "Set[Tuple[int, int]]":
    """Find the secret files below home folders that have more than one name, within the bounds of the walk."""
    kept = tuple(more)
    found: "Set[Tuple[int, int]]" = set()
    for path, entry in islice(_walk([*homes, *kept], kept, 0), _COUNTED):
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if info.st_nlink > 1 and entry.is_file(follow_symlinks=False) and secret_of(path, kept):
            found.add((info.st_dev, info.st_ino))
    return found


def secret_below(folder: "str", more: "Iterable[str]" = ()) -> "str":
    """Return the folder or a path at most three levels below it that is a secret; empty if none is found."""
    kept = tuple(more)
    if secret_of(folder, kept):
        return folder
    for path, _ in islice(_walk([folder], (), 2), _COUNTED):
        if secret_of(path, kept):
            return path
    return next((each for each in kept if is_below(each, folder)), "")


def _walk(roots: "Iterable[str]", more: "Tuple[str, ...]", levels: "int") -> "Iterator[Tuple[str, Any]]":
    """Yield paths below folders, breadth first: all folders down to ``levels``, then secrets and their parents."""
    todo: "Deque[Tuple[str, Tuple[str, ...]]]" = deque((root, ()) for root in roots)
    while todo:
        folder, words = todo.popleft()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            path = os.path.join(folder, entry.name)
            yield path, entry
            below = (*words, entry.name.lower())
            if not entry.is_dir(follow_symlinks=False):
                continue
            if len(below) <= levels or below in _PARENTS or secret_of(path, more):
                todo.append((path, below))


def homes_of(home: "str") -> "List[str]":
    """Return the home folders that can be listed."""
    homes = [home, "/root"]
    try:
        homes += [os.path.join("/home", name) for name in sorted(os.listdir("/home"))]
    except OSError:
        pass
    return list(dict.fromkeys(each for each in homes if each.startswith("/")))

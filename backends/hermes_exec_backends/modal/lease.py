"""The first process of a sandbox: it ends when the lease has expired, and the sandbox with it.

No process in the sandbox can see that an orchestrator vanished, because a worker keeps the input of an exec open. The
orchestrator therefore writes the end of the lease to a file again and again, and this process reads it. After the end,
a guest that still has jobs holds the sandbox, up to the longest time that a job may take.
"""

from __future__ import annotations

from hermes_exec_backends._shared.lease import HAS_GUEST, script_arguments

FILE = "/tmp/.hermes-exec-lease"  # noqa: S108  in a sandbox that is ours alone
_SHELL = (
    HAS_GUEST
    + r"""
file=$1 lease=$2 jobs=$3
busy() { for each in /var/tmp/hx-*/job-* /tmp/hx-*/job-*; do [ -d "$each" ] && has_guest && return; done; return 1; }
umask 077
echo $(($(date +%s) + lease)) >"$file"
while :; do
  end=; read -r end <"$file"
  left=$((${end:-0} - $(date +%s)))
  if [ $left -le 0 ]; then
    { [ $((left + jobs)) -gt 0 ] && busy; } || exit 0
    left=1
  fi
  [ $left -gt 5 ] && left=5
  sleep $left
done
"""
)
_WRITE = 'umask 077; echo $(($(date +%s) + $1)) >"$0.new" && mv "$0.new" "$0"'
_LOOK = (
    HAS_GUEST
    + r"""
read -r end <"$0" || exit 0
for each in /var/tmp/hx-*/job-* /tmp/hx-*/job-*; do [ -d "$each" ] && has_guest && exit 0; done
echo $((end - $(date +%s)))
"""
)


def entrypoint(lease_s: float, jobs_s: float) -> list[str]:
    """Return the argv of the first process."""
    return ["sh", "-c", _SHELL, "hermes-exec", FILE, *script_arguments(lease_s, jobs_s)]


def renewal(lease_s: float) -> list[str]:
    """Return the argv that renews the lease for ``lease_s`` from now; 0 ends it."""
    return ["sh", "-c", _WRITE, FILE, str(round(lease_s))]


def look() -> list[str]:
    """Return the argv that prints the remaining seconds of the lease, or nothing if there is a job."""
    return ["sh", "-c", _LOOK, FILE]

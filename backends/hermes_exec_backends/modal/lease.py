"""The first process of a sandbox of ours: it ends, and with it the sandbox, when nobody needs the sandbox any more.

Nothing in there can see that an orchestrator vanished, because a worker keeps an exec's input open. So the orchestrator
writes down again and again until when the sandbox is wanted, and this process reads it. After that moment a guest that
still has jobs holds the sandbox, up to the longest that a job may take.
"""

from __future__ import annotations

from hermes_exec_backends._shared.occupancy import HAS_GUEST

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
    """What to start a sandbox with."""
    return ["sh", "-c", _SHELL, "hermes-exec", FILE, str(max(1, round(lease_s))), str(max(1, round(jobs_s)))]


def renewal(lease_s: float) -> list[str]:
    """What to run in there, so that it is wanted for that long from now; not at all any more with 0."""
    return ["sh", "-c", _WRITE, FILE, str(round(lease_s))]


def look() -> list[str]:
    """What to run in there to learn how many seconds it is still wanted; it says nothing if there is a job."""
    return ["sh", "-c", _LOOK, FILE]

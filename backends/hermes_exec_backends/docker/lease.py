"""The first process of a container: it ends when the lease has expired, and the container with it.

When the orchestrator has vanished, its signals stay out, the lease expires, this process ends, and the engine removes
the container. A guest that still has a job holds the container for as long as the guest runs, up to the longest time
that a job may take.

Signals: USR1 renews the lease, USR2 keeps the container without one, HUP ends the lease now, TERM ends all.
Time is read from /proc/uptime, which includes the sleep of the machine; after a sleep or a pause the
orchestrator has a moment to renew the lease.
"""

from __future__ import annotations

from hermes_exec_backends._shared.lease import HAS_GUEST, script_arguments

SHELL = (
    HAS_GUEST
    + r"""
now() { read -r now rest </proc/uptime; now=${now%%.*}; }
renew() { now; end=$((now + lease)); last=$((end + jobs)); }
lease=$1 jobs=$2 grace=$3 nap=
trap 'renew; kill $nap 2>/dev/null' USR1
trap 'end=9000000000; kill $nap 2>/dev/null' USR2
trap 'now; end=$now; last=$((now + jobs)); kill $nap 2>/dev/null' HUP
trap 'exit 64' TERM INT
renew
while :; do
  now
  before=$now seen=$end left=$((end - now))
  if [ $left -le 0 ]; then
    { [ $now -lt $last ] && has_guest; } || exit 0
    left=2
  fi
  [ $left -gt 30 ] && left=30
  sleep $left & nap=$!
  [ $end = $seen ] && wait $nap 2>/dev/null
  now
  [ $((now - before - left)) -gt 5 ] && [ $((end - now)) -lt $grace ] && end=$((now + grace))
done
"""
)
"""For images with a ``sh`` and a ``sleep``."""

PYTHON = r"""
import glob, os, signal, sys
lease, jobs, grace = map(int, sys.argv[1:4])
NEVER = 9000000000
def now():
    with open("/proc/uptime") as file:
        return int(float(file.read().split()[0]))
def has_guest():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if b"'<" b"hx " in file.read():
                    return True
        except OSError:
            pass
    return False
signals = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
end = now() + lease
last = end + jobs
while True:
    before = now()
    left = end - before
    if left <= 0:
        if before >= last or not has_guest():
            sys.exit(0)
        left = 2
    left = min(left, 30)
    got = signal.sigtimedwait(signals, left)
    number = got.si_signo if got else 0
    if number == signal.SIGUSR1:
        end = now() + lease
        last = end + jobs
    elif number == signal.SIGUSR2:
        end = NEVER
    elif number == signal.SIGHUP:
        end = now()
        last = end + jobs
    elif number in (signal.SIGTERM, signal.SIGINT):
        sys.exit(64)
    elif number == signal.SIGCHLD:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except OSError:
            pass
    if now() - before - left > 5 and end - now() < grace:
        end = now() + grace
"""
"""For images with a Python and no shell."""

GRACE_S = 60
"""Seconds that an orchestrator has, after a sleep of the machine, to renew the lease."""
KEPT = 64
"""The exit code of a container that was stopped for reuse."""
RENEW, KEEP, FINISH = "SIGUSR1", "SIGUSR2", "SIGHUP"


def commands(lease_s: float, jobs_s: float) -> list[list[str]]:
    """Return the argvs for the first process, best first; the image decides which of them starts."""
    numbers = script_arguments(lease_s, jobs_s, GRACE_S)
    return [
        ["sh", "-c", SHELL, "hermes-exec", *numbers],
        ["python3", "-ISc", PYTHON, *numbers],
    ]

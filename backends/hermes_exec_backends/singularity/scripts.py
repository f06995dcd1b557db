"""The ``sh`` scripts that run outside a container, in the outer target: one holds it, the others release it.

The holder creates a directory for the container's /tmp and home, starts an instance, reports it, and waits. When the
orchestrator is gone it stays while a guest runs in the container (which has its own lease and jobs), and for the lease
in any case; then it ends the instance and removes the directory. A guest is identified by its arguments, and belongs to
this container when that directory is among its mounts.
"""

from __future__ import annotations

_COMMON = r"""
name=$1 program=$2; shift 2
work=${TMPDIR:-/tmp}/$name
outside=$HOME  # HOME itself stays: the runtime finds its instances by it
[ -n "$outside" ] && [ -d "$outside" ] || outside=/
guests() {
    for file in $(grep -las '<[h]x ' /proc/[0-9]*/cmdline); do
        grep -qs "/$name/" "${file%cmdline}mountinfo" && return
    done
    return 1
}
first() { "$program" -s instance list -j "$name" 2>/dev/null | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p'; }
finish() {
    pid=$(first) && [ -n "$pid" ] && kill -9 "$pid"
    turns=100
    until rm -rf "$work" && [ ! -e "/proc/${pid:-none}" ] || [ $((turns -= 1)) = 0 ]; do sleep 0.02; done
}
"""

HOLD = (
    _COMMON
    + r"""
lease=$1 warm=$2 userns=$3 home=$4 image=$5; shift 5
trap '' HUP
cd / || exit
# The runtime starts a container without a word, or with other libraries, where there is no driver.
driver() {
    for file in $2; do [ -e "$file" ] && return; done
    echo "$1: no driver of such GPUs is loaded" >&2
    exit 1
}
for option; do
    case $option in
    --nv) driver nv "/proc/driver/nvidia/version /dev/nvidiactl /dev/dxg /dev/nvmap" ;;
    --rocm) driver rocm "/dev/kfd /dev/dxg" ;;
    esac
done
umask 077
mkdir "$work" || exit
mkdir "$work/work" "$work/home" "$work/run" "$work/actions" || exit
# An unpacked tree that was never built has no start action, which is all that an instance lacks there.
printf '#!/bin/sh\nwhile :; do sleep 86400; done\n' >"$work/actions/start"
chmod 755 "$work/actions/start"
flags=
privileged() {
    [ "$(id -u)" = 0 ] || return 0
    while read -r key value; do [ "$key" = CapEff: ] && mine=$((0x$value)); done </proc/self/status
    read -r last </proc/sys/kernel/cap_last_cap
    [ "$mine" = $(((1 << (last + 1)) - 1)) ]
}
[ "$userns" = auto ] && { privileged || userns=yes; }
[ "$userns" = yes ] && flags=--userns
case $home$outside in
private/) set -- "$@" --no-home ;;
private*) set -- "$@" --home "$work/home:$outside" ;;
shared/?*) set -- "$@" --home "$outside" ;;
esac
if [ "$warm" = yes ]; then
    if [ -d "$image" ] && [ ! -e "$image/.singularity.d/actions/start" ]; then
        set -- "$@" --bind "$work/actions:/.singularity.d/actions"
    fi
    start() { "$program" -s instance start $flags --workdir "$work/work" "$@" "$image" "$name"; }
else
    start() { "$program" -s exec $flags --workdir "$work/work" "$@" "$image" /bin/sh -c :; }
fi
if ! start "$@" </dev/null >"$work/said" 2>&1; then
    if [ "$userns" = auto ]; then
        flags=--userns
        start "$@" </dev/null >"$work/said" 2>&1
    else
        false
    fi
fi || { cat "$work/said" >&2; finish; exit 1; }
echo "hx ready $(id -u) $work $outside $flags"
[ "$(cat)" = end ] && lease=0
gone=$(date +%s)
while [ -d "$work" ]; do
    guests || [ $(($(date +%s) - gone)) -lt "$lease" ] || break
    sleep 1
    [ -e "$work/left" ] && lease=0
done
finish
"""
)
"""Parameters: name, program, lease in seconds, yes or no to an instance, auto or yes or no to a user namespace,
private or shared or empty for the home folder, the image, and the options to start it with. With ``end`` as its
input it ends what it has started at once."""

KEEP_GPUS = r"""
for name in CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES; do
    eval "given=\${$name-} known=\${$0$name-}"
    [ -z "$given" ] || [ -n "$known" ] || export "$0$name=$given"
done
exec "$@"
"""
"""GPUs that a scheduler assigned outside must be visible inside: the others may belong to other users.

Parameters: the program and its arguments. ``$0`` is the prefix of variables for the container.
"""

FIND = (
    _COMMON
    + r"""
if [ -n "$(first)" ]; then echo "hx instance"
elif [ -d "$work/run" ]; then echo "hx folder $(id -u) $work $outside"
fi
"""
)
"""Parameters: name and program. Prints the existing parts of a container in a line that begins with ``hx``."""

END = _COMMON + "finish\n"
"""Parameters: name and program."""

ENTRUST = _COMMON + 'touch "$work/left"\n'
"""Parameters: name and program. From now on the container ends with its last guest, even before the lease."""

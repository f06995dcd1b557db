"""The shell scripts that are run on the target. Any POSIX ``sh`` runs them, with or without busybox.

Each script is a constant: variable parts are positional parameters (or, staged, quoted words of a ``set`` command), so
no data of the caller is ever evaluated by them. A script that goes on to run the caller's command uses no variables
either: they would overwrite the command's own environment.
"""

from __future__ import annotations

# How a command starts. $1 is a random word, $2 the folder or nothing, the rest is the program.
#
# The report goes to standard error *before* the program exists: the line with the random word ends our own
# part of that stream, and every byte after it is the command's and is passed on unread. So
# the exit status stays the command's alone, and "no folder" needs no number of its own.
ENTER = """[ -z "$2" ] || cd "$2" >/dev/null 2>&1 || { echo "$1 cwd" >&2; exit 1; }
"""
FIND = """command -v -- "$3" >/dev/null 2>&1 || [ -e "$3" ] || { echo "$1 program" >&2; exit 127; }
"""
TELL = """echo "$1 $$ $(read -r s </proc/$$/stat && echo "$s")" >&2
"""
START = ENTER + FIND + TELL + 'shift 2; exec "$@"'
START_MERGED = START + " 2>&1"

SOURCE = '. "$1"'
"""Runs a staged script, whose first line removes it."""

# A command leads a session, so that its background processes can still be told from the rest.
# setsid would fork, and so lose the exit status, if the process already leads a group: hence the check.
LEAD = """case $(read -r s </proc/$$/stat; set -- ${s##*) }; echo "$3") in
$$) exec "$@" ;;
*) exec setsid "$@" ;;
esac"""

PROBE = """echo "$1"
echo "stat=$(read -r s </proc/$$/stat && echo "$s")"
echo "sh=$(command -v sh)"
echo "bash=$(command -v bash)"
echo "setsid=$(command -v setsid)"
for d in "$TMPDIR" /tmp /var/tmp /dev/shm; do
    [ -d "$d" ] && [ -w "$d" ] && { echo "folder=$d"; break; }
done
exit 0"""

# Signals ($1) a tree and prints it: the given processes (PID:START), their descendants, and all members of
# a session or process group that one leads or led. A pid that belongs to another process by now is left
# out: a kernel reuses a number only when no session and no group uses it. Each pid comes from
# the name of its folder, and the fields from after the last parenthesis, because a program chooses the
# rest. KILL repeats until no process is left. 0 only lists.
SIGNAL_TREE = r"""signal=$1; shift; known=" $* "; round=0
look() {
    table=
    for folder in /proc/[0-9]*; do
        line=
        while IFS= read -r part || [ -n "$part" ]; do
            line="$line$part "
        done 2>/dev/null <"$folder/stat" || continue
        set -- ${line##*) }
        [ $# -ge 20 ] && table="$table ${folder#/proc/}:${20}:$2:$3:$4:$1"
    done
    table="$table "
}
select_tree() {
    ids=" "
    for process in $known; do
        case $table in
            *" $process:"*) ids="$ids${process%%:*} " ;;
            *" ${process%%:*}:"*) ;;
            *) ids="$ids${process%%:*} " ;;
        esac
    done
    tree= more=1
    while [ -n "$more" ]; do
        more=
        for row in $table; do
            IFS=:; set -- $row; unset IFS
            case " $tree" in *" $1:"*) continue ;; esac
            case $ids in
                *" $1 "*) ;;
                *" $3 "* | *" $4 "* | *" $5 "*) ids="$ids$1 "; more=1 ;;
                *) continue ;;
            esac
            [ "$1" = $$ ] || tree="$tree$1:$2:$6 "
        done
    done
    alive=
    for row in $tree; do
        case $row in *:[ZX]) ;; *) alive="$alive${row%:*} " ;; esac
    done
}
while look; select_tree; [ -n "$alive" ]; do
    for process in $alive; do
        kill -$signal "${process%%:*}"
        [ $signal != TERM ] || kill -CONT "${process%%:*}"
    done 2>/dev/null
    [ $signal = KILL ] && [ $round -lt 60 ] || break
    known="$known$alive"
    if sleep 0.05 2>/dev/null; then round=$((round + 1)); else sleep 1; round=$((round + 20)); fi
done
echo $alive"""

# These exit with 100 + errno for the errors that can be detected beforehand; no program of the
# caller's runs in them.
READ = """[ ! -d "$1" ] || exit 121
[ -e "$1" ] || exit 102
[ -r "$1" ] || exit 113
exec cat <"$1\""""

# $1 the file, $2 a temporary file next to it, $3 the expected number of bytes, $4 a umask or nothing.
STORE = """[ ! -d "$1" ] || exit 121
folder=${1%/*}/
[ -d "$folder" ] || exit 102
[ -w "$folder" ] || exit 113
[ -z "$4" ] || umask "$4"
set -C
if cat >"$2" && [ "$(($(wc -c <"$2")))" -eq "$3" ]; then
    mode=$(stat -Lc %a "$1" 2>/dev/null) && chmod "$mode" "$2"
    mv -f "$2" "$1" && exit 0
fi
rm -f "$2"
exit 1"""

REMOVE = 'rm -f "$1"'


def quote(word: bytes) -> bytes:
    """Quote a word so that every POSIX shell reads back the same bytes."""
    return b"'" + word.replace(b"'", b"'\\''") + b"'"

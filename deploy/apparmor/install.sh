#!/bin/sh
# Install and load the AppArmor profiles of hermes_exec: those of its policies, and that of the agent's container.
# It says what it does, may be run again at any time, and changes nothing but files called hermes-* in one folder.
set -eu

usage='usage: install.sh [--check | --remove]
  (nothing)  write the profiles to /etc/apparmor.d and load them; needs root
  --check    compile every profile and change nothing; needs no root
  --remove   unload the profiles and delete their files; needs root'
policies='skill-validate skill-run skill-script workspace shared-workspace hpc'
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
target=${HERMES_APPARMOR_FOLDER:-/etc/apparmor.d}
program=${HERMES_EXEC:-hermes-exec}

fail() {
    echo "install.sh: $1" >&2
    exit "${2:-1}"
}

# Every profile as text: `written NAME` for those of policies and for that of the container.
written() {
    case $1 in
        hermes-agent-core)
            # A rule for user namespaces is known to AppArmor 4 alone; older kernels do not ask.
            if printf 'abi <abi/4.0>,\nprofile p { userns, }\n' | apparmor_parser -Q -K >/dev/null 2>&1; then
                sed 's|<abi/3.0>|<abi/4.0>|' "$here/hermes-agent-core"
            else
                sed '/^  userns,$/d' "$here/hermes-agent-core"
            fi
            ;;
        *) "$program" policy render "${1#hermes-exec-}" --form apparmor ;;
    esac
}

names() {
    for policy in $policies; do echo "hermes-exec-$policy"; done
    echo hermes-agent-core
}

mode=${1:-install}
case $mode in
    install | --check | --remove) ;;
    *) fail "$usage" 2 ;;
esac
PATH=$PATH:/usr/sbin:/sbin
command -v apparmor_parser >/dev/null || fail 'no apparmor_parser here. Try: apt-get install apparmor'
command -v "$program" >/dev/null || fail "no $program on the PATH. Try: HERMES_EXEC=/path/to/hermes-exec $0"

if [ "$mode" = --check ]; then
    for name in $(names); do
        written "$name" | apparmor_parser -Q -K >/dev/null || fail "$name does not compile"
        echo "$name: compiles"
    done
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "only root can load profiles; nothing was changed. Try: sudo $0 $mode"
[ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] ||
    fail 'the kernel runs without AppArmor; nothing was changed. Try: boot with apparmor=1 security=apparmor'

for name in $(names); do
    file=$target/$name
    if [ "$mode" = --remove ]; then
        [ -e "$file" ] || continue
        apparmor_parser -R "$file"
        rm "$file"
        echo "$name: unloaded, and $file deleted"
        continue
    fi
    new=$(mktemp "$target/.hermes-XXXXXX")
    trap 'rm -f "$new"' EXIT
    written "$name" >"$new"
    chmod 0644 "$new"
    if cmp -s "$new" "$file"; then
        rm "$new"
        apparmor_parser -r "$file"
        echo "$name: unchanged, loaded"
    else
        apparmor_parser -r -K "$new"
        mv "$new" "$file"
        echo "$name: written to $file, loaded"
    fi
done

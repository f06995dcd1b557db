"""POSIX shell scripts that keep and restore files in a target, which needs no Python for it.

Contents are in a private folder of the target: ``blobs/`` by their SHA-256, and ``git/``, with a repository for each
work tree in which commands ran. Git never reads the configuration of a person or of their repository, which may name
programs to run, and never writes to their repository.
"""

LARGEST = 64 << 20
"""Bytes of a file that is kept."""
MOST = 1 << 30
"""Bytes of all contents that are kept."""
DAYS = 14
"""Days for which contents are kept."""
NO_WORK_TREE = 4
"""The exit code of `SNAPSHOT` outside of a git work tree."""
NO_GIT = 5
"""Its exit code without git."""

_KEPT = """
umask 077
LC_ALL=C
export LC_ALL
kept=${XDG_STATE_HOME:-${HOME:-/nonexistent}/.local/state}/hermes_exec/kept
"""

_CREATE = r"""
[ -f "$kept/.gitignore" ] || { mkdir -p -- "$kept/blobs" "$kept/git" && printf '*\n' > "$kept/.gitignore"; } || exit 6
"""

_GIT = """
configure() {  # each time, as a command of the agent may have changed it
    for each in "$store/config" "$store/HEAD" "$store/info/attributes" "$store/info/exclude"; do
        [ ! -L "$each" ] || rm -f -- "$each" || return
    done
    printf '* -text !eol !crlf !filter !ident !working-tree-encoding\\n' > "$store/info/attributes" &&
        printf 'ref: refs/heads/kept\\n' > "$store/HEAD" &&
        printf '%s\\n' '[core]' 'repositoryformatversion = 0' 'bare = false' 'filemode = true' 'symlinks = true' \\
            'autocrlf = false' 'ignorecase = false' 'precomposeunicode = false' 'protectHFS = false' \\
            'protectNTFS = false' 'excludesFile = /dev/null' 'attributesFile = /dev/null' 'looseCompression = 1' \\
            'fsync = none' '[gc]' 'auto = 0' > "$store/config"
}
g() {
    env -i PATH="$PATH" HOME=/nonexistent LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_SYSTEM=/dev/null \\
        GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 \\
        GIT_DIR="$store" GIT_COMMON_DIR="$store" GIT_WORK_TREE="$top" GIT_INDEX_FILE="$index" \\
        git -c core.hooksPath=/dev/null -c core.fsmonitor=false "$@"
}
"""

KEEP = (
    _KEPT
    + _CREATE
    + r"""
follow=$1 most=$2
shift 2
for path do
    if [ "$follow" = 1 ] && [ -L "$path" ]; then
        path=$(readlink -f -- "$path" && echo x) && path=${path%?x} || path=
    fi
    name=${path##*/} above=${path%/*}
    while [ -n "$above" ] && [ ! -d "$above" ]; do name=${above##*/}/$name above=${above%/*}; done
    real=
    [ -z "$path" ] || ! cd -P -- "${above:-/}" || real=$PWD path=${PWD%/}/$name
    kind=unkept digest= mode= owner= why=
    if [ -z "$real" ]; then
        why='its path leads nowhere'
    elif [ -L "$path" ]; then
        temporary=$kept/blobs/tmp.$$
        text=$(readlink -- "$path"; echo x)
        if printf %s "${text%?x}" > "$temporary" && digest=$(sha256sum < "$temporary") &&
            mv -f -- "$temporary" "$kept/blobs/${digest%% *}"; then kind=link; else why='it cannot be copied'; fi
    elif [ ! -e "$path" ] || [ -d "$path" ]; then
        kind=absent
    elif [ ! -f "$path" ]; then
        why='it is not a regular file'
    elif ! facts=$(stat -c '%a %u:%g %s' -- "$path"); then
        why='it cannot be read'
    elif mode=${facts%% *} size=${facts##* } owner=${facts#* } owner=${owner% *}; [ "$size" -gt "$most" ]; then
        why="it has more than $((most >> 20)) MiB"
    else
        temporary=$kept/blobs/tmp.$$
        if cp -- "$path" "$temporary" && digest=$(sha256sum < "$temporary") &&
            mv -f -- "$temporary" "$kept/blobs/${digest%% *}"; then
            kind=file
        else
            why='it cannot be copied'
            rm -f -- "$temporary"
        fi
    fi
    printf '%s\0' "$path" "$kind" "${digest:+sha256:}${digest%% *}" "$mode" "$owner" "${real:-/}" "$why"
done
printf '%s\0' "$kept/blobs"
"""
)
"""Arguments: 1 to follow links at the paths, the greatest size, and paths.

Prints seven fields for each path, and then the folder of contents.
"""

SNAPSHOT = (
    _KEPT
    + _GIT
    + r"""
folder=$1 id=$2 only=$3 before=$4 modes=$5
cd -P -- "$folder" && top=$PWD || exit 3
if [ -n "$only" ]; then
    top=$only
else
    while [ -n "$top" ] && [ ! -e "$top/.git" ]; do top=${top%/*}; done
    [ -n "$top" ] || exit 4
fi
command -v git > /dev/null || exit 5
"""
    + _CREATE
    + r"""
key=$(printf %s "$top" | sha256sum) && key=${key%% *} && store=$kept/git/$key index=$store/index.$id || exit 6
mkdir -p -- "$store/objects" "$store/refs" "$store/info" || exit 6
configure || exit 6
if [ -f "$top/.git/info/exclude" ] && [ ! -L "$top/.git/info/exclude" ]; then
    cat -- "$top/.git/info/exclude" > "$store/info/exclude"
fi
touch -- "$store"
rm -f -- "$index.lock"
[ -f "$index" ] || [ ! -f "$store/index" ] || cp -p -- "$store/index" "$index"
cd -- "$top" || exit 3
g ls-files -z -m -d | g update-index -z --remove --replace --stdin > /dev/null &&
    g ls-files -z -o --exclude-standard | g update-index -z --add --remove --replace --stdin > /dev/null || exit 7
tree=$(g write-tree) || exit 7
cp -p -- "$index" "$store/base.$id" && mv -f -- "$store/base.$id" "$store/index"
listed=$(g ls-files -z | xargs -0 sh -c '
    [ $# -gt 0 ] || exit 0
    if m=$(stat -c %a -- "$@" 2> /dev/null); then printf "%s\n" "$m"; else for i do echo -; done; fi
' sh | g hash-object -w --stdin) || exit 7
printf '%s\0' "$top" "$key" "$tree" "$listed"
[ -n "$before" ] || exit 0
g diff-tree -r -z --no-renames --name-only "$before" "$tree" | tr '\000\n' '\n\001' > "$store/want.$id" || exit 7
if [ -s "$store/want.$id" ]; then
    g ls-tree -r -z --name-only --full-tree "$before" | tr '\000\n' '\n\001' > "$store/names.$id" || exit 7
    g cat-file blob "$modes" | paste -d ' ' - "$store/names.$id" |
        awk 'NR == FNR { want[$0]; next } { name = $0; sub(/^[^ ]* /, "", name); if (name in want) print }' \
        "$store/want.$id" - || exit 7
fi
rm -f -- "$store/want.$id" "$store/names.$id"
printf '\0'
g diff-tree -r -z --raw --no-renames --no-abbrev "$before" "$tree" || exit 7
"""
)
"""Arguments: a folder, an id, and for the end of a turn the work tree, and the tree and the modes at its beginning.

Prints the work tree, its store, the tree and its modes; at the end of a turn also lines with a mode and a name (line
breaks in it as \\001), and the differences. Nested repositories appear as commits, without their files. No command here
starts hooks, filters or other programs: `git add` would look into nested repositories with their configuration.
"""

_LIST = r"""
list_files() { find "$top" -xdev -path "$kept" -prune -o \( -type f -o -type l \) "$@" -print0; }
list=$kept/lists/$id
"""

BEGIN_LIST = (
    _KEPT
    + r"""
folder=$1 id=$2
cd -P -- "$folder" && top=$PWD || exit 3
[ "$top" != / ] || exit 4
while read -r _ _ _ _ point _; do
    case $point in
    /) continue ;;
    *\\*) exit 5 ;;
    esac
    case $top/ in "$point"/*) exit 5 ;; esac
    case $point in "$top"/*) exit 5 ;; esac
done < /proc/self/mountinfo || exit 5
"""
    + _LIST
    + _CREATE
    + r"""
mkdir -p -- "$kept/lists" && list_files > "$list.begin" && : > "$list.time" || exit 7
find "$list.begin" -cnewer "$list.time" > /dev/null 2>&1 || exit 8
sleep 0.02 2> /dev/null || sleep 1
printf '%s\0' "$top"
"""
)
"""Arguments: a folder outside of a work tree, and an id. Lists its files, for `END_LIST`, and prints its physical path.

Exits with 4 for the root folder, with 5 if another file system is mounted at the folder, above or in it, and with 8
if `find` cannot compare times of changes.
"""

END_LIST = (
    _KEPT
    + r"""
top=$1 id=$2
"""
    + _LIST
    + r"""
sorted() { tr '\000\n' '\n\001' < "$list.$1" | sort; }
list_files > "$list.end" && list_files -cnewer "$list.time" > "$list.new" || exit 7
sorted begin > "$list.1" && sorted end > "$list.2" && comm -3 "$list.1" "$list.2" > "$list.3" || exit 7
{ sed "s/^$(printf '\t')//" < "$list.3"; sorted new; } | sort -u | tr '\n\001' '\000\n'
rm -f -- "$list".*
"""
)
"""Arguments: the path that `BEGIN_LIST` printed, and its id. Prints the paths of files that came, went or changed."""

RESTORE = (
    _KEPT
    + _GIT
    + r"""
top=/ index=/nonexistent temporary=
trap '[ -z "$temporary" ] || rm -f -- "$temporary"' EXIT
trap 'exit 143' HUP INT TERM

split() { rest=${1#*:} && store=$kept/git/${rest%%:*}; }
content() {
    split "$1"
    case $1 in
    sha256:*) cat -- "$kept/blobs/$rest" ;;
    git:*) configure && g cat-file blob "${rest#*:}" ;;
    esac
}
hash() {
    split "$1"
    case $1 in
    sha256:*) sum=$(sha256sum) && printf 'sha256:%s' "${sum%% *}" ;;
    git:*) configure && sum=$(g hash-object --stdin) && printf 'git:%s:%s' "${rest%%:*}" "$sum" ;;
    esac
}
is() {
    case $2 in
    absent) [ ! -L "$1" ] && { [ ! -e "$1" ] || [ -d "$1" ]; } ;;
    file) [ ! -L "$1" ] && [ -f "$1" ] && [ "$(hash "$3" < "$1")" = "$3" ] ;;
    link) [ -L "$1" ] && text=$(readlink -- "$1"; echo x) && [ "$(printf %s "${text%?x}" | hash "$3")" = "$3" ] ;;
    *) false ;;
    esac
}
physical() {
    folder=${path%/*}
    [ -d "${folder:-/}" ] || return 0
    cd -P -- "${folder:-/}" && [ "$PWD" = "${folder:-/}" ]
}
remove() {
    [ ! -e "$path" ] && [ ! -L "$path" ] || [ -d "$path" ] || rm -f -- "$path" || return
    [ -n "$above" ] || return 0
    folder=${path%/*}
    while [ -n "$folder" ] && [ "$folder" != "$above" ]; do
        rmdir -- "$folder" 2> /dev/null || break
        folder=${folder%/*}
    done
}
free() {
    folder=${path%/*}
    mkdir -p -m 755 -- "${folder:-/}" && physical || return
    [ -L "$path" ] || [ ! -d "$path" ] || find "$path" -depth -type d -exec rmdir -- {} + 2> /dev/null
    [ -L "$path" ] || [ ! -d "$path" ]
}
replace() {
    temporary=$folder/.hermes-exec.$$
    rm -f -- "$temporary"
    if [ "$kind" = link ]; then
        text=$(content "$digest0" && echo x) && [ "$(printf %s "${text%x}" | hash "$digest0")" = "$digest0" ] ||
            { outcome=damaged; return; }
        ln -s -- "${text%x}" "$temporary" || return
    else
        if [ -f "$path" ] && [ ! -L "$path" ]; then cp -p -- "$path" "$temporary"; else : > "$temporary"; fi || return
        chmod 600 "$temporary" && content "$digest0" > "$temporary" || { outcome=damaged; return; }
        [ "$(hash "$digest0" < "$temporary")" = "$digest0" ] || { outcome=damaged; return; }
        [ -z "$owner" ] || chown "$owner" "$temporary" 2> /dev/null
        chmod "${mode:-644}" "$temporary" || return
    fi
    allowed || { outcome=changed; return; }
    if [ -L "$path" ] && [ -d "$path" ]; then  # mv would move it into the folder that the link leads to
        mv -fT -- "$temporary" "$path" 2> /dev/null || { rm -f -- "$path" && mv -f -- "$temporary" "$path"; }
    else
        mv -f -- "$temporary" "$path"
    fi && outcome=done
}
allowed() {
    [ "$force" = 1 ] || is "$path" "$kind" "$digest0" || is "$path" "$kind1" "$digest1" ||
        is "$path" "$kind2" "$digest2"
}

act=$1 force=$2
shift 2
while [ $# -ge 10 ]; do
    path=$1 kind=$2 digest0=$3 mode=$4 owner=$5 above=$6 kind1=$7 digest1=$8 kind2=$9
    shift 9
    digest2=$1
    shift
    outcome=failed
    if ! physical; then
        :
    elif is "$path" "$kind" "$digest0" && { [ "$kind" != file ] || [ -z "$mode" ] ||
        [ "$(stat -c %a -- "$path")" = "$mode" ]; }; then
        outcome=same
    elif ! allowed; then
        outcome=changed
    elif [ "$act" = check ]; then
        outcome=free
    elif [ "$kind" = absent ]; then
        remove && outcome=done
    elif free; then
        replace
        rm -f -- "$temporary"
        temporary=
    fi
    printf '%s\0' "$outcome"
done
"""
)
"""Arguments: `check` or `restore`, 1 to replace any content, and ten for each file.

These are its path, the wanted kind, digest, mode, owner and folder above, and two other states that may be replaced, as
kind and digest. Prints for each file `same`, `changed` (something else is there), `free` (it may be replaced), `done`,
`damaged` (the kept content is missing or has another digest) or `failed`. Each file is replaced by renaming.
"""

PRUNE = (
    _KEPT
    + r"""
days=$1 most=$2
cd -- "$kept" || exit 0
find blobs -type f -mtime "+$days" -exec rm -f -- {} +
for each in git/*/; do
    [ ! -d "$each" ] || [ -z "$(find "$each" -prune -mtime "+$days")" ] || rm -rf -- "$each"
done
total=$(du -sk . | cut -f 1)
[ "$total" -gt "$((most >> 10))" ] || exit 0
ls -1tr blobs | while read -r each; do
    rm -f -- "blobs/$each"
    [ "$(du -sk . | cut -f 1)" -gt "$((most >> 10))" ] || break
done
ls -1tr git | while read -r each; do
    [ "$(du -sk . | cut -f 1)" -gt "$((most >> 10))" ] || break
    rm -rf -- "git/$each"
done
"""
)
"""Arguments: days, and bytes of all contents. Removes older contents, and then the oldest ones until the rest fits."""

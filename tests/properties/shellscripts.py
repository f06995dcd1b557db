"""Strategies for bash text that ends, touches nothing outside its folder, and says the same each time."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "long_name", "_x", "UP"])
FUNCTIONS = st.sampled_from(["f", "g", "h"])
CODES = st.integers(0, 255)
LETTERS = st.text(st.sampled_from("abcXYZ019 _-+=:,.@%^\t"), max_size=12)
ODD = st.text(st.sampled_from("ab \n\t'\"`$\\*?[]{}()<>|&;#~!é\x7f"), max_size=10)


def quoted(text: str) -> str:
    """One word of shell."""
    return "'" + text.replace("'", "'\\''") + "'"


WORDS = st.one_of(
    LETTERS.map(quoted),
    ODD.map(quoted),
    NAMES.map(lambda name: f'"${name}"'),
    NAMES.map(lambda name: f'"${{{name}:-unset}}"'),
    NAMES.map(lambda name: f"${{#{name}}}"),
    st.sampled_from(
        ['"$#"', '"$*"', '"$?"', '"$(echo in)"', "$((3 * 4))", "{x,y}", "$'\\x41\\t'", "/et[c]", "/no*match"]
    ),
)

ECHO = WORDS.map(lambda word: f"echo {word}")
PRINTF = st.tuples(WORDS, WORDS).map(lambda words: f"printf '<%s>' {words[0]} {words[1]}")
TO_ERROR = WORDS.map(lambda word: f"echo {word} >&2")
ASSIGN = st.tuples(NAMES, WORDS).map(lambda pair: f"{pair[0]}={pair[1]}")
EXPORT = st.tuples(NAMES, WORDS).map(lambda pair: f"export {pair[0]}={pair[1]}")
APPEND = st.tuples(NAMES, WORDS).map(lambda pair: f"{pair[0]}+={pair[1]}")
UNSET = NAMES.map(lambda name: f"unset {name}")
ARRAY = st.tuples(NAMES, WORDS, WORDS).map(lambda parts: f"arr_{parts[0]}=({parts[1]} {parts[2]})")
SHOW_ARRAY = NAMES.map(lambda name: f'printf \'[%s]\' "${{arr_{name}[@]}}" "${{#arr_{name}[@]}}"')
STATUS = CODES.map(lambda code: f"(exit {code})")
CALL = st.tuples(FUNCTIONS, WORDS).map(lambda pair: f"{pair[0]} {pair[1]}")
SET = st.tuples(WORDS, WORDS).map(lambda words: f"set -- {words[0]} {words[1]}")
TEST = st.tuples(WORDS, WORDS).map(lambda words: f"[ {words[0]} = {words[1]} ]")
MISSING = st.just("no_such_command_here x")
SIMPLE = st.one_of(
    ECHO, PRINTF, TO_ERROR, ASSIGN, EXPORT, APPEND, UNSET, ARRAY, SHOW_ARRAY, STATUS, CALL, SET, TEST, MISSING,
    st.sampled_from(["true", "false", ":", "pwd", "shift 2>/dev/null", "sh -c 'echo $a $UP'", "cat </dev/null"]),
)  # fmt: skip


def _joined(statements: list[str]) -> str:
    return "\n".join(statements)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map(_joined)
    return st.one_of(
        body.map(lambda text: f"(\n{text}\n)"),
        body.map(lambda text: f"{{\n{text}\n}}"),
        body.map(lambda text: f"{{\n{text}\n}} | cat"),
        body.map(lambda text: f"{{\n{text}\n}} 2>&1"),
        body.map(lambda text: f"{{\n{text}\n}} > out; cat out"),
        body.map(lambda text: f'x=$(\n{text}\n); echo "$x"'),
        body.map(lambda text: f"for i in 1 2 3; do\n{text}\ndone"),
        body.map(lambda text: f"for i in 1 2 3; do\n{text}\n[ $i = 2 ] && break\ndone"),
        body.map(lambda text: f"i=0; while [ $i -lt 2 ]; do i=$((i+1))\n{text}\ndone"),
        st.tuples(inner, body, body).map(lambda parts: f"if {parts[0]}; then\n{parts[1]}\nelse\n{parts[2]}\nfi"),
        st.tuples(WORDS, body).map(lambda parts: f"case {parts[0]} in a*) echo a;; *)\n{parts[1]}\n;; esac"),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} && {pair[1]}"),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} || {pair[1]}"),
        inner.map(lambda text: f"! {text}" if "\n" not in text else text),
        st.tuples(NAMES, ODD).map(lambda pair: f"cat <<E\n${pair[0]} {pair[1].replace('`', '').replace('$', '')}\nE"),
        ODD.map(lambda text: f"cat <<'E'\n{text}\nE"),
        WORDS.map(lambda word: f"cat <<< {word}"),
        body.map(lambda text: f"eval {quoted(text)}"),
    )


STATEMENTS = st.recursive(SIMPLE, _compound, max_leaves=6)
DEFINE = st.tuples(FUNCTIONS, st.lists(SIMPLE, min_size=1, max_size=3)).map(
    # A depth of its own, because functions may call each other.
    lambda parts: f"{parts[0]}() {{\n[ ${{#FUNCNAME[@]}} -gt 3 ] && return 9\nlocal inner=$1\n{_joined(parts[1])}\n}}"
)
SCRIPTS = st.tuples(
    st.lists(st.one_of(STATEMENTS, DEFINE), min_size=1, max_size=6).map(_joined),
    st.one_of(st.just(""), CODES.map(lambda code: f"\nexit {code}"), st.just("\nreturn_nothing=1")),
).map("".join)
"""Whole scripts, some of which end by ``exit``."""

SETTINGS = st.sampled_from([
    "set -f", "set +f", "set -C", "set +C", "shopt -s nullglob", "shopt -u nullglob", "shopt -s extglob",
    "set -o pipefail", "set +o pipefail", "umask 027", "umask 022", "cd /usr", "cd /", "cd /no/such", "cd -",
    "shopt -s expand_aliases", "alias hi='echo aliased'", "unalias hi", "hi there", "umask", "pwd", "dirs",
    "declare -i n=4", "n+=2; echo $n", "declare -u shout=loud", "echo $shout", "readonly r=1", "r=2", "echo $r",
    "declare -A t=([k]=v ['odd key']='w x')", 'echo ${t[k]} "${t[odd key]}"', "t[new]=1; echo ${#t[@]}",
    "trap 'echo usr1' USR1", "kill -USR1 $BASHPID", "trap '' USR2", "trap - USR1", "unset -f f", "set -u", "set +u",
    "getopts ab opt -a; echo $opt $OPTIND", "IFS=:", "unset IFS", "x=1:2; echo $x", "RANDOM=5; echo ok", "echo $?",
    "set --", "echo $#", "export -n UP", "env | grep ^UP=", "type -t f g", "hash -r", "printf -v a '%q' 'x y'",
])  # fmt: skip
"""What changes or shows the state of a shell."""
STEPS = st.one_of(SETTINGS, STATEMENTS, DEFINE, ASSIGN, EXPORT, ARRAY, SHOW_ARRAY, CALL)

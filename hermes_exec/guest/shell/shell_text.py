"""The shell text of the loop that a live shell runs, and of the wraps around its commands.

A live bash reads each command from a FIFO, evaluates it, and reports its status by *opening a file whose name is the
status*: a redirect without a command needs no builtin, variable or descriptor that a command could have shadowed,
unset or closed. The guest sees the opening by inotify. The variable that holds the command has a random name and is
unset while the command runs.

``until ((0))`` rather than ``while``: under ``set -n``, or under a DEBUG trap that skips commands, a shell treats each
command as successful without running it, so a ``while`` would spin forever; ``until`` ends the shell, which the guest
notices. The outer loop is for a command that runs ``break``. Tracing (``set -x``) is off while the loop itself works.
The loop closes standard error to turn tracing off, and it does so before it reports the status: the guest looks at the
shell's outputs as soon as it has the status.
"""

import os

_BASH = (
    r"\unset BASH_EXECUTION_STRING; "
    r'{ IFS= \read -r -d "" @VAR@ <@DIR@/state; \eval "\unset -v @VAR@;$@VAR@"; '
    r"\unset -f builtin eval unset exit read trap set cd; } 2>/dev/null; "
    r"\trap '{ . @DIR@/dump; . @DIR@/stay; } 2>/dev/null' EXIT; "
    r"until ((0)); do :; until { @VAR@s=$?; "
    r"case $- in *x*) \set +x; @VAR@x=1;; *) \unset -v @VAR@x;; esac; } 2>&-; "
    r'>|"@DIR@/s/${@VAR@s}"; '
    r'IFS= \builtin read -r -d "" @VAR@ <@DIR@/in || \builtin exit; ((0)); '
    r'do \eval "\unset -v @VAR@ @VAR@s;${@VAR@:+>|@DIR@/b;}${@VAR@x:+\\set -x;}$@VAR@"; done; done'
)
_BASH_DUMP = r"""{ {
\builtin shopt -p
\builtin declare -p
\builtin declare -fp
\builtin alias -p
\builtin umask -p
\builtin trap -p
if (($#)); then \builtin printf 'set --'; \builtin printf ' %q' "$@"; \builtin printf '\n'; fi
\builtin printf 'builtin cd -- %q || builtin cd /\n' "$PWD"
if [[ ${OLDPWD+x} ]]; then \builtin printf 'OLDPWD=%q\n' "$OLDPWD"; else \builtin printf 'builtin unset -v OLDPWD\n'; fi
\builtin set +o
\builtin printf '%s\n' '>|"@DIR@/s/whole"' '# complete'
} >|@DIR@/state.new; } 2>/dev/null || \builtin :
"""

# A shell that is not bash reads its commands as a script from the FIFO, each as a file to source.
_SH = """\
{ command . @DIR@/state || . @DIR@/state; } 2>/dev/null
trap '{ . @DIR@/dump; . @DIR@/stay; } 2>/dev/null' EXIT
trap 'exit 143' TERM
>|"@DIR@/s/0"
"""
_SH_DUMP = r"""{ {
printf 'umask '; umask
(IFS='
'; set -f; for line in $(alias); do printf 'alias %s\n' "${line#alias }"; done)
trap
set +o
export -p
set
printf 'cd -- "$PWD" || cd /\n'
printf '%s\n' '>|"@DIR@/s/whole"' '# complete'
} >|@DIR@/state.new; } 2>/dev/null || :
"""

# A shell that ends without its guest waits as long as it has children, since they are found below it. Opening the FIFO
# returns at once while the guest lives, which has it open, and blocks forever afterwards.
_STAY = r"""{ read -r @VAR@ </proc/$$/task/$$/children || [ "$@VAR@" ]; } && { :; } <@DIR@/in || :
"""

_SPEAK = "\\exec >&3 2>&4 3>&- 4>&-\n"
"""Output of a login shell before this, such as a message of the day, belongs to no command."""

BROKEN = "the command broke the shell's own machinery, so its exit status is not known"
UNREADABLE = "the new shell could not take over all of the state"
MOVED = "the target had moved, so the shell is a new one with the state of the last checkpoint"
REPLACED = "an earlier command had broken the shell's own machinery, so the shell was replaced"

COMPLETE = b"# complete\n"
"""The last line of a complete dump. The line before it reports that a new shell has read it up to there."""


def dump_text(folder: str, bash: bool) -> bytes:
    """Return a script that writes the shell's state to ``state.new``; sourced by bash, it forks nothing."""
    return (_BASH_DUMP if bash else _SH_DUMP).replace("@DIR@", folder).encode()


def stay_text(folder: str) -> bytes:
    """Return a script that keeps a shell without a guest running while it has children."""
    return _STAY.replace("@DIR@", folder).replace("@VAR@", "H" + os.urandom(4).hex()).encode()


def quote(data: bytes) -> bytes:
    """Return the data quoted as one shell word."""
    return b"'" + data.replace(b"'", b"'\\''") + b"'"


class ShellDialect:
    """The texts with which the guest controls one session's shell."""

    def __init__(self, folder: str, bash: bool) -> None:
        self.bash = bash
        self._folder = folder.encode()
        self._variable = b"H" + os.urandom(4).hex().encode()

    def loop(self, login: bool) -> bytes:
        """Return the session's main loop: bash's argument, or the start of sh's script."""
        text = (_SPEAK if login else "") + (_BASH if self.bash else _SH)
        return text.encode().replace(b"@DIR@", self._folder).replace(b"@VAR@", self._variable)

    def file(self, command: bytes) -> bytes:
        """Return the content of the file ``c`` for a command that goes through a file."""
        if self.bash:
            return b"\\unset -v %b;%b\0" % (self._variable, command)
        return b">|%b/b;%b\n" % (self._folder, command)

    def from_file(self, wrap: bytes) -> bytes:
        """Return the FIFO text that evaluates the file ``c``; ``%s`` in ``wrap`` stands for it."""
        if self.bash:
            read = b'IFS= \\builtin read -r -d "" %b <%b/c;' % (self._variable, self._folder)
            return read + wrap.replace(b"%s", b'\\eval "$%b"' % self._variable) + b"\0"
        return wrap.replace(b"%s", b". %b/c" % self._folder) + b'\n>|"%b/s/$?"\n' % self._folder

    def status(self, code: int, text: bytes) -> bytes:
        """Return text before a command that sets ``$?`` without any trap, trace or ``set -e`` effect.

        Text without a command gets none, or it would end with the status of the command before it.
        """
        if not code or all(line.strip()[:1] in (b"", b"#") for line in text.split(b"\n")):
            return b""
        leave = b"\\builtin exit" if self.bash else b"exit"
        return b"{ (%b %d)&&:;} >/dev/null 2>&1;" % (leave, code)

    def redirect(self, stdin: bool, merge: bool) -> bytes:
        """Return a wrap with another standard input, or with one stream for both outputs."""
        return b"%s" + (b" <%b/s/stdin" % self._folder if stdin else b"") + (b" 2>&1" if merge else b"")

    def subshell(self, wrap: bytes, cwd: "bytes | None", env: "dict[bytes, bytes]", limits: bytes) -> bytes:
        """Return a wrap that runs in a subshell with its own folder, variables and limits."""
        text = b""
        if cwd is not None:
            text += b"\\cd -- %b 2>/dev/null || { >|%b/s/cwd; \\exit 126; };" % (quote(cwd), self._folder)
        for name, value in env.items():
            text += b"\\export %b=%b;" % (name, quote(value))
        return b"(" + text + limits + wrap + b")"

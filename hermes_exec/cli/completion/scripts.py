"""The completion scripts of bash, zsh and fish. One script serves ``hermes-exec`` and ``hermes-cli``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from hermes_exec.config.paths import config_folder, home_folder
from hermes_exec.errors import UsageError

_BASH = """\
# Completion of hermes-exec and hermes-cli in bash.
_hermes_exec_completion() {
    local found
    found=$(_HERMES_EXEC_COMPLETE=bash _HERMES_EXEC_BREAKS="$COMP_WORDBREAKS" \\
        COMP_LINE="${COMP_LINE:0:COMP_POINT}" "$1" 2>/dev/null </dev/null) || compopt -o default
    COMPREPLY=()
    [[ -z $found ]] || mapfile -t COMPREPLY <<< "$found"
    [[ ${COMPREPLY[0]-} == *[/:=] ]] && compopt -o nospace
    return 0
}
complete -F _hermes_exec_completion hermes-exec hermes-cli
"""
_ZSH = """\
#compdef hermes-exec hermes-cli
# Completion of hermes-exec and hermes-cli in zsh.
_hermes_exec_completion() {
    local found line value
    local -a lines whole whole_shown part part_shown
    found="$(_HERMES_EXEC_COMPLETE=zsh COMP_LINE="${(j: :)words[1,CURRENT-1]} $PREFIX" \\
        "${words[1]}" 2>/dev/null </dev/null)" || { _files; return }
    lines=("${(@f)found}")
    for line in $lines; do
        [[ -n $line ]] || continue
        value="${line%%$'\\t'*}"
        line="${value}${${line#*$'\\t'}:+  -- ${line#*$'\\t'}}"
        if [[ $value == *[/:=] ]]; then
            part+=("$value") part_shown+=("$line")
        else
            whole+=("$value") whole_shown+=("$line")
        fi
    done
    (( $#part )) && compadd -S '' -l -d part_shown -a part
    (( $#whole )) && compadd -l -d whole_shown -a whole
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _hermes_exec_completion hermes-exec hermes-cli
"""
_FISH = """\
# Completion of hermes-exec and hermes-cli in fish.
function __hermes_exec_completion
    set -l program (commandline -opc)[1]
    env _HERMES_EXEC_COMPLETE=fish COMP_LINE=(commandline -cp | string collect) $program 2>/dev/null </dev/null
end
complete -c hermes-exec -f -a '(__hermes_exec_completion)'
complete -c hermes-cli -f -a '(__hermes_exec_completion)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def detect_shell() -> str:
    """Return the shell that started this process, or else the user's.

    Raises:
        UsageError: there is no script for it.
    """
    names: list[str] = []
    for path in (f"/proc/{os.getppid()}/comm",):
        try:
            names.append(Path(path).read_text(encoding="utf-8", errors="replace").strip())
        except OSError:
            continue
    names.append(os.path.basename(os.environ.get("SHELL", "")))  # noqa: PTH119  a name, not a path of ours
    for name in names:
        if name in SCRIPTS:
            return name
    raise UsageError("the shell is not known here", remedy=f"hermes-exec completion {'|'.join(SCRIPTS)}")


def install_script(shell: str) -> tuple[Path, Path | None]:
    """Write the script of a shell, and have the shell load it at its start. A second call changes nothing.

    Returns the path of the script, and of the start file that loads it; None if the shell finds it by itself.
    """
    folder = config_folder(os.environ)
    if shell == "fish":
        path = folder.parent / "fish" / "conf.d" / "hermes-exec.fish"
        _write(path, _FISH)
        return path, None
    path = folder / f"completion.{shell}"
    _write(path, SCRIPTS[shell])
    start = home_folder() / ".bashrc"
    if shell == "zsh":
        start = Path(os.environ.get("ZDOTDIR") or home_folder()) / ".zshrc"
    _append_line(start, f"[ ! -r {shlex.quote(str(path))} ] || . {shlex.quote(str(path))}")
    return path, start


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _append_line(path: Path, line: str) -> None:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        text = ""
    if line in text.splitlines():
        return
    with path.open("a", encoding="utf-8") as file:  # appends, so a link to a file elsewhere stays one
        file.write(("" if text.endswith("\n") or not text else "\n") + line + "\n")

"""Examples of the core's commands, which their help shows; without the program's name.

Tests parse each of them.
"""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "run -- 'uname -s; nproc'",
        "run --on docker:python:3.11 -- python -V",
        "help run",
    ),
    "run": (
        "run --on docker:python:3.11 -- python -V",
        "run --on server --detach --name train ./train.sh",
    ),
    "shell": ("shell --on server", "shell --on docker:debian --keep --name work"),
    "cp": ("cp report.txt server:/srv/", "cp docker:@web:/etc/nginx ./nginx"),
    "sync": ("sync --delete src/ server:/srv/src", "sync --dry-run server:results/ ./results"),
    "forward": ("forward 8080=80 --on server", "forward --reverse 5432 --on docker:@web"),
    "jobs": ("jobs --watch", "jobs --on server --json"),
    "top": ("top", "top --json"),
    "logs": ("logs --follow train", "logs --since 10m --stream stderr train"),
    "attach": ("attach work", "attach train --on server"),
    "kill": ("kill train", "kill --grace 30s train work"),
    "config": ("config --changed", "config log.level"),
    "profile": ("profile init", "profile show server"),
    "profile init": ("profile init", "--config ./own.toml profile init"),
    "profile list": ("profile list", "profile list --json"),
    "profile show": ("profile show server", "profile show docker:python:3.11 --json"),
    "profile check": ("profile check", "--config ./hermes.toml profile check --json"),
    "profile trust": ("profile trust", "profile trust ./hermes.toml --yes"),
    "profile distrust": ("profile distrust", "profile distrust ./hermes.toml"),
    "env": ("env local", "env server --json"),
    "backends": ("backends", "backends --cost"),
    "doctor": ("doctor", "doctor ssh://me@server"),
    "log": ("log --since 2h --failed", "log --on server --grep 'make|cmake' --json"),
    "bench": ("bench local", "bench server --runs 20 --json"),
    "demo": ("demo", "demo --on local --on docker:python:3.11"),
    "help": ("help run", "help profile list"),
    "completion": ("completion --install", "completion zsh"),
    "update": ("update", "update --check"),
    "version": ("version", "version --json"),
}

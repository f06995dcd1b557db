"""``review``: look at past tasks once more, and keep what is worth it."""

from typing import TYPE_CHECKING

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.strict_typer import StrictTyper

if TYPE_CHECKING:
    from hermes_exec_agent.learning.review_queue import Review
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime.events import EventLog


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/learning.md.")
    for command in (run, status):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def run() -> int:
    """Do the reviews that wait, with the model of [learning] review_model. Each is done once, whatever is killed."""
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        return interruptible.run(_run(log))


async def _run(log: "EventLog") -> int:
    from hermes_exec_agent.learning.review_queue import list_pending

    if not list_pending(log):
        note("no review waits")
        _note_if_off()
        return 0
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.learning.review import Worker
    from hermes_exec_agent.models import load_models

    settings = load_settings()
    models = load_models()
    try:
        done = await Worker(log, choose_model(models, settings.learning.review_model), settings, note).run_pending()
    finally:
        await models.close()
    if not done:
        note("another worker does the reviews that wait")
    return 0


def choose_model(models: "Models", name: str) -> "Models":
    """Return models whose main one is the reviewer.

    Raises:
        ConfigError: no model has that name.
    """
    from hermes_exec_agent.models import Models

    return Models(models.get(name), models.auxiliary, secrets=models.secrets)


def status(*, json: Json = False) -> int:
    """Show how many reviews wait, how many kept something, and what each kept."""
    from hermes_exec_agent.learning.review_queue import read_reviews, to_json
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        reviews = read_reviews(log)
    if json:
        show_json([to_json(each) for each in reviews])
        return 0
    for each in reviews:
        print(flags.clean(_describe(each)))
    counts = [sum(each.end == end for each in reviews) for end in ("", "done", "nothing", "failed")]
    note("{} waiting, {} kept something, {} with nothing to save, {} failed".format(*counts))
    _note_if_off()
    return 0


def _note_if_off() -> None:
    from hermes_exec.config.load import load_settings

    if not load_settings().learning.review:
        note("reviews are off, so that none is queued. To enable them: review = true below [learning]")


def _describe(review: "Review") -> str:
    whose = f" of {review.person}" if review.person else ""
    tasks = f"{len(review.tasks)} task{'s' if len(review.tasks) > 1 else ''}{whose}"
    how = "; ".join(review.kept) or review.reason or {"nothing": "nothing to save", "": "waiting"}.get(review.end, "")
    return f"{review.number}  {review.cause:<10}  {tasks}: {how}{', undone' if review.undone else ''}"

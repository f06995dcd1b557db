"""``user``: ask, show and change the claims about a person."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.export import export_json
from hermes_exec_agent.cli.options import Output, complete_conversations

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Sequence

    from hermes_exec_agent.memory.claims import Claim, ClaimStore
    from hermes_exec_agent.memory.user_model import UserModel
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime.events import EventLog

T = TypeVar("T")

Person = Annotated[
    str | None, typer.Option("--person", metavar="NAME", help="Use the claims of this person; by default of the owner.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a claim.")]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/memory.md.")
    group.command("add")(add_claim)
    for command in (ask, show, close, history, learn, export):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question about the person.")],
    *,
    person: Person = None,
    phrase: Annotated[
        bool, typer.Option("--phrase", help="Let the auxiliary model phrase the answer, with the ids of its claims.")
    ] = False,
    json: Json = False,
) -> int:
    """Answer a question with the claims that the answer rests on."""
    models = _load_models() if phrase else None
    with _open_log() as log:
        answer = _run(_open_model(log, person, models).ask(question), models)
    if json:
        show_json({"text": answer.text, "claims": [each.to_record() for each in answer.claims]})
        return 0
    for line in answer.text.splitlines():
        print(flags.clean(line))
    return 0


def show(*, person: Person = None, json: Json = False) -> int:
    """Show the claims that hold."""
    with _open_log() as log:
        claims = _run(_open_model(log, person).claims())
    _print_claims([each for each in claims if each.is_open], as_json=json)
    return 0


def history(*, person: Person = None, json: Json = False) -> int:
    """List all claims, with the time in which each held and the one that contradicts it."""
    with _open_log() as log:
        claims = _open_store(log, person).claims()
    _print_claims(claims, as_json=json)
    return 0


def add_claim(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The claim, in a sentence.")],
    *,
    kind: Annotated[
        Literal["need", "preference", "priority", "fact"] | None,
        typer.Option(help="The kind of the claim; by default by its words."),
    ] = None,
    closes: Annotated[
        list[str] | None,
        typer.Option("--closes", metavar="ID", help="Close a claim that this one contradicts. May be repeated."),
    ] = None,
    person: Person = None,
) -> int:
    """Add a claim in your own words; a claim that it contradicts is closed, and kept."""
    from hermes_exec_agent.memory.claims import NewClaim, find_alike, guess_kind

    refuse_agent()
    with _open_log() as log:
        store = _open_store(log, person)
        alike = [each for each in find_alike(text, store.claims()) if each.id not in (closes or [])]
        claim = store.add(NewClaim(text, kind or guess_kind(text), contradicts=tuple(closes or ())))
        note(f"added {claim.id}, a {claim.kind}")
        for each in alike:
            note(f"{each.id} has similar words: {flags.clean(each.text)}")
        if alike:
            note(f"if one is no longer true: hermes-exec user close {alike[0].id}")
        _note_entries(store, claim.contradicts)
    return 0


def close(claim: Id, *, person: Person = None) -> int:
    """Close a claim that no longer holds; an entry of USER.md that it comes from is removed."""
    refuse_agent()
    with _open_log() as log:
        _open_store(log, person).close(claim)
    return 0


def learn(
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="CONVERSATION",
            help="The id of a conversation or its beginning; last is the newest.",
            autocompletion=complete_conversations,
        ),
    ],
) -> int:
    """Let the auxiliary model propose claims from the person's own messages, or send these to Honcho.

    The claims are of the person that the conversation belongs to. A guest's conversation is refused.
    """
    from hermes_exec_agent.frontends.chat.listing import find_conversation
    from hermes_exec_agent.memory.persons import OWNER, Participant

    refuse_agent()
    models = _load_models()
    with _open_log() as log:
        id = find_conversation(log, conversation)
        events = log.events(id)
        participant = Participant.from_record(events[0].data)
        if participant.is_guest or events[0].data.get("parent"):
            why = "a guest's" if participant.is_guest else "delegated, and has no words of a person"
            raise UsageError(f"conversation {id} is {why}", remedy="another conversation")
        learned = _run(_open_model(log, participant.name or OWNER, models).record(events), models)
        for claim in learned.claims:
            note(f"added {claim.id}: {flags.clean(claim.text)}")
        _note_entries(
            _open_store(log, participant.name or OWNER), [id for each in learned.claims for id in each.contradicts]
        )
    for line in learned.lines:
        note(flags.clean(line))
    return 0


def export(
    *,
    output: Output = None,
    person: Person = None,
) -> int:
    """Export all claims with their evidence as JSON."""
    with _open_log() as log:
        claims = [each.to_record() for each in _open_store(log, person).claims()]
    export_json(claims, output)
    return 0


@contextlib.contextmanager
def _open_log() -> "Generator[EventLog]":
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        yield log


def _open_model(log: "EventLog", person: str | None, models: "Models | None" = None) -> "UserModel":
    """Return the configured user model of a person; the auxiliary model phrases and proposes, if there is one."""
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.persons import Participant, choose_participant
    from hermes_exec_agent.memory.user_model import create_user_model

    settings = load_settings()
    participant = choose_participant(settings, person) or Participant()
    auxiliary = models.auxiliary if models is not None else None
    return create_user_model(log, settings.memory, participant.name, model=auxiliary)


def _open_store(log: "EventLog", person: str | None) -> "ClaimStore":
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.claims import ClaimStore
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.memory.persons import Participant, choose_participant

    settings = load_settings()
    participant = choose_participant(settings, person) or Participant()
    return ClaimStore(log, Journal.of_user(log, settings.memory, person=participant.name))


def _load_models() -> "Models":
    """Return the models.

    Raises:
        UsageError: there is none, which ends the command with exit code 2, as in a chat.
    """
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import load_models

    try:
        return load_models()
    except NoModel as error:
        raise UsageError(error.what, remedy=error.remedy) from None


def _run(work: "Coroutine[None, None, T]", models: "Models | None" = None) -> T:
    """Run a call, and close the models after it."""
    from hermes_exec.cli import interruptible

    found: list[T] = []

    async def run() -> int:
        try:
            found.append(await work)
        finally:
            if models is not None:
                await models.close()
        return 0

    code = interruptible.run(run())
    if not found:
        raise typer.Exit(code)
    return found[0]


def _note_entries(store: "ClaimStore", closed: "Sequence[str]") -> None:
    """Show a line for each closed claim whose entry is still in ``USER.md``."""
    with contextlib.suppress(HermesError):
        entries = {" ".join(each.text.split()) for each in store.journal.read("user")}
        for each in store.claims():
            if each.id in closed and each.id.startswith("j") and each.text in entries:
                note(f"USER.md still has the entry of {each.id}: hermes-exec memory forget --user TEXT removes it")


def _print_claims(claims: "Sequence[Claim]", *, as_json: bool) -> None:
    from hermes_exec_agent.memory.user_model import describe_claim

    if as_json:
        show_json([each.to_record() for each in claims])
    elif claims:
        for each in claims:
            print(flags.clean(describe_claim(each)))
    else:
        note("nothing is known yet")

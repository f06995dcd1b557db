"""The slash commands of the chat."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import shutil
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.chat.clipboard import copy_text
from hermes_exec_agent.frontends.chat.display import SCRIPTED, describe_update
from hermes_exec_agent.frontends.chat.export import EXPORT_FORMATS, format_time, parse_format, to_markdown, to_messages
from hermes_exec_agent.frontends.chat.listing import find_conversation, list_conversations, recall_last_turn
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line, wrap_words
from hermes_exec_agent.frontends.chat.search_options import USAGE, parse_search
from hermes_exec_agent.frontends.chat.status import describe_context, describe_cost, describe_status
from hermes_exec_agent.memory.mixed_search import search_as_configured
from hermes_exec_agent.memory.persons import check_participant
from hermes_exec_agent.models.dialects import EFFORTS, Reasoning
from hermes_exec_agent.models.protocol import get_reasoning, set_reasoning
from hermes_exec_agent.state_paths import create_private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hermes_exec_agent.frontends.chat.export import ExportFormat
    from hermes_exec_agent.frontends.chat.session import ChatSession
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events import EventLog

_LISTED = 20
"""Of a number; Python refuses to read very long ones."""
_TITLE = 100
_ENDINGS: dict[ExportFormat, str] = {"markdown": "md", "jsonl": "jsonl", "messages": "json"}

COMMAND_HELP = {
    "/help": "list these commands and the keys",
    "/model": "list the models, or use another one: /model NAME",
    "/reasoning": "show or hide thoughts of the model, or set the effort: /reasoning show|hide|EFFORT",
    "/tools": "list the tools of the model",
    "/mcp": "list the servers whose tools the model has, and their states",
    "/skills": "list the skills",
    "/image": "send an image of this machine with the next request: /image PATH, or /image off",
    "/memory": "show what the agent remembers, or take back what the last review kept: /memory undo",
    "/status": "show the model, the target, the used part of the window, the cost, and background processes",
    "/context": "show how many tokens each part of the model's context takes",
    "/todo": "show the to-do list of the model",
    "/steer": "let the model read words during its turn, after its next call: /steer WORDS",
    "/stop": "end the background processes of this conversation",
    "/usage": "show tokens and cost of this conversation; also /cost",
    "/check": "run a command of yours after each answer: /check COMMAND, or /check off",
    "/good": "record that the latest task ended well: /good [WHY]",
    "/bad": "record that it did not: /bad [WHY]",
    "/compact": "shorten the context of the model",
    "/undo": "take back the latest request, or the latest N: /undo [N]",
    "/retry": "take back the latest request, and send it again",
    "/rollback": "list the turns with the files they changed, or restore these: /rollback N [--force]",
    "/title": "give this conversation a title: /title WORDS",
    "/personality": "list the personalities, or start a new conversation with one: /personality NAME",
    "/approvals": "list what runs without a question, or ask again: /approvals remove N",
    "/trust": "trust the project's files for agents, as they are now",
    "/new": "start a new conversation; also /clear",
    "/branch": "start a new conversation from the record of this one: /branch [TITLE]; also /fork",
    "/resume": "list past conversations, or continue one: /resume ID",
    "/search": f"search all conversations: /search WORDS {USAGE}",
    "/copy": "copy the latest answer to the clipboard, or the Nth latest: /copy [N]",
    "/export": f"write this conversation to a file: /export [{'|'.join(EXPORT_FORMATS)}] [FILE]",
    "/quit": "leave; also Ctrl-D",
}
_NAMES = max(map(len, COMMAND_HELP))
_ALSO = {"/cost": "/usage", "/clear": "/new", "/fork": "/branch", "/exit": "/quit"}
_AT_ONCE = frozenset({"/context", "/help", "/status", "/steer", "/stop", "/todo", "/tools", "/usage"})
"""Commands that run during a turn."""
_KEYS = """\
Enter sends; Alt-Enter, Ctrl-J or a \\ at the end of a line starts a new line.
Ctrl-C interrupts the turn or clears the line; twice on an empty line leaves.
A line that you enter during a turn is queued, and sent after it.
Ctrl-R searches the history; Ctrl-X Ctrl-E opens your editor.
A space before a slash sends the line to the model."""


def is_command(typed: str) -> bool:
    """Whether a line is a slash command: a slash and a word. A path, or a slash after a space, is for the model."""
    word = typed.partition(" ")[0].rstrip()
    return word.startswith("/") and (word == "/" or word[1:].isalpha())


def runs_at_once(typed: str) -> bool:
    """Whether a line is a command that runs during a turn, instead of after it."""
    word = typed.strip().partition(" ")[0].lower()
    return is_command(typed) and _ALSO.get(word, word) in _AT_ONCE


class SlashCommands:
    """Runs slash commands for one chat."""

    def __init__(self, talk: ChatSession, show: Callable[[str], None]) -> None:
        """``show`` prints a line."""
        self._talk = talk
        self._show = show
        self._request = ""

    async def run(self, typed: str) -> bool:
        """Run a command and return whether the chat continues; an error is shown in one line."""
        word, _, rest = typed.strip().partition(" ")
        name = _ALSO.get(word.lower(), word.lower())
        if name == "/quit":
            return False
        if name not in COMMAND_HELP:
            near = difflib.get_close_matches(name, [*COMMAND_HELP, *_ALSO], 1)
            self._show(f"{to_line(word)}: there is no such command. Try: {' '.join(dict.fromkeys([*near, '/help']))}")
            return True
        try:
            await getattr(self, f"_{name[1:]}")(rest.strip())
        except HermesError as error:
            self._show(wrap_words(escape_text(str(error))))
        except OSError as error:
            self._show(escape_text(f"{error.filename or name}: {error.strerror}"))
        return True

    def take_request(self) -> str:
        """Return the request that the last command wants to send, once; empty if there is none."""
        request, self._request = self._request, ""
        return request

    def _row(self, head: str, text: str) -> None:
        """Show a row of a list, cut to the width of the terminal."""
        self._show(f"{head} {to_line(text, max(shutil.get_terminal_size().columns - len(head) - 2, 20))}")

    async def _help(self, _: str) -> None:
        for name, about in COMMAND_HELP.items():
            self._show(wrap_words(f"{name:<{_NAMES}} {about}", _NAMES + 1))
        self._show(wrap_words(_KEYS))

    async def _model(self, name: str) -> None:
        models = self._talk.models
        if name:
            self._show(f"model: {escape_text(await self._talk.choose(name))}")
            return
        choices = models.choices
        now = [each for each, model in choices.items() if model is models.main and each != "auxiliary"]
        for each, model in choices.items():
            self._show(f"{'*' if each in now[:1] else ' '} {each:<12} {escape_text(model.name)}")

    async def _reasoning(self, word: str) -> None:
        word = word.lower()
        if word in ("show", "hide"):
            self._talk.display.show_thoughts(shown=word == "show")
            self._show("thoughts are shown in full" if word == "show" else "thoughts are folded")
            return
        model = self._talk.models.main
        now = get_reasoning(model)
        if now is None:
            raise UsageError(f"{escape_text(model.name)}: this model takes no effort", remedy="/reasoning show or hide")
        if word:
            set_reasoning(model, _parse_reasoning(word))
            now = _parse_reasoning(word)
        parts = [f"thinking {now.thinking}"] if now.thinking else []
        parts += [f"effort {now.effort}"] if now.effort else []
        self._show(f"{escape_text(model.name)}: {', '.join(parts) or 'the default effort of its endpoint'}")

    async def _tools(self, _: str) -> None:
        for spec in (await self._talk.conversation()).specs:
            self._row(f"{spec.name:<14}", spec.description)

    async def _mcp(self, _: str) -> None:
        conversation = await self._talk.conversation()
        for line in conversation.servers or ["there is no server. Try: hermes-exec mcp add"]:
            self._show(escape_text(line))
        for line in await conversation.list_prompts():
            self._row("  prompt", line)

    async def _skills(self, _: str) -> None:
        from hermes_exec_agent.skills.registry.registry import Registry

        skills = [skill for _, skill in sorted(Registry().skills().items()) if not skill.archived]
        for skill in skills:
            facts = skill.facts()
            self._row(f"{facts['name']:<24} version {facts['version']}, {facts['state']}:", facts["summary"])
        if not skills:
            self._show("there is no skill yet")

    async def _image(self, path: str) -> None:
        from hermes_exec_agent.frontends.chat.question import read_image
        from hermes_exec_agent.models.protocol import refuse_blind

        if path and path != "off":
            refuse_blind(self._talk.models.main)
            self._talk.images = (*self._talk.images, read_image(path))
        elif path:
            self._talk.images = ()
        for each in self._talk.images:
            self._show(f"with the next request: {escape_text(each.describe())}")
        if not self._talk.images:
            self._show("no image is sent with the next request")

    async def _memory(self, word: str) -> None:
        from hermes_exec.config.load import load_settings
        from hermes_exec_agent.memory.journal import Journal
        from hermes_exec_agent.memory.listing import describe_journal

        participant = (await self._talk.conversation()).participant
        if participant.is_guest:
            raise UsageError("a guest's conversation remembers nothing", remedy="a chat without --guest")
        journal = Journal.of_user(self._talk.log, load_settings().memory, person=participant.name)
        if word:
            self._undo_review(word, journal)
            return
        for line in describe_journal(journal):
            self._show(escape_text(line))
        if not journal.limits:
            self._show("memory is not enabled: memory_enabled = true in [memory] of hermes.toml")

    def _undo_review(self, word: str, journal: Journal) -> None:
        from hermes_exec_agent.agent_shell import refuse_agent
        from hermes_exec_agent.learning.review_undo import undo_review

        if word != "undo":
            raise UsageError(f"/memory {to_line(word)}", remedy="/memory, or /memory undo")
        refuse_agent()
        for line in undo_review(self._talk.log, journal).describe():
            self._show(escape_text(line))

    async def _usage(self, _: str) -> None:
        usage = (await self._talk.conversation()).usage
        thought = f", of which {usage.reasoning:,} for thinking" if usage.reasoning else ""
        about = ", estimated" if usage.estimated else ""
        self._show(
            f"read {usage.prompt:,} tokens, of which {usage.cached:,} from a cache; wrote "
            f"{usage.completion:,}{thought}{about}; cost {describe_cost(usage)}"
        )

    async def _status(self, _: str) -> None:
        for line in await describe_status(await self._talk.conversation()):
            self._show(line)

    async def _context(self, _: str) -> None:
        for line in describe_context((await self._talk.conversation()).measure_context()):
            self._show(line)

    async def _todo(self, _: str) -> None:
        for line in (await self._talk.conversation()).todo or ["the model keeps no to-do list"]:
            self._show(to_line(line, 200))

    async def _steer(self, words: str) -> None:
        if not words:
            raise UsageError("/steer needs words", remedy="/steer WORDS")
        conversation = self._talk.current
        if conversation is None or not conversation.is_busy:
            self._request = words  # no turn runs, so they are a request
            return
        conversation.steer(words)
        self._show(f"after the next call the model reads: {to_line(words)}")

    async def _stop(self, _: str) -> None:
        ended = await (await self._talk.conversation()).stop_background()
        for line in ended:
            self._show(f"ended: {to_line(line, 140)}")
        if not ended:
            self._show("no background process of this conversation runs")

    async def _copy(self, number: str) -> None:
        messages = (await self._talk.conversation()).messages
        answers = [each.content for each in messages if each.role == "assistant" and not each.tool_calls]
        latest = _parse_count("/copy", number)
        if latest > len(answers):
            raise UsageError(f"/copy {latest}: the context has {len(answers)} answer{'s' * (len(answers) != 1)}")
        text = answers[-latest]
        taker = copy_text(text)
        self._show(f"copied {len(text):,} characters to the clipboard, by {taker}")

    async def _check(self, command: str) -> None:
        from hermes_exec_agent.agent_shell import refuse_agent

        if command:
            refuse_agent()
            self._talk.check = "" if command == "off" else command
        now = escape_text(self._talk.check)
        self._show(f"after each answer: {now}" if now else "no command checks the answers")

    async def _good(self, why: str) -> None:
        await self._judge(why, succeeded=True)

    async def _bad(self, why: str) -> None:
        await self._judge(why, succeeded=False)

    async def _judge(self, why: str, *, succeeded: bool) -> None:
        from hermes_exec_agent.learning.outcomes import Evidence, find_request, judge_task

        log, id = self._talk.log, (await self._talk.conversation()).id
        record = judge_task(log, id, find_request(log, id), Evidence("person", succeeded, why))
        self._show(f"task {record['task']}: {record['result']}")

    async def _compact(self, _: str) -> None:
        conversation = await self._talk.conversation()
        if not await conversation.compact(lambda update: self._show(describe_update(update))):
            self._show("the context cannot be shortened: it has too few messages before the latest request")

    async def _undo(self, count: str) -> None:
        for request in await (await self._talk.conversation()).rewind(_parse_count("/undo", count)):
            self._show(f"taken back: {to_line(request)}")
        self._show("what its calls changed stays changed, and the record keeps all")

    async def _retry(self, _: str) -> None:
        conversation = await self._talk.conversation()
        await conversation.check_budget()  # else the request would be taken back and not sent
        images = conversation.images
        (self._request,) = await conversation.rewind()
        self._talk.images = images
        self._show(f"again: {to_line(self._request)}")

    async def _rollback(self, words: str) -> None:
        from hermes_exec_agent.frontends.chat.rollback_lines import describe_steps, parse_rollback

        number, force = parse_rollback(words)
        conversation = await self._talk.conversation()
        if number:
            lines = (await conversation.rollback(number, force=force)).describe()
        else:
            lines = list(describe_steps(await conversation.list_steps()))
        for line in lines:
            self._show(escape_text(line))

    async def _title(self, words: str) -> None:
        title = to_line(words, _TITLE)
        conversation = await self._talk.conversation()
        if title:
            await conversation.set_title(title)
        self._show(f"title: {to_line(self._talk.log.title(conversation.id)) or 'none yet'}")

    async def _personality(self, name: str) -> None:
        from hermes_exec.config.load import load_settings

        known = load_settings().agent.personalities
        if name:
            if name not in known:
                raise UsageError(
                    f"there is no personality {to_line(name)}",
                    remedy=", ".join(known) or 'NAME = "text" in [agent.personalities] of hermes.toml',
                )
            await self._talk.switch(personality=known[name])
            self._show(f"a new conversation with the personality {to_line(name)}")
            return
        for each, text in known.items():
            self._row(f"{each:<14}", text)
        if not known:
            self._show("there is no personality: [agent.personalities] of hermes.toml")

    async def _trust(self, _: str) -> None:
        from hermes_exec_agent.agent_shell import refuse_agent
        from hermes_exec_agent.runtime.project_files import describe, read_project_files

        refuse_agent()
        files = await read_project_files((await self._talk.conversation()).terminal)
        for each in files:
            self._show(f"trusted: {escape_text(describe(each.trust()))}")
        counts = "they are instructions from the next conversation on: /new"
        self._show(counts if files else "this folder and its repository have no files for agents")

    async def _approvals(self, words: str) -> None:
        from hermes_exec_agent.frontends.chat.approver import TerminalApprover

        person = self._talk.person
        lasting = person.lasting if isinstance(person, TerminalApprover) else []
        if words:
            verb, _, text = words.partition(" ")
            number = parse_number(text, 1, len(lasting))
            if verb != "remove" or number is None:
                raise UsageError(
                    f"/approvals {to_line(words)}: N is the number of a line of /approvals",
                    remedy="/approvals, or /approvals remove N",
                )
            tool, scope = lasting[number - 1]
            if isinstance(person, TerminalApprover):
                person.forget(tool, scope)
            self._show(f"asked for again: {tool} {to_line(scope)}")
            return
        approvals = (await self._talk.conversation()).approvals
        self._show(f"mode: {approvals.mode}")
        for tool, mode in sorted(approvals.tools.items()):
            self._show(f"{mode}: {to_line(tool)}")
        for mode, rules in (("deny", approvals.commands.deny), ("allow", approvals.commands.allow)):
            for each in rules:
                self._show(f"{mode}: terminal {to_line(each.text)}")
        for index, (tool, scope) in enumerate(lasting, 1):
            self._row(f"{index}. always in this chat: {tool}", scope or "every call")

    async def _new(self, _: str) -> None:
        await self._talk.switch()
        self._show("a new conversation")

    async def _branch(self, words: str) -> None:
        id = (await self._talk.conversation()).id
        title = to_line(words, _TITLE)
        await self._talk.switch(id, fork=True)
        if title:
            await (await self._talk.conversation()).set_title(title)
        self._show(f"new conversation from {id}: {title or to_line(self._talk.log.title(id))}")

    async def _resume(self, prefix: str) -> None:
        log = self._talk.log
        if prefix:
            id = find_conversation(log, prefix, self._talk.participant)
            check_participant(log, id, self._talk.participant)
            await self._talk.switch(id)
            self._show(f"continuing {id}: {to_line(log.title(id))}")
            for text in recall_last_turn(log, id):
                self._show(text)
            return
        found = list_conversations(log, _LISTED)
        if not found:
            self._show("there is no conversation yet")
        for each in found:
            self._row(f"{each.id}  {format_time(each.last)} ", f"{SCRIPTED if each.scripted else ''}{each.title}")

    async def _search(self, words: str) -> None:
        log = self._talk.log
        text, wanted = parse_search(log, words)
        if not text:
            raise UsageError("/search needs words", remedy=f"/search WORDS {USAGE}")
        problems: list[str] = []
        found = await asyncio.to_thread(search_as_configured, log, text, _LISTED, wanted, problems.append)
        for line in problems:
            self._show(escape_text(line))
        for each in found:
            mark = "note: " if each.kind == "note" else ""
            self._row(f"{each.conversation}#{each.number}  {format_time(each.at)} ", f"{mark}{each.snippet}")
        if not found:
            self._show("nothing there has these words")

    async def _export(self, words: str) -> None:
        conversation = (await self._talk.conversation()).id
        first, _, rest = words.partition(" ")
        form, path = (
            (parse_format(first), rest.strip()) if first in EXPORT_FORMATS else (parse_format("markdown"), words)
        )
        path = path or f"conversation-{conversation}.{_ENDINGS[form]}"
        written = write_export(path, self._talk.log, conversation, form)
        self._show(f"written to {escape_text(written)}")


def _parse_count(command: str, text: str) -> int:
    """Return a positive number; 1 if there is none."""
    count = parse_number(text or "1", 1)
    if count is None:
        raise UsageError(
            f"{command} {to_line(text)}: it should be a number from 1", remedy=f"{command}, or {command} 2"
        )
    return count


def _parse_reasoning(word: str) -> Reasoning:
    for effort in EFFORTS:
        if effort == word:
            return Reasoning(effort=effort)
    if word in ("on", "off"):
        return Reasoning(thinking="on" if word == "on" else "off")
    raise UsageError(
        f"/reasoning {to_line(word)}: not an effort", remedy=f"{', '.join(EFFORTS)}, on, off, show or hide"
    )


def format_export(log: EventLog, conversation: str, form: ExportFormat) -> Iterator[str]:
    """Return the lines of a conversation in a format."""
    if form == "jsonl":
        return log.export(conversation)
    events = log.events(conversation)
    if form == "markdown":
        return to_markdown(events)
    return iter([json.dumps(to_messages(events), ensure_ascii=False, indent=2)])


def write_export(path: str, log: EventLog, conversation: str, form: ExportFormat) -> str:
    """Write a new file that only this user can read, and return its path.

    Raises:
        UsageError: the file exists.
        OSError: it cannot be created.
    """
    path = os.path.expanduser(path)  # noqa: PTH111  a Path would drop a ./ that was typed
    try:
        file = create_private_file(path)
    except FileExistsError:
        raise UsageError(f"{to_line(path)}: File exists", remedy="another name; no file is replaced") from None
    with file:
        file.writelines(f"{each.rstrip()}\n" for each in format_export(log, conversation, form))
    return path

"""The screen of ``top``, with textual. Everything is read by workers and threads, so no key ever waits for a target."""

from __future__ import annotations

import asyncio
import codecs
import re
import signal
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, ClassVar, Self

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, RichLog, Static, TabbedContent, TabPane

from hermes_exec.cli.console import escape_controls
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.table_layout import GAP, Layout, cut_cell, fit_columns
from hermes_exec.cli.top.tables import TABLES, CoreTable, describe_prices, find_jobs, find_shells
from hermes_exec.cli.top.view import Row, View, load_views
from hermes_exec.cli.top.watch import Watcher, program
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence
    from types import FrameType

    from textual import events

    from hermes_exec.cli.find_jobs import Guest
    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.pty_status import PtyStatus


_VIEWS_EVERY_S = 3.0
"""Seconds between two reads of the tables of other packages."""
_GRACE_S = 2.0
_JOBS = "jobs"
_OF_TABLES = {"show_log", "attach", "kill", "table", "next_table"}

_TAIL = 256 << 10
"""Bytes at the end of a log that are shown first."""
_MOST_LINES = 10_000
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


async def run_top(on: str | None, every_s: float) -> int:
    """Show the screen until the user quits it."""
    code = await Top(on, every_s, load_views()).run_async()
    if (task := asyncio.current_task()) is not None and task.cancelling():  # textual ends as if the user had quit
        raise asyncio.CancelledError
    return code or 0


class RowTable(DataTable[Text]):
    """A table whose columns fit the screen: cells are cut, and columns that matter less are left out."""

    def __init__(self, heads: Sequence[str], drop: Sequence[str]) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False)
        self._heads = heads
        self._drop = drop
        self._rows: list[Row] = []
        self._layout: Layout | None = None

    @property
    def selected(self) -> str | None:
        """The key of the row with the cursor."""
        return self._rows[self.cursor_row].key if 0 <= self.cursor_row < len(self._rows) else None

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on its row. Does nothing before and after the table is on the screen."""
        if not self.is_attached:
            return
        clean = [Row(row.key, tuple(escape_controls(flags.clean(cell)) for cell in row.cells)) for row in rows]
        cells = [row.cells for row in clean]
        width = max(self.size.width - GAP, 20)
        layout = fit_columns(self._heads, cells, width, drop=self._drop, measure=cell_len)
        if layout == self._layout and [row.key for row in clean] == [row.key for row in self._rows]:
            self._update_cells(clean, layout)
        else:
            self._replace_rows(clean, layout)
        self._rows, self._layout = clean, layout

    def on_resize(self, _: events.Resize) -> None:
        """Fit the columns to the new size."""
        self.show(self._rows)

    def _update_cells(self, rows: Sequence[Row], layout: Layout) -> None:
        for number, (row, before) in enumerate(zip(rows, self._rows, strict=True)):
            for place, (at, width) in enumerate(zip(layout.columns, layout.widths, strict=True)):
                if row.cells[at] != before.cells[at]:
                    self.update_cell_at(Coordinate(number, place), _cell(row.cells[at], width))

    def _replace_rows(self, rows: Sequence[Row], layout: Layout) -> None:
        selected, at = self.selected, self.cursor_row
        self.clear(columns=True)
        for index, width in zip(layout.columns, layout.widths, strict=True):
            self.add_column(Text(cut_cell(self._heads[index], width, cell_len)), width=width)
        for row in rows:
            pairs = zip(layout.columns, layout.widths, strict=True)
            self.add_row(*(_cell(row.cells[index], width) for index, width in pairs), key=row.key)
        keys = [row.key for row in rows]
        if keys:
            self.move_cursor(row=keys.index(selected) if selected in keys else min(at, len(keys) - 1))


def _cell(text: str, width: int) -> Text:
    return Text(cut_cell(text, width, cell_len), no_wrap=True)


class Top(App[int]):
    """The application: a tab for each table, a line for messages, and the keys."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    TabbedContent, TabPane, RowTable { height: 1fr; padding: 0; }
    Tabs:focus .-active { text-style: reverse; }
    RowTable > .datatable--cursor { text-style: reverse; background: ansi_default; color: ansi_default; }
    RowTable > .datatable--header { text-style: bold; background: ansi_default; color: ansi_default; }
    #message, #prices { height: auto; max-height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "show_log", "Log"),
        Binding("a", "attach", "Attach"),
        Binding("k", "kill", "Kill"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("tab", "next_table(1)", "Next table", priority=True),
        Binding("shift+tab", "next_table(-1)", show=False, priority=True),
        *(Binding(str(number), f"table({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, on: str | None, every_s: float, views: Sequence[View]) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours; none with NO_COLOR
        self.animation_level = "none"
        self._every_s = every_s
        self._views = views
        self.watcher = Watcher(on, every_s)
        tables: list[CoreTable | View] = [*TABLES, *views]
        self._titles = [each.title for each in tables]
        self._tables = {each.title.lower(): RowTable(each.heads, each.drop) for each in tables}
        self._names = list(self._tables)
        self._prices = Static("", id="prices", markup=False)
        self._message = Static("", id="message", markup=False)

    def compose(self) -> ComposeResult:
        """Create the tables."""
        with TabbedContent(initial=_JOBS):
            for number, (title, table) in enumerate(zip(self._titles, self._tables.values(), strict=True), 1):
                with TabPane(f"{number} {title}", id=title.lower()):
                    yield table
        yield self._prices
        yield self._message
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.theme = "ansi-dark"
        self.begin_capture_print(self)
        self.run_worker(self.watcher.run(), name="watcher")
        self.set_interval(self._every_s, self._show_tables)
        for view in self._views:
            self.run_worker(self._read_view(view), name=view.title)
        self._focus_table()
        self._show_tables()

    def on_print(self, event: events.Print) -> None:
        """Show a message that a reader prints for a person."""
        if text := event.text.strip().removeprefix("hermes-exec: "):
            self.say(text)

    def say(self, text: str) -> None:
        """Show a message in the line below the tables."""
        self._message.update(Text(escape_controls(flags.clean(text)), no_wrap=True))

    def _show_tables(self) -> None:
        for table in TABLES:
            self._table(table.title.lower()).show(table.build(self.watcher))
        if prices := describe_prices(self.watcher.billed, self.watcher.ended_today):
            self._prices.update(prices)

    async def _read_view(self, view: View) -> None:
        while True:
            try:
                self._table(view.title.lower()).show(await asyncio.to_thread(view.read))
            except HermesError as error:
                self.say(f"{view.title}: {error}")
            await asyncio.sleep(max(_VIEWS_EVERY_S, self._every_s))

    # Tables

    def _table(self, name: str) -> RowTable:
        return self._tables[name]

    @property
    def active(self) -> str:
        """The name of the table that is shown."""
        return self.query_one(TabbedContent).active or _JOBS

    def action_table(self, number: int) -> None:
        """Show a table."""
        if number <= len(self._names):
            self.query_one(TabbedContent).active = self._names[number - 1]
            self._focus_table()

    def action_next_table(self, step: int) -> None:
        """Show the table after this one, or before it."""
        at = self._names.index(self.active) + step
        self.action_table(at % len(self._names) + 1)

    def _focus_table(self) -> None:
        self._table(self.active).focus()

    def on_tabbed_content_tab_activated(self, _: TabbedContent.TabActivated) -> None:
        """Give the arrows to the table that is shown now."""
        self._focus_table()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  the signature of textual
        """Return whether a key applies: those of the tables do not while another screen is over them."""
        return len(self.screen_stack) == 1 or action == "quit" or action not in _OF_TABLES

    def _find(self, key: str | None) -> tuple[Guest, JobStatus | None, PtyStatus | None] | None:
        """Return the job or the kept shell of a row."""
        for guest, job in find_jobs(self.watcher):
            if self.active == _JOBS and job.id == key:
                return guest, job, None
        for guest, shell in find_shells(self.watcher):
            if self.active == "terminals" and shell.name == key:
                return guest, None, shell
        return None

    def _find_view(self) -> View | None:
        return next((view for view in self._views if view.title.lower() == self.active), None)

    def action_show_log(self) -> None:
        """Show the log of a job, or the text of a row of another package."""
        key, view = self._table(self.active).selected, self._find_view()
        found = self._find(key)
        if found is not None and (job := found[1]) is not None:
            guest = found[0]
            self.push_screen(TextScreen.of_job(guest.job(job), f"{job.id} {job.name}"))
        elif view is not None and view.show is not None and key is not None:
            self.push_screen(TextScreen.of_lines(lambda: view.show(key) if view.show else (), key))
        else:
            self.say("no log: select a job")

    async def action_attach(self) -> None:
        """Attach this terminal to a job, a shell or a conversation, and come back afterwards."""
        key, view = self._table(self.active).selected, self._find_view()
        argv: Sequence[str] = ()
        if self._find(key) is not None and key is not None:
            argv = ("attach", key)
        elif view is not None and view.attach is not None and key is not None:
            argv = view.attach(key)
        if not argv:
            self.say("nothing to attach to: select a job or a shell")
            return
        with self.suspend(), _ignore_interrupts():
            child = await asyncio.create_subprocess_exec(*program(*argv))
            code = await child.wait()
        self.refresh(layout=True)
        self.say(f"{' '.join(argv)}: exit code {code}")

    def action_kill(self) -> None:
        """Ask, then end a job or a shell."""
        found = self._find(self._table(self.active).selected)
        if found is None:
            self.say("nothing to end: select a job or a shell")
            return
        guest, job, shell = found
        status = job or shell
        if status is None or (job is not None and job.result is not None):
            self.say("the job has ended")
            return
        name = job.id if job else status.name
        question = f"End {name} in {guest.record.target} with all its processes?"

        def end(confirmed: bool | None) -> None:  # noqa: FBT001  the signature of textual
            if confirmed:
                self.run_worker(self._end(guest, job, name))

        self.push_screen(ConfirmScreen(question, status.command), end)

    async def _end(self, guest: Guest, job: JobStatus | None, name: str) -> None:
        from hermes_exec.terminal.pty import close_pty

        self.say(f"{name}: ending")
        try:
            if job is not None:
                result = await guest.job(job).kill(_GRACE_S, max_output=0)
                self.say(f"{name}: {result.reason}")
            else:
                await close_pty(guest.link, name)
                self.say(f"{name}: ended")
        except HermesError as error:
            self.say(f"{name}: {error}")


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


@contextmanager
def _ignore_interrupts() -> Generator[None]:
    """Leave Ctrl-C to the program in the foreground. A handler is not inherited by it, unlike ``SIG_IGN``."""
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TextScreen(Screen[None]):
    """Lines that may still grow. Their colours are left out, and control characters are escaped."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("end", "end", "End"),
    ]

    def __init__(self, title: str, lines: AsyncGenerator[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    @classmethod
    def of_job(cls, job: Job, title: str) -> Self:
        """Show the end of the log of a job, and follow it."""
        return cls(title, _follow(job))

    @classmethod
    def of_lines(cls, read: Callable[[], Sequence[str]], title: str) -> Self:
        """Show the lines that ``read`` returns, which is called in a thread."""

        async def lines() -> AsyncGenerator[str]:
            for line in await asyncio.to_thread(read):
                yield line

        return cls(title, lines())

    def compose(self) -> ComposeResult:
        """Create the text."""
        yield Static(Text(escape_controls(flags.clean(self._title)), style="bold"))
        yield RichLog(max_lines=_MOST_LINES, wrap=True, markup=False, highlight=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(RichLog).focus()
        self.run_worker(self._read())

    def action_end(self) -> None:
        """Scroll to the end."""
        self.query_one(RichLog).scroll_end(animate=False)

    async def _read(self) -> None:
        log = self.query_one(RichLog)
        try:
            async with aclosing(self._lines) as lines:
                async for line in lines:
                    log.write(Text(escape_controls(_COLOURS.sub("", flags.clean(line)).replace("\t", "    "))))
        except HermesError as error:
            log.write(Text(escape_controls(flags.clean(str(error)))))


async def _follow(job: Job) -> AsyncGenerator[str]:
    """Yield the lines of a log, the last one without its end as soon as it is written."""
    status = await job.status()
    size = status.stdout_bytes + status.stderr_bytes
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    async with aclosing(job.logs(-_TAIL if size > _TAIL else 0, follow=True)) as events:
        async for event in events:
            *lines, rest = (rest + decoder.decode(event.data)).split("\n")
            for line in lines:
                yield line.removesuffix("\r")
    if rest:
        yield rest
    yield f"[{(await job.status()).state.value}]"


class ConfirmScreen(ModalScreen[bool]):
    """A question that is answered with y or n; Enter means no."""

    CSS = """
    ConfirmScreen { align: center middle; background: ansi_default; }
    ConfirmScreen > Vertical { width: 76; max-width: 100%; height: auto; border: round ansi_default; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", priority=True),
        Binding("n,escape,enter,q", "answer(False)", "No", priority=True),
    ]

    def __init__(self, question: str, detail: str) -> None:
        super().__init__()
        self._question = question
        self._detail = detail

    def compose(self) -> ComposeResult:
        """Create the question."""
        with Vertical():
            yield Static(Text(escape_controls(flags.clean(self._question)), style="bold"))
            yield Static(Text(escape_controls(flags.clean(" ".join(self._detail.split())))))
            yield Static("[y/N]", markup=False)

    def action_answer(self, confirmed: bool) -> None:  # noqa: FBT001  the signature of textual
        """Close with the answer."""
        self.dismiss(confirmed)

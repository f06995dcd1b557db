"""The jobs of a guest: commands that belong to it, not to a client, so they outlive every connection.

A job ends when its program ends; processes that the program left running are then ended too. Its log and status are
kept for ``KEEP_S`` seconds unless a client prunes them earlier. The guest stays as long as there is any job, running
or ended. A job that is ``bound`` ends with the client that started it, and is then forgotten.
"""

import errno
import time

from ..core import wire
from ..process import runner
from .job import GRACE_S, GuestJob
from .job_log import BOTH, JobLogReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.server import GuestServer, Request

CAP_S = 86400.0
"""Default time limit of a job, in seconds."""
KEEP_S = 86400.0
"""Seconds for which an ended job is remembered."""
_MOST = 4096
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class JobTable:
    """All jobs by their ids, and the operations on them."""

    def __init__(self, server: "GuestServer") -> None:
        self._server = server
        self._jobs: "dict[str, GuestJob]" = {}
        server.keeps_alive.append(lambda: bool(self._jobs))

    def start(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Start a job under an id that the client chose; an id in use starts nothing."""
        name = arguments["job"]
        if not isinstance(name, str) or not 0 < len(name) <= 64 or not _LETTERS.issuperset(name):
            raise ValueError("a job's id has 1 to 64 of a-z, 0-9 and -")
        if name in self._jobs:
            request.fail("exists", "there is a job {} already".format(name), errno.EEXIST)
            return
        if len(self._jobs) >= _MOST:
            raise OSError(errno.EAGAIN, "this target remembers {} jobs, which is the most: prune some".format(_MOST))
        cap = arguments.get("cap_s", CAP_S)
        cap_s = None if cap is None else float(cap)
        job = self._jobs[name] = GuestJob(request, arguments, self._on_end)
        if cap_s is not None:
            job.timer = self._server.loop.call_later(cap_s, lambda: job.stop("timed_out", GRACE_S))
        if arguments.get("bound"):
            request.client.on_close.append(lambda: self._client_closed(job))

    def _client_closed(self, job: GuestJob) -> None:
        if self._jobs.get(job.id) is not job:
            return
        if job.over:
            self._forget(job)
        else:
            job.unwanted = True
            job.stop("cancelled", GRACE_S)

    def _on_end(self, job: GuestJob) -> None:
        if job.started and not job.unwanted:
            job.timer = self._server.loop.call_later(KEEP_S, lambda: self._forget(job))
        else:
            self._forget(job)

    def _forget(self, job: GuestJob) -> None:
        del self._jobs[job.id]
        job.forget()
        self._server.check_idle()

    def _find(self, request: "Request", arguments: "dict[str, Any]") -> "GuestJob | None":
        job = self._jobs.get(arguments["job"])
        if job is None:
            request.fail("missing", "no job {} here".format(arguments["job"]), errno.ENOENT)
        return job

    def status(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Answer with the status of one job, or of all."""
        if arguments.get("job") is None:
            request.finish({"jobs": [job.status() for job in self._jobs.values()]})
            return
        job = self._find(request, arguments)
        if job is not None:
            request.finish({"jobs": [job.status()]})

    def wait(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Answer when the job has ended."""
        job = self._find(request, arguments)
        if job is not None:
            self._when(job, job.on_over, request)

    def kill(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """End the job and its process tree; answer when they are gone or cannot be ended."""
        job = self._find(request, arguments)
        if job is not None:
            self._when(job, job.on_killed, request)
            job.stop("cancelled", float(arguments.get("grace", GRACE_S)))

    @staticmethod
    def _when(job: GuestJob, calls: "list[Callable[[], None]]", request: "Request") -> None:
        def tell() -> None:
            request.finish({"jobs": [job.status()]})

        def cancel() -> None:
            calls.remove(tell)
            request.finish({"cancelled": True})

        if job.over:
            tell()
        else:
            calls.append(tell)
            request.cancel = cancel

    def input(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Write the request's input to the job's standard input."""
        job = self._find(request, arguments)
        if job is not None:
            job.input.take(request, bool(arguments.get("last")))

    def log(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Send the job's log from an offset; the answer has the offset at which it ended."""
        job = self._find(request, arguments)
        if job is None:
            return
        stream: int = arguments.get("stream", BOTH)
        if stream not in (BOTH, wire.STDOUT, wire.STDERR):
            raise ValueError("no stream {}".format(stream))
        offset: int = arguments.get("offset", 0)
        size = job.log.sizes[stream]
        if offset < 0:
            offset = max(0, size + offset)
        since = arguments.get("since")
        if since is not None:
            offset = job.log.offset_since(time.time() - since, stream)
        end = None if arguments.get("follow") else size
        count = arguments.get("count")
        if count is not None:
            end = offset + count if end is None else min(end, offset + count)

        def on_end() -> None:
            request.finish({"end": reader.at})

        def cancel() -> None:
            reader.close()
            on_end()

        reader = JobLogReader(
            self._server.loop, job.log, request.open_output(wire.STDOUT), stream, (offset, end), on_end
        )
        request.cancel = cancel

    def prune(self, request: "Request", arguments: "dict[str, Any]") -> None:
        """Forget an ended job, or all that have ended."""
        if arguments.get("job") is None:
            ended = [job for job in self._jobs.values() if job.over]
        else:
            job = self._find(request, arguments)
            if job is None:
                return
            if not job.over:
                request.fail("running", "the job {} has not ended".format(job.id), errno.EBUSY)
                return
            ended = [job]
        for job in ended:
            self._forget(job)
        request.finish({"pruned": [job.id for job in ended], "left": len(self._jobs)})


def install(server: "GuestServer") -> None:
    """Register ``start``, ``jobs`` and the ``job_…`` operations."""
    runner.raise_descriptor_limit()  # a running job uses seven descriptors
    jobs = JobTable(server)
    server.operations["start"] = jobs.start
    server.operations["jobs"] = jobs.status
    server.operations["job_wait"] = jobs.wait
    server.operations["job_kill"] = jobs.kill
    server.operations["job_input"] = jobs.input
    server.operations["log"] = jobs.log
    server.operations["job_prune"] = jobs.prune

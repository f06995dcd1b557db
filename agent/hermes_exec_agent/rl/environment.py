"""The environment: rounds of trials, whose groups go to the trainer as soon as each is whole.

A round is a batch in a folder of its own, with one group of samples for each of its tasks. So trials have the caps, the
claims and the attempts of batches: a target or a model that fails is replaced by another attempt, and never scored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_exec._async import wait_done
from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.coordinator import Coordinator
from hermes_exec_agent.batch.trajectories.reading import Selection, TrajectoryReader
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.rl.group_record import POSTED, UNANSWERED
from hermes_exec_agent.rl.groups import GroupFault, check_group, convert_trajectory
from hermes_exec_agent.rl.trainer import TrainerError, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.start import RunPlan
    from hermes_exec_agent.batch.tasks import Task
    from hermes_exec_agent.batch.trials import Trial
    from hermes_exec_agent.rl.group_record import GroupRecord
    from hermes_exec_agent.rl.groups import ScoredGroup, ScoredSequence
    from hermes_exec_agent.rl.policy import PolicyServer
    from hermes_exec_agent.rl.trainer import Registration, TrainerClient

_LOOK_S = 0.5
_GIVE_UP = 8
"""Groups that may be dropped one after another before the environment ends."""
_EQUAL = "equal scores"
_REASON = 300


class EnvironmentFailed(HermesError):
    """The environment cannot continue; groups that were posted stay posted."""


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """The settings of an environment."""

    name: str = "hermes_exec"
    group_size: int = 8
    groups: int = 4
    """Groups of a round."""
    rounds: int | None = None
    """Rounds until it ends; None: until it is stopped."""
    ahead: int = 8
    """Groups of this environment that may wait in the trainer's queue before another round begins."""
    weight: float = 1.0
    send_equal: bool = False
    """Whether groups whose scores are all equal are posted."""


class Environment:
    """Runs rounds and posts their groups."""

    def __init__(
        self,
        plan: RunPlan,
        settings: EnvironmentSettings,
        record: GroupRecord,
        trainer: TrainerClient,
        *,
        policy: PolicyServer | None,
        clean: Callable[[str], str],
        say: Callable[[str], None],
    ) -> None:
        """``record`` is held; ``clean`` removes secrets; ``say`` gets a line about each round."""
        self._plan = plan
        self._settings = settings
        self._record = record
        self._trainer = trainer
        self._policy = policy
        self._clean = clean
        self._say = say
        self._coordinator: Coordinator | None = None
        self._stop = asyncio.Event()
        self._dropped = 0
        """Groups that were dropped one after another."""
        self.counts: Counter[str] = Counter()
        """Groups by outcome."""

    def stop(self, *, at_once: bool) -> None:
        """End after the trials that run, or at once."""
        self._stop.set()
        if self._coordinator is not None:
            self._coordinator.request_stop("end" if at_once else "drain")

    async def run(self) -> None:
        """Register, then run rounds until they are done or it is stopped.

        Raises:
            TrainerError: the trainer is gone, or its server is another one.
            PolicyError: the server of the policy has ended.
            EnvironmentFailed: no group can be posted.
        """
        settings = self._settings
        found = await self._until_stopped(self._trainer.register(settings.name, settings.group_size, settings.weight))
        if found is None:
            return
        self._say(f"registered as environment {found.env_id}; sequences of up to {found.max_tokens} tokens")
        try:
            number = 0
            while settings.rounds is None or number < settings.rounds:
                number += 1
                waiting = self._trainer.wait_for_space(settings.ahead)
                await self._until_stopped(waiting)
                if self._stop.is_set():
                    break
                await self._run_round(found)
        finally:
            await self._trainer.leave()

    async def _until_stopped(self, work: Any) -> Any:
        """Return the result of ``work``; None if the environment is stopped before, or the policy's server ends."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            while True:
                await asyncio.wait([task, stop], timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                if stop.done():
                    return None
                if self._policy is not None:
                    self._policy.check()
        finally:
            for each in (task, stop):
                each.cancel()
                await asyncio.wait([each])

    async def _run_round(self, registration: Registration) -> None:
        """Run one round, and post each of its groups once its trials have ended."""
        version = await self._prepare_policy()
        if self._stop.is_set():
            return
        number, path = self._record.next_round()
        tasks = _choose_tasks(self._plan.tasks, number, self._settings.groups)
        settings = self._plan.settings.model_copy(update={"policy": version, "samples": self._settings.group_size})
        run = await asyncio.to_thread(replace(self._plan, tasks=tasks, settings=settings).create, path)
        coordinator = self._coordinator = Coordinator(run, settings)
        epoch = asyncio.ensure_future(coordinator.run_epoch(lambda _: None))
        if self._stop.is_set():
            coordinator.request_stop("drain")
        waiting = _group_trials(run)
        try:
            with TrajectoryReader(run, coordinator.state, Selection(), self._clean) as reader:
                while not epoch.done():
                    await asyncio.wait([epoch], timeout=_LOOK_S)
                    if self._policy is not None:
                        self._policy.check()
                    await self._post_ended(waiting, coordinator, reader, registration, number, version)
                epoch.result()
                await self._post_ended(waiting, coordinator, reader, registration, number, version)
            for task in waiting:
                self._drop(task, number, version, GroupFault("not whole", coordinator.note or "the round was stopped"))
        finally:
            if not epoch.done():
                coordinator.request_stop("end")
                with contextlib.suppress(HermesError, asyncio.CancelledError):
                    await wait_done(epoch)
            self._coordinator = None
        self._say(f"round {number}: {', '.join(f'{count} {name}' for name, count in sorted(self.counts.items()))}")

    async def _prepare_policy(self) -> str:
        """Load the newest adapter, let the trials ask it, and return the version of the policy."""
        if self._policy is None:
            return ""
        await self._until_stopped(self._policy.load_newest())
        os.environ["DEFAULT_MODEL"] = self._policy.model
        return self._policy.version

    async def _post_ended(
        self,
        waiting: dict[str, list[Trial]],
        coordinator: Coordinator,
        reader: TrajectoryReader,
        registration: Registration,
        number: int,
        version: str,
    ) -> None:
        """Post or drop the groups whose trials have all ended, and remove them from ``waiting``."""
        states = coordinator.state.trials
        for task, trials in list(waiting.items()):
            results = [result for trial in trials if (result := states[trial.key].accepted) is not None]
            if len(results) < len(trials):
                continue
            del waiting[task]
            try:
                sequences = await asyncio.to_thread(_read_group, reader, trials, results)
                group = check_group(sequences, self._settings.group_size, registration.max_tokens)
                self._refuse_useless(group)
            except GroupFault as fault:
                self._drop(task, number, version, fault)
                continue
            await self._post(group, task, number, version)

    def _refuse_useless(self, group: ScoredGroup) -> None:
        """Refuse a group that a trainer cannot learn from.

        Raises:
            GroupFault: so it is.
        """
        if self._record.has(group.digest):
            raise GroupFault("duplicate", "its tokens are those of an earlier group")
        if group.has_equal_scores and not self._settings.send_equal:
            raise GroupFault(_EQUAL, f"all are {group.sequences[0].score:g}")

    def _drop(self, task: str, number: int, version: str, fault: GroupFault) -> None:
        """Record a group that is not posted.

        Raises:
            EnvironmentFailed: too many were dropped one after another.
        """
        self._record.drop({"task": task, "round": number, "policy": version}, fault.kind, str(fault))
        self.counts[fault.kind] += 1
        if fault.kind == _EQUAL or self._stop.is_set():
            return
        self._dropped += 1
        if self._dropped >= _GIVE_UP:
            raise EnvironmentFailed(f"{self._dropped} groups in a row could not be posted; the last one: {fault}")

    async def _post(self, group: ScoredGroup, task: str, number: int, version: str) -> None:
        """Record a group, post it once, and record the outcome."""
        body = group.to_wire()
        trials = [{"key": each.key, "score": each.score, "parts": dict(each.parts)} for each in group.sequences]
        opened = self._record.open(
            {"task": task, "round": number, "policy": version, "digest": group.digest, "trials": trials, "body": body}
        )
        self._dropped = 0
        try:
            await self._trainer.post(body)
        except Unanswered as error:
            self._record.close(opened, UNANSWERED, flatten(str(error), _REASON))
            self.counts[UNANSWERED] += 1
        except TrainerError as error:
            self._record.close(opened, "refused", flatten(str(error), _REASON))
            raise
        else:
            self._record.close(opened, POSTED)
            self.counts[POSTED] += 1


def _choose_tasks(tasks: Sequence[Task], number: int, groups: int) -> list[Task]:
    """Return the tasks of a round: they take turns."""
    count = min(groups, len(tasks))
    return [tasks[(number * count + place) % len(tasks)] for place in range(count)]


def _group_trials(run: RunFolder) -> dict[str, list[Trial]]:
    groups: dict[str, list[Trial]] = {}
    for trial in run.trials:
        groups.setdefault(trial.task.id, []).append(trial)
    return groups


def _read_group(
    reader: TrajectoryReader, trials: Sequence[Trial], results: Sequence[dict[str, Any]]
) -> list[ScoredSequence]:
    """Return the sequences of a group.

    Raises:
        GroupFault: one of its trials has none.
    """
    sequences: list[ScoredSequence] = []
    for trial, result in zip(trials, results, strict=True):
        if result["state"] != "graded":
            raise GroupFault("not graded", f"{trial.key}: {result['state']}: {flatten(str(result['reason']), _REASON)}")
        found = reader.read_trial(trial, result)
        if not found:
            raise GroupFault("without tokens", f"{trial.key}: its record has a secret, or is missing")
        if len(found) > 1:
            raise GroupFault("several rows", f"{trial.key}: its task has steps, each with a conversation of its own")
        sequences.append(convert_trajectory(found[0]))
    return sequences

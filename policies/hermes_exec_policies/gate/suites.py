"""Run what tells whether a skill works, and judge it by what was seen outside.

Whatever runs in the sandbox with the skill's code can be made by it to say anything. So its tests passing counts only
because the same tests fail when the skill is broken, with everything else the same; and results are compared here, by
whoever called it from outside and knows what to expect.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate import acts, trial
from hermes_exec_policies.gate.cases import Case, own_call, own_cases
from hermes_exec_policies.gate.imported import imported
from hermes_exec_policies.gate.launch import Called, launch, launch_imports, launch_tests, read_result
from hermes_exec_policies.gate.mutants import Mutant, mutants
from hermes_exec_policies.gate.verdict import Finding, advice, functional
from hermes_exec_policies.together import together

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree
    from hermes_exec_policies.model import Policy

_SHOWN = 400


@dataclass(slots=True)
class Seen:
    """What all suites together showed."""

    findings: list[Finding] = field(default_factory=list[Finding])
    tests: int = 0
    cases: int = 0
    answered: int = 0
    mutants: int = 0
    killed: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A skill, and everything that its sandboxes are made of."""

    tree: Tree
    manifest: Manifest
    policy: Policy
    testing: Path
    environment: Path | None = None
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(trial.TURNS))
    usual: list[Counter[Finding]] = field(default_factory=list["Counter[Finding]"])
    """Of its modules, once that was looked at."""

    @property
    def wall_s(self) -> float:
        """How long a run of it may take, in seconds."""
        return max(trial.WALL_S, self.manifest.needs.limits.get("limit-seconds", 0))

    @property
    def tests(self) -> list[str]:
        """The texts of its own tests."""
        files = [each.path for each in self.tree.files if each.path.startswith("tests/") and each.path.endswith(".py")]
        return [self.tree.read(each).decode() for each in files]

    async def call(self, arguments: dict[str, Any] | list[Any]) -> tuple[Called, trial.Trial]:
        """Call it once from outside."""
        seen = await trial.run(
            launch(
                self.policy, self.tree.root, self.manifest.module, entry=self.manifest.entry,
                function=self.manifest.signature.function, arguments=arguments, environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s,
        )  # fmt: skip
        return read_result(seen.ended), await self._judged(seen)

    async def test(self, root: Path | None = None) -> trial.Trial:
        """Run its own tests, with the files in ``root`` instead of its own."""
        seen = await trial.run(
            launch_tests(
                self.policy, root or self.tree.root, self.manifest.module, testing=self.testing,
                environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s,
        )  # fmt: skip
        return await self._judged(seen)

    async def _judged(self, seen: trial.Trial) -> trial.Trial:
        """The same, with what it did that no skill has a reason to do."""
        if not seen.ended.acts:
            return seen
        if not self.usual:
            self.usual.append(await self._usual())
        found = acts.findings(seen.ended.acts, self.usual[0], hosts=bool(self.manifest.needs.hosts))
        return dataclasses.replace(seen, hygiene=(*seen.hygiene, *found))

    async def _usual(self) -> Counter[Finding]:
        """What the modules that it imports do by themselves."""
        texts = {each.path: self.tree.read(each.path).decode() for each in self.tree.files if each.path.endswith(".py")}
        alone = await trial.run(
            launch_imports(
                self.policy, self.tree.root, self.manifest.module, imported(texts), testing=self.testing,
                environment=self.environment,
            ),
            self.turns, wall_s=self.wall_s,
        )  # fmt: skip
        return acts.most(alone.ended.acts)


async def run_suites(candidate: Candidate, cases: Sequence[Case], work: Path) -> Seen:
    """Every suite, the cheap and telling ones first; ``work`` is a private folder that its sandboxes can reach.

    Raises:
        HermesError: we could not do our part, so nothing is known.
    """
    seen = Seen()
    if not candidate.tests:
        seen.findings.append(functional("suites.no-tests", "there are no tests in tests/"))
        return seen
    await _own_tests(candidate, seen)
    if _refused(seen):
        return seen
    await _black_box(candidate, seen, cases)
    if _refused(seen):
        return seen
    await together([_contract(candidate, seen, cases), _mutation(candidate, seen, work)])
    return seen


async def _own_tests(candidate: Candidate, seen: Seen) -> None:
    run = await candidate.test()
    told = run.tests()
    passed = [each for each in told if each.get("outcome") == "passed"]
    seen.tests = len(passed)
    seen.findings += run.hygiene
    if run.limit:
        seen.findings.append(functional("suites.limit", f"its tests were ended at a limit: {run.limit}"))
        return
    failed = [each for each in told if each.get("outcome") in {"failed", "error"}]
    if run.ended.exit.code != 0 or failed:
        why = " | ".join(f"{each.get('test')}: {str(each.get('why'))[-_SHOWN:]}" for each in failed[:2])
        seen.findings += trial.denials(why or run.log[-4000:])
        seen.findings += _missing(why or run.log[-4000:])
        seen.findings.append(functional("suites.tests", f"its tests fail: {why or run.log[-_SHOWN:]}"))
    elif not passed:
        seen.findings.append(
            functional("suites.tests", "no test of its own passed: they are skipped, or expected to fail")
        )


async def _black_box(candidate: Candidate, seen: Seen, cases: Sequence[Case]) -> None:
    """Held-out cases, and what its own tests say in plain values, called from outside."""
    own = own_cases(candidate.tests, candidate.manifest.signature.function)
    answers = await together(candidate.call(case.arguments) for case in (*cases, *own))
    for case, (called, run) in zip((*cases, *own), answers, strict=True):
        seen.findings += run.hygiene
        if called.ok and case.held_by(called.result):
            seen.answered += case.anything
            seen.cases += case in cases and not case.anything
            continue
        seen.findings += trial.denials(called.message) + _missing(
            called.missing and f"No module named '{called.missing}'"
        )
        gave = str(called.result)[:_SHOWN] if called.ok else f"{called.error} {called.message}".strip()
        if case in own:
            seen.findings.append(
                functional(
                    "suites.contradiction",
                    f"its tests say {case.result} for {case.arguments}; called from outside it gives {gave}",
                )
            )
        elif case.anything:
            why = f"for {case.arguments} it failed in use, and gives no result still: {gave}"
            seen.findings.append(functional("suites.answer", why))
        else:
            # A model that is told what a held-out case expects writes that into the skill.
            seen.findings.append(
                functional(
                    "suites.case",
                    f"for {case.arguments} it must give {case.result} and gives {gave}",
                    told="a case that is not in its tests does not hold",
                )
            )


async def _contract(candidate: Candidate, seen: Seen, cases: Sequence[Case]) -> None:
    """What any caller may rely on: a described and typed function, an error for bad input, the same again."""
    signature = candidate.manifest.signature
    entry = candidate.manifest.entry
    if not signature.documented:
        seen.findings.append(advice("suites.docstring", f"{signature.function} has no docstring", entry))
    if not signature.typed:
        seen.findings.append(advice("suites.types", f"{signature.function} is not fully typed", entry))
    if not signature.json:
        seen.findings.append(advice("suites.json", f"{signature.function} takes or gives what JSON cannot say", entry))
    called, run = await candidate.call({"no such argument": None})
    seen.findings += run.hygiene
    if called.error.startswith(("signal", "limit", "lost")) or called.error in {"timeout", "no result"}:
        seen.findings.append(
            functional("suites.bad-input", f"on bad input it ends with {called.error} instead of an error", entry)
        )
    given = cases[0].arguments if cases else own_call(candidate.tests, signature.function)
    if given is not None and candidate.manifest.metadata.get("deterministic", "").lower() in {"true", "yes"}:
        answers = [(await candidate.call(given))[0] for _ in range(2)]
        if answers[0].result != answers[1].result:
            seen.findings.append(functional("suites.determinism", "it says that it is deterministic and is not", entry))


async def _mutation(candidate: Candidate, seen: Seen, work: Path) -> None:
    entry = candidate.manifest.entry
    made = mutants(candidate.tree.read(entry).decode(), candidate.manifest.signature.function)
    runs = await together(_tested(candidate, each, work / f"mutant{number}") for number, each in enumerate(made))
    # A run that was ended from outside has not said that all is well.
    noticed = [run.ended.exit.code not in {0, None} or bool(run.limit) for run in runs]
    broken = [killed for mutant, killed in zip(made, noticed, strict=True) if not mutant.must_live]
    seen.mutants, seen.killed = len(broken), sum(broken)
    for mutant, run, killed in zip(made, runs, noticed, strict=True):
        if mutant.must_live:
            if run.limit:
                said = f"its tests were ended at a limit when they ran again: {run.limit}"
                seen.findings.append(functional("suites.limit", said))
            elif killed:
                said = "its tests fail when only its layout changes: they have to test what it does, not its text"
                seen.findings.append(functional("suites.mutation", said, entry))
        elif not killed and mutant.must_die:
            seen.findings.append(
                functional(
                    "suites.mutation",
                    f"its tests pass although {candidate.manifest.signature.function} is broken: it {mutant.name}",
                    entry,
                )
            )
        elif not killed:
            seen.findings.append(advice("suites.mutation", f"its tests do not notice: {mutant.name}", entry))


async def _tested(candidate: Candidate, mutant: Mutant, root: Path) -> trial.Trial:
    """Run its tests with the mutant in its place."""
    shutil.copytree(candidate.tree.root, root)
    (root / candidate.manifest.entry).write_text(mutant.source, encoding="utf-8")
    run = await candidate.test(root)
    shutil.rmtree(root)
    return run


def _missing(text: str) -> list[Finding]:
    """A proposal for a module that is not there; nothing is installed by a skill itself."""
    names = dict.fromkeys(re.findall(r"No module named '([A-Za-z0-9_]+)", text or ""))
    return [
        functional(
            "suites.missing-module",
            f"there is no module {name}; if a package has it, declare that package in requirements.txt and try again",
        )
        for name in names
    ]


def _refused(seen: Seen) -> bool:
    return any(each.kind != "advice" for each in seen.findings)

"""Run the suites that show whether a skill works, and judge it by observations from outside of the sandbox.

A skill can forge the output of every program that shares its sandbox. So passing tests count only if the same tests
fail once the skill is broken, with everything else unchanged; and results of calls are compared here, outside of the
sandbox, with the expected ones.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from hermes_exec._async import gather_or_cancel
from hermes_exec_policies.gate import launch
from hermes_exec_policies.gate.analysis.conditions import find_unchecked, record_conditions
from hermes_exec_policies.gate.analysis.mutants import Mutant, freeze_result, make_mutants, make_small_mutants
from hermes_exec_policies.gate.analysis.own_tests import extract_call, extract_cases
from hermes_exec_policies.gate.analysis.parts import Part, list_parts
from hermes_exec_policies.gate.analysis.trial_arguments import generate_arguments, has_encoded, make_variants
from hermes_exec_policies.gate.cases import Case, find_difference, is_same, strongest_level
from hermes_exec_policies.gate.verdict import Finding, Level, advice, functional

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_policies.gate.candidate import Candidate
    from hermes_exec_policies.gate.cases import LeftFile
    from hermes_exec_policies.gate.launch import CallResult
    from hermes_exec_policies.gate.manifest import Manifest

_SHOWN = 400
_GENERATED = 40
"""The most calls with generated arguments."""
_CRASHES = ("signal", "no result")
_IMPORT_S = 0.3
_SMALL_S = 4.0
"""The CPU time of the small mutants, as a multiple of the duration of the skill's tests; pytest's import is added."""
_VARIED = 3
"""The most values of one argument with which it is called to see whether the argument has an effect."""
_MOST_PARTS = 200
"""The most parts of a function without which its cases are tried."""
_LONGEST_SCRIPT = 20_000
"""Characters of a script whose parts are tried; each is written out without every part."""
_NAMED_PARTS = 3
_KEPT_FILES = 65_536
"""Bytes of files that are compared for each of these calls."""
_TRIED = 2
"""The most cases with which a mutant that the tests do not notice is called."""


@dataclass(slots=True)
class SuiteResults:
    """The combined results of all suites."""

    findings: list[Finding] = field(default_factory=list[Finding])
    tests: int = 0
    cases: int = 0
    answered: int = 0
    mutants: int = 0
    killed: int = 0
    duration_s: float = 0.0
    """The duration of its own tests."""
    calls: list[SkillCall] = field(default_factory=list["SkillCall"])
    """The calls from outside that had the expected results."""
    unvaried: str = ""
    """Why it is not known whether its results depend on its arguments; empty if it is known."""
    unchecked: str = ""
    """A way through the function that no case takes, or parts of it that no case needs; empty if there are none."""


@dataclass(frozen=True, slots=True)
class SkillCall:
    """One call from outside that returned a result."""

    case: Case
    result: Any
    left: Mapping[str, LeftFile]

    def differs_from(self, other: SkillCall) -> bool:
        """Return whether the other call returned another result, or wrote other files."""
        return not is_same(self.result, other.result) or self.digests != other.digests

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each written file."""
        return {path: each.sha256 for path, each in self.left.items()}


async def run_suites(candidate: Candidate, cases: Sequence[Case], work: Path) -> SuiteResults:
    """Run every suite, the cheap and decisive ones first; ``work`` is a private folder that the sandboxes can reach.

    Raises:
        HermesError: a suite could not be run, so the skill was not judged.
    """
    seen = SuiteResults()
    if not candidate.tests:
        seen.findings.append(
            functional(
                "suites.no-tests",
                "there are no tests in tests/; add one that compares a result: assert main.run(…) == …",
            )
        )
        return seen
    await _run_own_tests(candidate, seen)
    if _is_refused(seen):
        return seen
    await _run_cases(candidate, seen, cases)
    if _is_refused(seen):
        return seen
    constant = _explain_constant(candidate, seen, cases)
    found = await gather_or_cancel(
        [
            _check_contract(candidate, cases),
            _check_dependence(candidate, seen, constant, work),
            _check_observation(candidate, seen.calls),
            _check_unseen(candidate, seen),
            _run_mutants(candidate, seen, work),
            _run_small_mutants(candidate, seen, work, constant=bool(constant)),
        ]
    )
    seen.findings += [each for findings in found for each in findings]
    seen.unchecked = seen.unchecked or seen.unvaried
    return seen


async def _run_own_tests(candidate: Candidate, seen: SuiteResults) -> None:
    run = await candidate.test()
    told = run.tests()
    passed = [each for each in told if each.get("outcome") == "passed"]
    seen.tests = len(passed)
    seen.duration_s = run.ended.duration_s
    seen.findings += run.hygiene
    if run.limit:
        seen.findings.append(functional("suites.limit", f"its tests were ended at a limit: {run.limit}; {launch.MORE}"))
        return
    failed = [each for each in told if each.get("outcome") in {"failed", "error"}]
    if run.ended.exit.code != 0 or failed:
        why = " | ".join(f"{each.get('test')}: {str(each.get('why'))[-_SHOWN:]}" for each in failed[:2])
        seen.findings += launch.find_denials(why or run.log[-4000:])
        seen.findings += _find_missing_modules(why or run.log[-4000:])
        seen.findings.append(functional("suites.tests", f"its tests fail: {why or run.log[-_SHOWN:]}"))
    elif not passed:
        seen.findings.append(
            functional(
                "suites.tests", "no test of its own passed: they are skipped, or expected to fail; add one that is not"
            )
        )


async def _run_cases(candidate: Candidate, seen: SuiteResults, cases: Sequence[Case]) -> None:
    """Call the held-out cases and literal assertions of its own tests from outside, once for equal arguments."""
    own = await candidate.analyze(extract_cases, candidate.tests, candidate.manifest.signature.function)
    keys = [_case_key(candidate, case) for case in (*cases, *own)]
    distinct = dict(zip(keys, (*cases, *own), strict=True))
    answers = dict(
        zip(distinct, await gather_or_cancel(_call_twice(candidate, each) for each in distinct.values()), strict=True)
    )
    for observed, used in answers.values():
        seen.findings += [*observed[1].hygiene, *used[1].hygiene]
    for key, case in zip(keys, (*cases, *own), strict=True):
        if failed := next((each for each in answers[key] if not _fulfils(case, *each)), None):
            called, run = failed
        else:
            called, run = answers[key][0]
            seen.answered += case.anything
            seen.cases += case in cases and not case.anything
            seen.calls.append(SkillCall(case, called.result, run.left))
            continue
        seen.findings += launch.find_denials(called.message) + _find_missing_modules(
            called.missing and f"No module named '{called.missing}'"
        )
        gave = str(called.result)[:_SHOWN] if called.ok else f"{called.error} {called.message}".strip()
        path, wrong = find_difference(case.files, run.left) if called.ok else ("", "")
        seen.findings.append(_describe_failure(case, gave, path, wrong, own=case in own))


async def _call_twice(candidate: Candidate, case: Case) -> list[tuple[CallResult, launch.SandboxRun]]:
    """Call a case with every system call observed, and exactly as in use, where a skill cannot recognize the judge."""
    return await gather_or_cancel(candidate.call(case.arguments, as_used=as_used) for as_used in (False, True))


def _fulfils(case: Case, called: CallResult, run: launch.SandboxRun) -> bool:
    """Return whether a call fulfils a case."""
    return called.ok and case.accepts(called.result, run.left)


def _case_key(candidate: Candidate, case: Case) -> str:
    """Return a key that is equal for equal arguments, by name or by position."""
    named = candidate.by_name(case.arguments)
    return json.dumps(case.arguments if named is None else named, sort_keys=True)


def _describe_failure(case: Case, gave: str, path: str, wrong: str, *, own: bool) -> Finding:
    """Describe a failed case. A held-out result is hidden from the model, which would hard-code it; a path is not."""
    if own:
        said = f"its tests say {case.result} for {case.arguments}; called from outside it gives {gave}; correct one"
        return functional("suites.contradiction", said)
    if case.anything:
        said = f"for {case.arguments} it failed in use, and gives no result still: {gave}"
        return functional("suites.answer", said)
    told = "a case that is not in its tests does not hold"
    if case.returns and not path:
        return functional("suites.case", f"for {case.arguments} it must give {case.result} and gives {gave}", told=told)
    if not path:
        return functional("suites.case", f"for {case.arguments} it must leave files and gives {gave}", told=told)
    said = f"for {case.arguments} it gives {gave}, and the file {path} {wrong}"
    missing = "does not exist" if wrong == "does not exist" else "differs from the expected one"
    return functional("suites.case", said, told=f"{told}: the file {path} below /app/data {missing}")


def _explain_constant(candidate: Candidate, seen: SuiteResults, cases: Sequence[Case]) -> str:
    """Return why all results may be the same; empty if neither an unseen case nor SKILL.md says so.

    What SKILL.md says is the author's own word, so the skill is self-tested then.
    """
    if right := next((each.constant for each in cases if each.constant and each.source.unseen), ""):
        return right
    declared = " ".join(candidate.manifest.metadata.get("constant", "").split())[:_SHOWN]
    if declared:
        seen.unvaried = f"SKILL.md alone says that all results are the same ({declared}), and no case has constant"
    return declared


async def _check_dependence(candidate: Candidate, seen: SuiteResults, constant: str, work: Path) -> list[Finding]:
    """Check whether results depend on the arguments; ``constant`` is a reason why they need not."""
    if constant:
        return [advice("suites.constant", f"what it gives may be the same for all arguments: {constant}")]
    signature, entry = candidate.manifest.signature, candidate.manifest.entry
    held = [each for each in seen.calls if each.case.arguments]
    calls = held or await _first_call(candidate)
    if not calls or any(not is_same(each.result, calls[0].result) for each in calls):
        return []
    results = 0
    for base in calls[:_TRIED]:
        waiting = await candidate.analyze(make_variants, base.case.arguments, signature.schema)
        for wave in (waiting[:1], waiting[1:4], waiting[4:]):
            for called, run in await gather_or_cancel(candidate.call(each) for each in wave):
                # Failures with generated arguments do not count against the skill.
                other = SkillCall(base.case, called.result, run.left)
                if called.ok and base.differs_from(other):
                    by_result = not is_same(base.result, other.result)
                    if by_result or not await _is_random(candidate, base):
                        return []
                results += called.ok
    if not results:
        return []
    if await candidate.analyze(has_encoded, candidate.by_name(calls[0].case.arguments) or {}):
        seen.unvaried = "another result than that of the encoded bytes of its cases was not seen"
        return [advice("suites.constant", seen.unvaried, entry)]
    if held and (calls[0].result or calls[0].left):
        said = f"{signature.function} gives {str(calls[0].result)[:_SHOWN]} and the same files whatever it is given"
        if await _show_other_result(candidate, work / "frozen"):
            seen.unvaried = "only its own tests show another result"
            return [advice("suites.constant", f"{said}; its own tests show another result", entry)]
        told = f"what {signature.function} gives does not depend on its arguments"
        return [
            functional("suites.constant", said, entry, told=f"{entry}: {told}: {_suggest_test(candidate.manifest)}")
        ]
    # An honest search or check also returns an empty result for most arguments, so this is advice. A skill that ignores
    # an argument is refused by the mutants, as neither tests nor cases notice the one that ignores it.
    return [
        advice("suites.constant", f"{signature.function} gave nothing but {calls[0].result} in what was tried", entry)
    ]


async def _show_other_result(candidate: Candidate, folder: Path) -> bool:
    """Return whether its own tests see two results, for example of files or variables that they prepare."""
    manifest = candidate.manifest
    frozen = await candidate.analyze(freeze_result, candidate.source, manifest.signature.function)
    if frozen is None:
        return False
    run = await _test_mutant(candidate, frozen, folder)
    return run.ended.exit.code not in {0, None} and not run.limit


def _suggest_test(manifest: Manifest, argument: str = "") -> str:
    """Return the smallest change that shows that the result depends on an argument, or that it rightly does not."""
    call = f"{manifest.entry.rpartition('/')[2].removesuffix('.py')}.{manifest.signature.function}"
    one, other = (f"{call}({argument}={each})" if argument else f"{call}({each})" for each in ("ONE", "OTHER"))
    return (
        "a function that ignores its arguments is wrong for most calls. Add a test whose two values have different"
        f" results: def test_other_value(monkeypatch): assert {one} != {other}; if"
        " they depend on a file below /app/data or on a variable, let the test write it or call monkeypatch.setenv."
        ' If every result is rightly the same, give the reason in SKILL.md: metadata: {constant: "REASON"}'
    )


async def _check_observation(candidate: Candidate, calls: Sequence[SkillCall]) -> list[Finding]:
    """Check with arguments that no case has whether results depend on being observed, as a sniffing skill's do."""
    held = [each.case.arguments for each in calls if each.case.arguments]
    for arguments in held[:1]:
        variants = await candidate.analyze(make_variants, arguments, candidate.manifest.signature.schema)
        for variant in random.sample(variants, min(_TRIED, len(variants))):
            order = [False, True] * _TRIED
            random.shuffle(order)
            results: dict[bool, list[Any]] = {False: [], True: []}
            for as_used in order:
                called, _ = await candidate.call(variant, as_used=as_used)
                results[as_used].append([called.result, called.error])
            steady = all(is_same(each, kind[0]) for kind in results.values() for each in kind)
            if steady and not is_same(results[False][0], results[True][0]):
                said = f"for {variant} it gives {str(results[True][0])[:_SHOWN]} in use and another result in a check"
                return [functional("suites.differs", said, told="its result differs between two equal calls")]
    return []


async def _check_unseen(candidate: Candidate, seen: SuiteResults) -> list[Finding]:
    """Call it with generated arguments; record the way that no case takes, or the parts that no case needs."""
    found = await _check_generated(candidate, seen)
    outside = [each.case for each in seen.calls if each.case.has_known_result]
    if not seen.unchecked and strongest_level(outside).unseen:
        seen.unchecked = await _find_unneeded(candidate, outside)
    return found


async def _check_generated(candidate: Candidate, seen: SuiteResults) -> list[Finding]:
    """Call it with arguments that are generated from its signature, each in a process of its own in one sandbox.

    Findings: a call ended the process without an error, or raised one that the docstring does not name. The results get
    a way through the function that no case from outside takes.
    """
    signature, entry = candidate.manifest.signature, candidate.manifest.entry
    named = [(each.case, given) for each in seen.calls if (given := candidate.by_name(each.case.arguments)) is not None]
    known = [given for _, given in named]
    made = await candidate.analyze(
        generate_arguments, signature.schema, known, candidate.source, _GENERATED, secrets.randbits(32)
    )
    if not made or not signature.names:
        return []
    source, recorded = await candidate.analyze(record_conditions, candidate.source, signature.function)
    root = candidate.work / "instrumented" / candidate.manifest.module
    candidate.plant(source, root)
    called, log = await candidate.call_varied([*known, *made], root)
    shutil.rmtree(root.parent)
    if len(called) < len(known) + len(made) or all(each.error.startswith(_CRASHES) for each in called):
        seen.unchecked = "its copy with recorded conditions cannot be called, so that ways without a case are not known"
        return []
    generated = dict(enumerate(zip(made, called[len(known) :], strict=False), len(known)))
    if crash := await _find_crash(candidate, generated.values()):
        return [crash]
    outside = [number for number, (case, _) in enumerate(named) if case.has_known_result]
    results: list[tuple[int, Any]] = [*enumerate(known)]
    results += [(number, arguments) for number, (arguments, each) in generated.items() if each.ok]
    seen.unchecked = await candidate.analyze(find_unchecked, recorded, log, outside, results)
    errors = {each.error for _, each in generated.values()} - {"", "timeout", *signature.raises}
    if errors and signature.raises:
        return [advice("suites.errors", f"it raises {min(errors)}, which its docstring does not name", entry)]
    return []


async def _find_crash(candidate: Candidate, calls: Iterable[tuple[Any, CallResult]]) -> Finding | None:
    """Return a finding about the first call that ends the process, also without the recorder of conditions."""
    for arguments, called in calls:
        if called.error.startswith(_CRASHES):
            again, _ = await candidate.call(arguments, as_used=True)
            if again.error.startswith(_CRASHES):
                said = f"for {arguments} it ends with {again.error}; raise an exception instead"
                return functional("suites.bad-input", said, candidate.manifest.entry)
    return None


async def _find_unneeded(candidate: Candidate, cases: Sequence[Case]) -> str:
    """Return which parts no case needs; empty if the cases need all.

    Args:
        candidate: the skill.
        cases: calls with known results, all of which it has fulfilled.
    """
    source = candidate.source
    if len(source) > _LONGEST_SCRIPT:
        return f"the script has more than {_LONGEST_SCRIPT} characters, too many to try the cases without each part"
    function = candidate.manifest.signature.function
    whole, *left = await candidate.analyze(list_parts, source, function, _MOST_PARTS)
    if len(left) > _MOST_PARTS:
        return f"the function has more than {_MOST_PARTS} parts, too many to try the cases without each"
    for case in cases:
        if not left:
            break
        texts = [whole.source, *(each.source for each in left)]
        called = await candidate.call_texts(texts, case.arguments, _KEPT_FILES if case.files else 0)
        held = [each.ok and case.accepts(each.result, files) for each, files in called]
        if len(held) < len(texts) or not held[0]:
            return "the cases could not be tried without each part of the function"
        left = [each for each, same in zip(left, held[1:], strict=True) if same]
    return _name_parts(left)


def _name_parts(left: Sequence[Part]) -> str:
    """Name the first parts that are not within one another; empty if there are none."""
    named: list[Part] = []
    for each in left:
        if not any(each.line == other.line and each.text in other.text for other in named):
            named.append(each)
    shown = ", ".join(f"{each.text!r} (line {each.line})" for each in named[:_NAMED_PARTS])
    return f"no case needs {shown}" if shown else ""


async def _first_call(candidate: Candidate) -> list[SkillCall]:
    """Call the skill with the first literal arguments in its tests."""
    given = await candidate.analyze(extract_call, candidate.tests, candidate.manifest.signature.function)
    if not given:
        return []
    case = Case(given, None, Level.SELF_TESTED, returns=False)
    called, run = await candidate.call(given)
    return [SkillCall(case, called.result, run.left)] if called.ok else []


async def _is_random(candidate: Candidate, base: SkillCall) -> bool:
    """Return whether a repeated call differs, for example because a file contains the time."""
    called, run = await candidate.call(base.case.arguments)
    return not called.ok or base.differs_from(SkillCall(base.case, called.result, run.left))


async def _check_contract(candidate: Candidate, cases: Sequence[Case]) -> list[Finding]:
    """Check the contract with callers: a docstring and types, an error for bad input, determinism if declared."""
    signature = candidate.manifest.signature
    entry = candidate.manifest.entry
    found: list[Finding] = []
    if not signature.documented:
        found.append(advice("suites.docstring", f"{signature.function} has no docstring", entry))
    if not signature.typed:
        found.append(advice("suites.types", f"{signature.function} is not fully typed", entry))
    if not signature.json:
        found.append(advice("suites.json", f"{signature.function} takes or gives what JSON cannot say", entry))
    called, run = await candidate.call({"no such argument": None})
    found += run.hygiene
    if called.error.startswith(("signal", "limit", "lost")) or called.error in {"timeout", "no result"}:
        found.append(
            functional(
                "suites.bad-input", f"on bad input it ends with {called.error}; raise an exception instead", entry
            )
        )
    is_deterministic = candidate.manifest.metadata.get("deterministic", "").lower() in {"true", "yes"}
    given: dict[str, Any] | list[Any] | None = cases[0].arguments if cases else None
    if is_deterministic and given is None:
        given = await candidate.analyze(extract_call, candidate.tests, signature.function)
    if is_deterministic and given is not None:
        answers = [(await candidate.call(given))[0] for _ in range(2)]
        if answers[0].result != answers[1].result:
            found.append(
                functional(
                    "suites.determinism",
                    "it declares deterministic, and two equal calls gave two results: let them give the same,"
                    " or remove that from SKILL.md",
                    entry,
                )
            )
    return found


async def _run_mutants(candidate: Candidate, seen: SuiteResults, work: Path) -> list[Finding]:
    entry = candidate.manifest.entry
    made = await candidate.analyze(make_mutants, candidate.source, candidate.manifest.signature.function)
    runs = await gather_or_cancel(
        _test_mutant(candidate, each, work / f"mutant{number}") for number, each in enumerate(made)
    )
    # A run that a limit ended does not count as passed.
    noticed = [run.ended.exit.code not in {0, None} or bool(run.limit) for run in runs]
    broken = [killed for mutant, killed in zip(made, noticed, strict=True) if not mutant.must_live]
    seen.mutants += len(broken)
    seen.killed += sum(broken)
    found: list[Finding] = []
    for mutant, run, killed in zip(made, runs, noticed, strict=True):
        if mutant.must_live:
            if run.limit:
                said = f"its tests were ended at a limit when they ran again: {run.limit}"
                found.append(functional("suites.limit", said))
            elif killed:
                said = "its tests fail when only its layout changes: they have to test what it does, not its text"
                found.append(functional("suites.mutation", said, entry))
        elif not killed and mutant.must_die:
            found.append(
                functional(
                    "suites.mutation",
                    f"its tests pass although {candidate.manifest.signature.function} is broken: it {mutant.name};"
                    " compare its result with the expected one in a test, by assert … == …",
                    entry,
                )
            )
    return found


async def _run_small_mutants(candidate: Candidate, seen: SuiteResults, work: Path, *, constant: bool) -> list[Finding]:
    """Check whether the tests, or else the cases, notice one small change; a ``constant`` result needs no argument."""
    entry, function = candidate.manifest.entry, candidate.manifest.signature.function
    small = await candidate.analyze(make_small_mutants, candidate.source, function)
    if not small:
        return []
    whole = await candidate.analyze(make_mutants, candidate.source, function)
    # The first of these must pass and the second must fail; otherwise the others prove nothing.
    made = [each for each in whole if each.must_live or each.name == "raises"][::-1] + small
    folder = work / "mutants"
    for number, mutant in enumerate(made):
        candidate.plant(mutant.source, folder / str(number) / candidate.manifest.module)
    codes = await candidate.test_mutants(folder, range(len(made)), _IMPORT_S + _SMALL_S * seen.duration_s)
    if codes.get(0) != 0 or codes.get(1, 0) == 0:
        said = "its tests do not pass in another folder: let them find its scripts next to themselves, by __file__"
        return [advice("suites.mutation", said, entry)]
    tried = {number: mutant for number, mutant in enumerate(made) if number in codes and number > 1}
    unnoticed = [number for number in tried if codes[number] == 0]
    unnoticed = [
        number
        for number in unnoticed
        if tried[number].kind not in {"argument", "write"} or await _holds(candidate, seen, folder / str(number))
    ]
    seen.mutants += len(tried)
    seen.killed += len(tried) - len(unnoticed)
    writes = [number for number, mutant in tried.items() if mutant.kind == "write"]
    unwritten = bool(writes) and set(writes) <= set(unnoticed)
    found: list[Finding] = []
    for number in unnoticed:
        mutant = tried[number]
        why = f"neither its tests nor a case notice it when {mutant.name}"
        if mutant.kind == "argument" and not constant and not await _depends_on(candidate, seen, mutant.argument):
            found.append(
                functional("suites.mutation", f"{why}: {_suggest_test(candidate.manifest, mutant.argument)}", entry)
            )
        elif mutant.kind == "write" and unwritten:
            change = "compare the file's whole text in a test after the call: assert open(PATH).read() == TEXT"
            found.append(functional("suites.mutation", f"{why}, so what it writes may be wrong: {change}", entry))
        else:
            found.append(advice("suites.mutation", f"its tests do not notice: {mutant.name}", entry))
    shutil.rmtree(folder)
    return found


async def _holds(candidate: Candidate, seen: SuiteResults, folder: Path) -> bool:
    """Return whether the cases pass with a mutant, too; cases with files are called first."""
    calls = sorted(seen.calls, key=lambda each: not each.case.files)
    for each in calls[:_TRIED]:
        called, run = await candidate.call(each.case.arguments, folder / candidate.manifest.module)
        if not (called.ok and each.case.accepts(called.result, run.left)):
            return False
    return True


async def _depends_on(candidate: Candidate, seen: SuiteResults, name: str) -> bool:
    """Return whether the result or the files change when one argument alone does, also if no test notices."""
    for base in (seen.calls or await _first_call(candidate))[:_TRIED]:
        given = candidate.by_name(base.case.arguments)
        if given is None or name not in given:
            continue
        parts: dict[str, Any] = dict(candidate.manifest.signature.schema.get("properties") or {})
        kind = {"properties": {name: parts.get(name, {})}}
        alone = await candidate.analyze(make_variants, {name: given[name]}, kind)
        calls = [candidate.call({**given, **cast("dict[str, Any]", each)}) for each in alone[:_VARIED]]
        others = await gather_or_cancel(calls)
        if any(
            called.ok and base.differs_from(SkillCall(base.case, called.result, run.left)) for called, run in others
        ):
            return not await _is_random(candidate, base)
    return False


async def _test_mutant(candidate: Candidate, mutant: Mutant, root: Path) -> launch.SandboxRun:
    """Run the skill's tests with the mutant as its script."""
    candidate.plant(mutant.source, root)
    run = await candidate.test(root)
    shutil.rmtree(root)
    return run


def _find_missing_modules(text: str) -> list[Finding]:
    """Return findings that suggest declaring a package for a missing module; a skill never installs packages."""
    names = dict.fromkeys(re.findall(r"No module named '([A-Za-z0-9_]+)", text or ""))
    return [
        functional(
            "suites.missing-module",
            f"there is no module {name}; if a package has it, declare that package in requirements.txt and try again",
        )
        for name in names
    ]


def _is_refused(seen: SuiteResults) -> bool:
    return any(each.kind != "advice" for each in seen.findings)

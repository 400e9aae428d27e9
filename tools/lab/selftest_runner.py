# SPDX-License-Identifier: GPL-2.0
"""Runs selftests on one set of machines, which many tests share, and reports KTAP."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib import guest_tidy

from .selftest_case import Case
from .selftest_case import DataError
from .selftest_case import SkipTest
from .selftest_case import Subject
from .selftest_case import Test
from .vm import Lab
from .vm import MachineDied
from .vm import Options
from .vm import Platform
from .vm import standard_disks
from .vm_trouble import stood_still

LEFTOVER_SECONDS = 15.0
# So much of why a test failed is said again at the end.
REASON_LINES = 8
# Of a run so many cases may be tried again: more is no bad luck of the machine.
SECOND_TRIES = 4
KMEMLEAK = "/sys/kernel/debug/kmemleak"


@dataclass
class Outcome:
    """How one test ended: ``ok``, ``not ok`` or ``skip``, and why."""

    verdict: str
    notes: list[str]
    directive: str = ""


@dataclass
class Attempt:
    """One run of a case: what failed, why it was skipped, and if time cannot be the reason."""

    notes: list[str]
    skipped: str | None = None
    final: bool = False


@dataclass(frozen=True)
class Spent:
    """A time, and how long the host's processors had worked for the machines by then; in seconds."""

    time: float
    processor: float

    def since(self, before: Spent) -> str:
        """What was spent since then. The processors' time tells what a test costs, whatever runs beside it."""
        return f"{self.time - before.time:.1f} s, processors {self.processor - before.processor:.1f} s"


class Watchdog:
    """Kills the machines when a test outlives its time, which ends its waits."""

    def __init__(self, lab: Lab, seconds: float) -> None:
        self.fired = False
        self._lab = lab
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True

    def _fire(self) -> None:
        self.fired = True
        for node in self._lab.nodes:
            node.stop_emulator()

    def __enter__(self) -> Watchdog:
        self._timer.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._timer.cancel()


class Runner:
    """Runs subjects one after another; a lab is kept while its kind is wanted."""

    def __init__(self, platform: Platform, modules: str,
                 say: Callable[[str], None] | None = None, quick: bool = False) -> None:
        self.platform = platform
        self.modules = modules
        self.quick = quick
        self.say = say or (lambda text: print(text, flush=True))
        self.counts = {"ok": 0, "not ok": 0, "skip": 0}
        # What failed and why, to be said again at the end.
        self.failures: list[str] = []
        # What passed only at the second try, and why it failed at the first.
        self.second_tries: list[str] = []
        # For machines that have ended.
        self._processor_seconds = 0.0
        self._lab: Lab | None = None
        self._lab_kind: tuple[str, int, int, int] | None = None

    # Machines

    def lab(self, subject: Subject) -> Lab:
        """Machines fit for a subject, booted if there are none."""
        kind = kind_of(subject)
        if self._lab is not None and self._lab_kind != kind:
            self.close()
        if self._lab is None:
            options = Options(cpus=subject.cpus, memory_mib=subject.memory_mib,
                              links=subject.links)
            lab = Lab(self.platform, subject.topology, options)
            self._lab = lab
            self._lab_kind = kind
            standard_disks(lab)
            for node in lab.nodes:
                node.module_set = self.modules
            lab.start()
            for node in lab.nodes:
                node.dmesg_check()
                if node.exists(KMEMLEAK):
                    node.write(KMEMLEAK, "clear")
        return self._lab

    def close(self) -> None:
        """End the machines."""
        if self._lab is not None:
            self._processor_seconds = self._spent().processor
            self._lab.close()
            self._lab = None

    def _spent(self) -> Spent:
        """What has been spent until now."""
        nodes = self._lab.nodes if self._lab is not None else []
        machines = sum(node.processor_seconds() for node in nodes)
        return Spent(time.monotonic(), self._processor_seconds + machines)

    # Tests

    def run_subject(self, subject: Subject, cases: list[Case], leaks: bool) -> bool:
        """Run one file's cases as a nested KTAP test; true if one failed.

        With ``leaks``, on the debug kernel, kmemleak's verdict is one more.
        """
        leaks = leaks and self.platform.flavour == "debug"
        self.say(f"    KTAP version 1\n    # Subtest: {subject.name}\n"
                 f"    1..{len(cases) + leaks}")
        failed = False
        began = self._spent()
        for index, case in enumerate(cases, start=1):
            started = self._spent()
            outcome = self.run_case(subject, case)
            failed |= self._report(subject, index, case.name, outcome)
            self.say(f"    # {case.name}: {self._spent().since(started)}")
        if leaks:
            failed |= self._report(subject, len(cases) + 1, "memory_leaks", self._look_for_leaks())
        self.say(f"# {subject.name}: {self._spent().since(began)}")
        return failed

    def _report(self, subject: Subject, index: int, name: str, outcome: Outcome) -> bool:
        """Count and print one test's end; true if it failed."""
        self.counts[outcome.verdict] += 1
        for note in outcome.notes:
            for line in note.splitlines():
                self.say(f"    # {line}")
        if outcome.verdict == "not ok":
            self.failures.append(_indented(f"{subject.name}.{name}:", outcome.notes))
        result = "not ok" if outcome.verdict == "not ok" else "ok"
        directive = f" # {outcome.directive}" if outcome.directive else ""
        self.say(f"    {result} {index} {name}{directive}")
        return outcome.verdict == "not ok"

    def _look_for_leaks(self) -> Outcome:
        """Unload our modules and ask kmemleak what is unreferenced on any machine."""
        if self._lab is None:
            return Outcome("skip", [], "SKIP the machines of this subject are gone")
        notes = []
        try:
            for node in self._lab.nodes:
                node.modules_unload_all()
                # An object is reported by the second scan that does not find it.
                node.write(KMEMLEAK, "scan", timeout=60)
                node.write(KMEMLEAK, "scan", timeout=60)
                found = node.read(KMEMLEAK, timeout=60)
                if found:
                    notes.append(f"{node.name}: {found[:4000]}")
                node.write(KMEMLEAK, "clear")
                node.dmesg_check()
        except (MachineDied, OSError, RuntimeError) as error:
            notes.append(f"looking for leaks: {error}")
            self.close()
        return Outcome("not ok" if notes else "ok", notes)

    def run_case(self, subject: Subject, case: Case) -> Outcome:
        """Run one test whatever happens to the machines."""
        if self.platform.flavour not in case.kernels:
            return Outcome("skip", [], f"SKIP not for the {self.platform.flavour} kernel")
        if self.modules not in case.module_sets:
            return Outcome("skip", [], f"SKIP not for module set {self.modules}")
        attempt = self._attempt(subject, case)
        if attempt.notes and self.modules == "c" and case.c_known_failure:
            return Outcome("skip", attempt.notes[:1], f"SKIP known failure of C: {case.c_known_failure}")
        if attempt.notes and not attempt.final and self.quick and len(self.second_tries) < SECOND_TRIES:
            attempt = self._second_try(subject, case, attempt)
        if attempt.notes:
            return Outcome("not ok", attempt.notes)
        if attempt.skipped is not None:
            return Outcome("skip", [], f"SKIP {attempt.skipped}")
        return Outcome("ok", [])

    def _second_try(self, subject: Subject, case: Case, first: Attempt) -> Attempt:
        """Try a case again on new machines, and remember that it took that.

        In `make test` the emulated machines share two processors with a kernel's
        build. One that stands still for seconds breaks limits of time that are part
        of what is tested. What a kernel reported is never tried again, nor are wrong data
        and requests that did not end once.
        """
        self.close()
        why = _indented(f"{subject.name}.{case.name}:", first.notes)
        self.second_tries.append(why)
        self.say(f"    # {case.name}: failed, and is tried again on new machines:")
        for line in (line for note in first.notes for line in note.splitlines()):
            self.say(f"    #   {line}")
        second = self._attempt(subject, case)
        if second.notes:
            self.second_tries.remove(why)
        return second

    def _attempt(self, subject: Subject, case: Case) -> Attempt:
        """Run a case on machines that are booted if there are none."""
        try:
            lab = self.lab(subject)
        except (MachineDied, OSError, TimeoutError, RuntimeError) as error:
            notes = [f"machines did not boot: {error}"]
            if self._lab is not None:
                notes.append(self._lab.last_words())
            self.close()
            return Attempt(notes)
        return self._run(lab, case)

    def _run(self, lab: Lab, case: Case) -> Attempt:
        """Run a case on live machines."""
        test = Test(lab, self.modules, lambda text: self.say(f"    # {text}"), self.quick)
        notes: list[str] = []
        skipped = None
        try:
            marks = [node.log_mark() for node in lab.nodes]
        except MachineDied as error:
            self.close()
            return Attempt([f"before the test: {error}"])
        troubled = reported = wrong = False
        slow = max(node.slow for node in lab.nodes)
        with Watchdog(lab, case.timeout * slow) as watchdog:
            try:
                case.function(test)
            except SkipTest as why:
                skipped = str(why)
            except Exception as error:
                notes.append(describe(error))
                wrong = isinstance(error, DataError)
            notes += test.run_deferred()
            try:
                for program in (program for node in lab.nodes for program in node.end_jobs()):
                    self.say(f"    # still running after the test, ended: {program}")
                notes += self._leftovers(lab)
                troubled, reported = self._check_logs(lab, notes)
            except (MachineDied, OSError, RuntimeError) as error:
                notes.append(f"after the test: {error}")
                # What the kernel said last is on the console only.
                troubled = reported = not watchdog.fired
        if watchdog.fired:
            notes.insert(0, f"took longer than {case.timeout * slow:.0f} s; machines killed")
        if notes:
            self._after_failure(lab, notes, marks, troubled or watchdog.fired)
        return Attempt(notes, skipped, reported or wrong)

    def _leftovers(self, lab: Lab) -> list[str]:
        """Tidy every machine; what a test left behind is its failure."""
        problems = []
        for node in lab.nodes:
            for left in node.call_within(LEFTOVER_SECONDS + 30, guest_tidy.tidy,
                                         patience=LEFTOVER_SECONDS * node.slow):
                problems.append(f"{node.name}: left behind: {left}")
        return problems

    def _check_logs(self, lab: Lab, notes: list[str]) -> tuple[bool, bool]:
        """Whether a kernel complained of anything, and of more than that it stood still."""
        troubled = reported = False
        for node in lab.nodes:
            trouble = node.dmesg_check()
            if trouble:
                troubled = True
                reported |= not stood_still(trouble)
                notes.append(f"{node.name}: kernel log:\n" + "\n".join(trouble[:60]))
            while node.known_reports:
                self.say(f"    # {node.name}: not a failure: {node.known_reports.pop()}")
        return troubled, reported

    def _after_failure(self, lab: Lab, notes: list[str], marks: list[int],
                       troubled: bool) -> None:
        """Say what the machines said, and keep them only if they are sound."""
        try:
            for node, mark in zip(lab.nodes, marks, strict=False):
                lines = node.log_since(mark)[-25:]
                notes.append(f"{node.name}: kernel log of this test:\n  " + "\n  ".join(lines))
                if not troubled:
                    node.modules_unload_all()
                    node.loaded_parameters.clear()
            sound = not troubled
        except (MachineDied, OSError, RuntimeError):
            sound = False
            notes.append(lab.last_words())
        if not sound:
            self.close()


def kind_of(subject: Subject) -> tuple[str, int, int, int]:
    """What machines a subject needs; those of the same kind share them."""
    return subject.topology, subject.cpus, subject.memory_mib, subject.links


def _indented(title: str, notes: list[str]) -> str:
    """A case's name and the beginning of what failed, to be said again at the end."""
    return "\n".join([title, *[f"  {line}" for note in notes for line in note.splitlines()][:REASON_LINES]])


def describe(error: Exception) -> str:
    """An exception with the lines of the test that led to it."""
    where = [f"{Path(frame.filename).name}:{frame.lineno}"
             for frame in traceback.extract_tb(error.__traceback__)
             if "selftests" in frame.filename]
    text = str(error) or repr(error)
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{' > '.join(where)}: {kind}{text}" if where else f"{kind}{text}"


def usage_error(text: str) -> int:
    """Complain on stderr; the exit code."""
    print(f"selftest: {text}", file=sys.stderr)
    return 2

# SPDX-License-Identifier: GPL-2.0
"""Runs subjects on several sets of machines side by side.

A test waits for its machines more than they compute, so that two sets of them
take little more than half the time of one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from . import summary
from .selftest_case import Case
from .selftest_case import Subject
from .selftest_runner import kind_of
from .selftest_runner import Runner
from .summary import Count
from .vm import Platform

Chosen = tuple[Subject, list[Case]]
NONE = Count()
# A subject, its cases, how many ended how, and how many seconds it took.
Ended = Callable[[Subject, list[Case], dict[str, int], float], None]


class Pool:
    """What the workers share: the subjects that are left, and the report."""

    def __init__(self, subjects: list[Chosen], say: Callable[[str], None]) -> None:
        # Machines are booted once for each kind and worker.
        self._left = sorted(subjects, key=lambda item: (kind_of(item[0]), -len(item[1])))
        self._say = say
        self._lock = threading.Lock()
        self.finished = 0

    def take(self, last: Subject | None, from_end: bool) -> Chosen | None:
        """The next subject, of the kind of the ``last`` one if there is one left.

        Workers begin at different ends of the list, so that each has its own kind.
        """
        with self._lock:
            if not self._left:
                return None
            same = [item for item in self._left if last is not None and kind_of(item[0]) == kind_of(last)]
            chosen = (same or self._left)[-1 if from_end and not same else 0]
            self._left.remove(chosen)
            return chosen

    def report(self, lines: list[str], failed: bool, subject: Subject) -> None:
        """Say what a subject's tests said, in one piece."""
        with self._lock:
            self.finished += 1
            for line in lines:
                self._say(line)
            self._say(f"{'not ok' if failed else 'ok'} {self.finished} {subject.name}")

    def set_ended(self) -> None:
        """Say that a set of machines has ended, for `make test`, which may start another one in its place."""
        with self._lock:
            self._say(summary.SET_ENDED)


def work(pool: Pool, runner: Runner, lines: list[str], from_end: bool, ended: Ended | None = None) -> None:
    """One worker: subjects one after another, until none is left."""
    try:
        chosen = pool.take(None, from_end)
        while chosen is not None:
            subject, cases = chosen
            following = pool.take(subject, from_end)
            # Looking for leaks takes as long as a case, so the quick run does it once for all.
            last = following is None or kind_of(following[0]) != kind_of(subject)
            before, began = dict(runner.counts), time.monotonic()
            failed = runner.run_subject(subject, cases, leaks=last or not runner.quick)
            if ended is not None:
                counts = {verdict: number - before[verdict] for verdict, number in runner.counts.items()}
                ended(subject, cases, counts, time.monotonic() - began)
            pool.report(lines, failed, subject)
            lines.clear()
            chosen = following
    finally:
        runner.close()
        pool.set_ended()


def run(platform: Platform, modules: str, subjects: list[Chosen], jobs: int, quick: bool,
        ended: Ended | None = None, before: Count = NONE) -> bool:
    """Run the chosen cases on ``jobs`` sets of machines; true if none failed.

    ``ended`` is told of each subject that was run; what passed ``before`` is part of the total.
    """

    def say(text: str) -> None:
        print(text, flush=True)

    say("KTAP version 1")
    say(f"1..{len(subjects)}")
    pool = Pool(subjects, say)
    runners = []
    threads = []
    for number in range(min(jobs, len(subjects))):
        lines: list[str] = []
        runner = Runner(platform, modules, lines.append if jobs > 1 else say, quick)
        runners.append(runner)
        threads.append(threading.Thread(target=work, args=(pool, runner, lines, number % 2 == 1, ended)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    missing = len(subjects) - pool.finished
    if missing:
        # Its thread has said why.
        say(f"# {missing} subjects were not run to their end")
        runners[0].counts["not ok"] += missing
    for mark, texts in ((summary.SECOND_TRY, [text for runner in runners for text in runner.second_tries]),
                        (summary.FAILURE, [text for runner in runners for text in runner.failures])):
        for line in (line for text in texts for line in text.splitlines()):
            say(f"{mark} {line}")
    counts = {verdict: sum(runner.counts[verdict] for runner in runners) for verdict in ("ok", "not ok", "skip")}
    say(str(before + Count(counts["ok"], counts["not ok"], counts["skip"])))
    return counts["not ok"] == 0

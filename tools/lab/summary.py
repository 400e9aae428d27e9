# SPDX-License-Identifier: GPL-2.0
"""Counting tests from what the various runners print."""

import re
from dataclasses import dataclass

# Begins a line that says what failed and why, for who reads the end only.
FAILURE = "# FAILED"

# The same for what passed only when it was tried again.
SECOND_TRY = "# AT THE SECOND TRY"

# Begins a line about a subject that passed, now or before, see results.py.
PASSED = "# PASSED"

# A line about a set of machines of several.
SET_ENDED = "# a set of machines has ended"

# So many lines at the end of a runner's output have its reason for failing.
LAST_LINES = 12

_OURS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_UNITTEST = re.compile(r"(failures|errors|skipped)=(\d+)")


@dataclass(frozen=True)
class Count:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def _sum(rows: list[tuple[str, str, str]]) -> Count:
    return sum((Count(*map(int, row)) for row in rows), Count())


def _unittest(text: str) -> Count:
    ran = sum(map(int, _RAN.findall(text)))
    if ran == 0:
        return Count()
    # Only the closing line of the run has these words with a number.
    end = text[text.rindex("Ran ") :]
    parts = {name: int(number) for name, number in _UNITTEST.findall(end)}
    failed = parts.get("failures", 0) + parts.get("errors", 0)
    skipped = parts.get("skipped", 0)
    return Count(ran - failed - skipped, failed, skipped)


def failures(title: str, text: str) -> list[str]:
    """What failed and why, by the output of a runner that failed: its end if it does not say."""
    lines = text.splitlines()
    said = [line for line in lines if line.startswith(FAILURE)]
    return said or [f"{FAILURE} {title}:", *(f"{FAILURE}   {line}" for line in lines[-LAST_LINES:])]


def second_tries(text: str) -> list[str]:
    """What passed only when it was tried again, by the output of a runner."""
    return [line for line in text.splitlines() if line.startswith(SECOND_TRY)]


def passed(text: str) -> list[str]:
    """What passed and when, by the output of a runner that goes on where it was stopped."""
    return [line for line in text.splitlines() if line.startswith(PASSED)]


def count(text: str, status: int) -> Count:
    """The tests that a runner's output reports.

    Output without any report counts as one test, passed or failed by the
    exit status; a failing status never counts as a success.
    """
    ours = _OURS.findall(text)
    # Our own runners end with their total; what came before is part of it.
    found = _sum(ours[-1:]) if ours else _sum(_CARGO.findall(text)) + _unittest(text)
    if found == Count():
        return Count(1) if status == 0 else Count(failed=1)
    if status != 0 and found.failed == 0:
        return found + Count(failed=1)
    return found

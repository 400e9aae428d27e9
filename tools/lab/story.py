# SPDX-License-Identifier: GPL-2.0
"""Tests that tell a story: cases in an order, each of which goes on from what the one before left."""

from __future__ import annotations

import subprocess
import time
import traceback
from collections.abc import Callable
from collections.abc import Sequence

from .vm import MachineDied


def expect(condition: bool, text: str) -> None:
    """Fails the case with a text."""
    if not condition:
        raise AssertionError(text)


def quoted(text: str) -> str:
    """A word for the shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def run(cases: Sequence[Callable[[], None]], last_words: Callable[[], str]) -> int:
    """Runs the cases and says of each how it ended; those after one that failed are not tried. The exit code."""
    passed = failed = 0
    broken = ""
    for case in cases:
        name = case.__name__
        started = time.monotonic()
        if broken:
            print(f"not ok - {name}: not tried after {broken}", flush=True)
            failed += 1
            continue
        try:
            case()
        except (AssertionError, MachineDied, OSError, RuntimeError, subprocess.CalledProcessError) as error:
            failed += 1
            broken = name
            print(f"not ok - {name}: {case.__doc__} ({time.monotonic() - started:.0f} s)", flush=True)
            print("\n".join(f"# {line}" for line in f"{error}".splitlines()), flush=True)
            if not isinstance(error, AssertionError):
                print("\n".join(f"# {line}" for line in traceback.format_exc().splitlines()[-6:]), flush=True)
            if words := last_words():
                print(words, flush=True)
        else:
            passed += 1
            print(f"ok - {name}: {case.__doc__} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0

# SPDX-License-Identifier: GPL-2.0
"""How long a function of the kernel takes, call by call."""

from __future__ import annotations

import os
import re
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
GROUP = "selftest_time"
# A line of the trace: the task, the time in seconds, and which of the two it is.
LINE = re.compile(r"-(\d+)\s+\[\d+\].*?\s(\d+\.\d+): (begin|end): ")


def _symbol(function: str) -> str:
    """What the compiler has made of a function's name."""
    names = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    for name in sorted(names):
        # The part of a function that is seldom run has a name as well, and no beginning to probe.
        if name == function or (name.startswith(f"{function}.") and not name.endswith(".cold")):
            return name
    raise LookupError(f"the kernel has no function {function}")


def _write_probes(*definitions: str) -> None:
    """Add or remove probes, each by a write of its own."""
    # Python's mode "a" seeks to the end, which this file refuses.
    file = os.open(TRACING / "kprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        for definition in definitions:
            os.write(file, definition.encode())
    finally:
        os.close(file)


def start(function: str) -> None:
    """Note each call of a function from now on."""
    symbol = _symbol(function)
    _write_probes(f"p:{GROUP}/begin {symbol}", f"r:{GROUP}/end {symbol}")
    (TRACING / "trace").write_text("")
    (TRACING / "events" / GROUP / "enable").write_text("1")


def stop() -> list[float]:
    """End that; the times of the calls, in microseconds."""
    (TRACING / "events" / GROUP / "enable").write_text("0")
    begun: dict[str, float] = {}
    times = []
    for task, when, which in LINE.findall((TRACING / "trace").read_text()):
        if which == "begin":
            begun[task] = float(when)
        elif task in begun:
            times.append((float(when) - begun.pop(task)) * 1e6)
    _write_probes(f"-:{GROUP}/begin", f"-:{GROUP}/end")
    (TRACING / "trace").write_text("")
    return times

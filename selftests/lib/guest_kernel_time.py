# SPDX-License-Identifier: GPL-2.0
"""How long a function of the kernel takes, call by call."""

from __future__ import annotations

import re
from pathlib import Path

TRACING = Path("/sys/kernel/tracing")
GROUP = "selftest_time"
# A line of the trace: the task, the time in seconds, and which of the two it is.
LINE = re.compile(r"-(\d+)\s+\[\d+\].*?\s(\d+\.\d+): (begin|end): ")


def _symbol(function: str) -> str:
    """What the compiler has made of a function's name."""
    for line in Path("/proc/kallsyms").read_text().splitlines():
        name = line.split()[2]
        if name == function or name.startswith(f"{function}."):
            return name
    raise LookupError(f"the kernel has no function {function}")


def start(function: str) -> None:
    """Note each call of a function from now on."""
    symbol = _symbol(function)
    with (TRACING / "kprobe_events").open("a") as file:
        file.write(f"p:{GROUP}/begin {symbol}\n")
        file.flush()
        file.write(f"r:{GROUP}/end {symbol}\n")
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
    with (TRACING / "kprobe_events").open("a") as file:
        file.write(f"-:{GROUP}/begin\n")
        file.flush()
        file.write(f"-:{GROUP}/end\n")
    (TRACING / "trace").write_text("")
    return times

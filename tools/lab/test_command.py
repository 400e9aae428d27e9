# SPDX-License-Identifier: GPL-2.0
"""`make test` and `make test-long`: all stages, ending with one line that counts."""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass

from . import build
from . import rnbdctl
from . import setup
from . import steps
from . import summary

_LAB = [sys.executable, "-m", "lab"]


@dataclass(frozen=True)
class Stage:
    """One part of the tests: a title, and the command that runs it."""

    title: str
    argv: tuple[str, ...]


BEFORE = (
    Stage("formatting", ("fmt", "--check")),
    Stage("lints", ("lint",)),
    Stage("host tests", ("host-test",)),
)
# More than two only slow each other down on two cores.
JOBS = ("--jobs", "2")


def selftests(kernel: str, long: bool) -> Stage:
    """The selftests of one kernel: all of them, or those that are part of `make test`."""
    return Stage(f"selftests, {kernel} kernel", ("selftest", "--kernel", kernel, *JOBS, *([] if long else ["--quick"])))


def run_stage(stage: Stage, remarks: list[str]) -> summary.Count:
    """Runs a stage, showing its output as it comes; gives its count, and adds what failed or nearly did."""
    print(f"== {stage.title}", flush=True)
    started = time.monotonic()
    text = []
    process = subprocess.Popen([*_LAB, *stage.argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        text.append(line)
        print(line, end="", flush=True)
    count = summary.count("".join(text), process.wait())
    remarks += summary.second_tries("".join(text))
    if count.failed:
        remarks += summary.failures(stage.title, "".join(text))
    print(f"== {stage.title}: {count} ({time.monotonic() - started:.0f} s)", flush=True)
    return count


def _failed(title: str, text: str) -> tuple[str, summary.Count]:
    print(f"== {title}: FAILED\n{text}", flush=True)
    return title, summary.Count(failed=1)


def run(options: argparse.Namespace) -> int:
    """Runs all stages; a failed one does not keep the others from running."""
    counts: list[tuple[str, summary.Count]] = []
    remarks: list[str] = []
    if not setup.setup("test") or not setup.setup("deb-test"):
        print("0 passed, 1 failed, 0 skipped")
        return 1
    # What the debug kernel needs is made while the other stages run.
    debug_log = steps.log_path("setup-debug")
    with open(debug_log, "w") as out:
        argv = ["nice", "-n", "19", *_LAB, "setup", "--for", "debug"]
        background = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            for stage in BEFORE:
                counts.append((stage.title, run_stage(stage, remarks)))
            counts += _with_modules("stock", options.long, remarks)
            deb = Stage("packages", ("deb-test", *([] if options.long else ["--quick"])))
            counts.append((deb.title, run_stage(deb, remarks)))
            if background.poll() is None:
                print(f"== waiting for the debug kernel (see {debug_log})", flush=True)
            if background.wait() != 0:
                counts.append(_failed("debug kernel", debug_log.read_text()))
            else:
                counts += _with_modules("debug", options.long, remarks)
        finally:
            if background.poll() is None:
                background.terminate()
                background.wait()
    print()
    for line in remarks:
        print(line)
    for title, count in counts:
        print(f"{title}: {count}")
    total = sum((count for _, count in counts), summary.Count())
    print(total, flush=True)
    return 1 if total.failed else 0


def _with_modules(kernel: str, long: bool, remarks: list[str]) -> list[tuple[str, summary.Count]]:
    try:
        build.modules(kernel)
        rnbdctl.program()
        if kernel == "debug":
            build.modules(kernel, kunit=True)
    except RuntimeError as error:
        return [_failed(f"modules for the {kernel} kernel", str(error))]
    stage = selftests(kernel, long)
    return [(stage.title, run_stage(stage, remarks))]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser("test", help="run the tests")
    command.add_argument("--long", action="store_true", help="all cases on both kernels; takes hours")
    command.set_defaults(run=run)

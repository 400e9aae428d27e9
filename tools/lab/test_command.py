# SPDX-License-Identifier: GPL-2.0
"""`make test` and `make test-long`: all stages, ending with one line that counts."""

import argparse
import concurrent.futures
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from . import build
from . import kernel_choice
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
    Stage("stack of functions", ("stack", "--check")),
)


# What `make test-long` can be told to run alone: this, and each other kernel by its name.
DEBUG_ARM64 = "debug-arm64"
PARTS = ("checks", "stock", "interop", "packages", "debug", DEBUG_ARM64)
# The long form on the debug kernel of arm64: all KUnit suites, and the subjects with the most going on at once.
ON_DEBUG_ARM64 = ("kunit", "data_integrity", "batches", "cpu_hotplug", "failover", "many_sessions", "unload")
# What a request costs does not depend on what runs beside it.
BUDGET = Stage("budget of a request", ("budget",))
# Clients and servers of two kernels.
PAIRS = ((kernel_choice.supported()[0], "stock"), ("arm64", "stock"))


def others() -> list[str]:
    """The names of the kernels that the modules are made for, but for the stock kernel."""
    return [name for name in kernel_choice.every() if name != kernel_choice.STOCK]


# So many sets of machines keep two cores busy.
SETS = 3


def selftests(kernel: str, long: bool, more: Sequence[str] = ()) -> Stage:
    """The selftests of one kernel: all of them, or those that are part of `make test`."""
    # On the debug kernel a third set takes too much from the others, and the long form, which tries everything once,
    # leaves the host some time. The other kernels' few cases share one set, and the kernels run side by side: each
    # set has to be booted.
    jobs = 2 if long or kernel == "debug" else SETS if kernel == kernel_choice.STOCK else 1
    form = ["--resume", *more] if long else ["--quick"]
    return Stage(f"selftests, {kernel} kernel", ("selftest", "--kernel", kernel, "--jobs", str(jobs), *form))


def only_c(more: Sequence[str] = ()) -> Stage:
    """What the interoperation tests do, with C at both ends: what users of it have today."""
    return Stage("selftests, C modules at both ends",
                 ("selftest", "--modules", "c", "--resume", *more, "interop", "interop_faults"))


class Report:
    """The counts of all stages, and what failed or nearly did."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, summary.Count]] = []
        self.remarks: list[str] = []
        # What passed, and when, of the stages that go on where they were stopped.
        self.passed: list[str] = []
        self._lock = threading.Lock()

    def add(self, title: str, text: str, count: summary.Count) -> None:
        """Adds a stage that has ended, with its output."""
        with self._lock:
            self.counts.append((title, count))
            self.remarks += summary.second_tries(text)
            lines = summary.passed(text)
            self.passed += [f"# {title}:", *lines] if lines else []
            if count.failed:
                self.remarks += summary.failures(title, text)

    def failed(self, title: str, text: str) -> None:
        """Adds something that could not be done."""
        print(f"== {title}: FAILED\n{text}", flush=True)
        self.add(title, text, summary.Count(failed=1))


def run_stage(stage: Stage, report: Report, live: bool = True) -> None:
    """Runs a stage, showing its output as it comes, or all of it at its end."""
    if live:
        print(f"== {stage.title}", flush=True)
    started = time.monotonic()
    text = []
    process = subprocess.Popen([*_LAB, *stage.argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        text.append(line)
        if live:
            print(line, end="", flush=True)
    count = summary.count("".join(text), process.wait())
    end = f"== {stage.title}: {count} ({time.monotonic() - started:.0f} s)"
    print(end if live else f"== {stage.title}\n{''.join(text)}{end}", flush=True)
    report.add(stage.title, "".join(text), count)


def run_together(stages: Sequence[Stage], report: Report) -> None:
    """Runs stages side by side, as none keeps all processors busy; shows each when it ends."""
    with concurrent.futures.ThreadPoolExecutor(SETS) as pool:
        for _ in pool.map(lambda stage: run_stage(stage, report, False), stages):
            pass


class DebugKernel(threading.Thread):
    """Makes the debug kernel, and the modules for it, while the other stages run."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.log = steps.log_path("setup-debug")
        self.error = ""
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        with open(self.log, "w") as out:
            argv = ["nice", "-n", "19", *_LAB, "setup", "--for", "test", "--kernel", "debug"]
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            if self._process.wait() != 0:
                self.error = self.log.read_text()
                return
        try:
            build.modules_to_test("debug")
            build.modules_to_test("debug", kunit=True)
        except RuntimeError as error:
            self.error = str(error)

    def stop(self) -> None:
        """Ends it, if it is not there yet."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def parts(options: argparse.Namespace) -> list[str]:
    """The parts that are wanted: all, or with names of tests those that have such."""
    if options.parts:
        return [part for part in [*PARTS, *others()] if part in options.parts]
    return ["stock", "debug"] if options.names else [*PARTS, *others()]


def _more(options: argparse.Namespace) -> list[str]:
    names = [argument for name in options.names or [] for argument in ("-T", name)]
    return names + (["--again"] if options.again else [])


def _stock(options: argparse.Namespace, wanted: Sequence[str], report: Report) -> None:
    """What is run on the stock kernel."""
    try:
        build.modules_to_test("stock")
        rnbdctl.program()
    except RuntimeError as error:
        report.failed("modules for the stock kernel", str(error))
        return
    if "stock" in wanted:
        run_stage(selftests("stock", options.long, _more(options)), report)
    if "interop" in wanted and options.long:
        run_stage(only_c(["--again"] if options.again else []), report)


def _packages(options: argparse.Namespace, wanted: Sequence[str]) -> list[Stage]:
    if "packages" not in wanted:
        return []
    if not options.long:
        return [Stage("packages", ("deb-test", "--quick"))]
    return [Stage("packages", ("deb-test",)), Stage("first hour", ("first-hour",)),
            Stage("clusters", ("cluster-test",))]


def _others(options: argparse.Namespace, names: Sequence[str], report: Report) -> list[Stage]:
    """What is to run on the other kernels, and on pairs of machines with two kernels; their modules are built."""
    ready = []
    for name in names:
        title = f"kernel {name}"
        try:
            if not setup.setup("test", names=[name]):
                report.failed(title, "the set-up failed")
                continue
            build.modules_to_test(name)
        except RuntimeError as error:
            if kernel_choice.is_chosen(name):
                report.failed(title, str(error))
            else:
                print(f"== {title}: SKIP {error}", flush=True)
                report.add(title, "", summary.Count(skipped=1))
            continue
        ready.append(name)
    pairs = [] if options.long else [(client, server) for client, server in PAIRS if client in ready]
    return [selftests(name, options.long, _more(options)) for name in ready] + [
        Stage(f"selftests, client with kernel {client}, server with {server}",
              ("selftest", "--kernel", client, "--server-kernel", server, "--quick")) for client, server in pairs]


def _debug(options: argparse.Namespace, debug: DebugKernel, report: Report) -> None:
    """What is run on the debug kernel."""
    if debug.is_alive():
        print(f"== waiting for the debug kernel (see {debug.log})", flush=True)
    debug.join()
    if debug.error:
        report.failed("debug kernel", debug.error)
    else:
        run_stage(selftests("debug", options.long, _more(options)), report)


def _debug_arm64(options: argparse.Namespace, report: Report) -> None:
    """What is run on the debug kernel of arm64."""
    if not options.long:
        return
    try:
        if not setup.setup("test", names=[DEBUG_ARM64]):
            raise RuntimeError("the set-up failed")
        build.modules_to_test(DEBUG_ARM64)
        build.modules_to_test(DEBUG_ARM64, kunit=True)
    except RuntimeError as error:
        report.failed(f"kernel {DEBUG_ARM64}", str(error))
        return
    names = [argument for name in options.names or ON_DEBUG_ARM64 for argument in ("-T", name)]
    run_stage(selftests(DEBUG_ARM64, True, [*names, *(["--again"] if options.again else [])]), report)


def run(options: argparse.Namespace) -> int:
    """Runs all stages; a failed one does not keep the others from running."""
    report = Report()
    wanted = parts(options)
    purposes = ["test"]
    if "packages" in wanted:
        purposes += ["deb-test", "cluster-test"] if options.long else ["deb-test"]
    if not all(setup.setup(purpose) for purpose in purposes):
        print("0 passed, 1 failed, 0 skipped")
        return 1
    debug = DebugKernel()
    if "debug" in wanted:
        debug.start()
    try:
        if "checks" in wanted:
            run_together(BEFORE, report)
        if {"stock", "interop", "packages"} & set(wanted):
            _stock(options, wanted, report)
        stages = [BUDGET] if "stock" in wanted and not options.names else []
        stages += _packages(options, wanted)
        stages += _others(options, [name for name in others() if name in wanted], report)
        if options.long:
            for stage in stages:
                run_stage(stage, report)
        else:
            print(f"== side by side: {'; '.join(stage.title for stage in stages)}", flush=True)
            run_together(stages, report)
        if "debug" in wanted:
            _debug(options, debug, report)
        if DEBUG_ARM64 in wanted:
            _debug_arm64(options, report)
    finally:
        debug.stop()
    return _end(report)


def _end(report: Report) -> int:
    """Says what came of it; the exit code."""
    print()
    for line in report.passed + report.remarks:
        print(line)
    for title, count in report.counts:
        print(f"{title}: {count}")
    total = sum((count for _, count in report.counts), summary.Count())
    print(total, flush=True)
    return 1 if total.failed else 0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The command `lab test`."""
    command = commands.add_parser("test", help="run the tests")
    command.add_argument("--long", action="store_true",
                         help="all cases on both kernels; takes hours, and goes on where it was stopped")
    command.add_argument("--part", dest="parts", action="append", choices=[*PARTS, *others()],
                         help="only this; can be repeated")
    command.add_argument("-T", dest="names", action="append", metavar="NAME",
                         help="only these selftests, as for `lab selftest'")
    command.add_argument("--again", action="store_true", help="run what has passed before, too")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not options.long and (options.parts or options.names or options.again):
        print("test: --part, -T and --again go with --long", file=sys.stderr)
        return 2
    return run(options)

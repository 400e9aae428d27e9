# SPDX-License-Identifier: GPL-2.0
"""`make test` and `make test-long`: all stages, ending with one line that counts."""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from . import arch
from . import build
from . import kernel_choice
from . import rnbdctl
from . import setup
from . import steps
from . import summary

T = TypeVar("T")
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
# Clients and servers of two kernels: each kernel is both, and a pair differs in series and architecture.
PAIRS = ((kernel_choice.supported()[0], "arm64"), ("arm64", kernel_choice.supported()[0]))
# A kernel that has its series and its architecture from two others needs less in `make test`: all modules, each
# operation, verified data, a path that is lost, and unloading.
BRIEF = {f"{kernel_choice.supported()[0]}-arm64": ("map_unmap", "operations", "data_integrity", "two_paths", "samples",
                                                   "unload")}


def others() -> list[str]:
    """The names of the kernels that the modules are made for, but for the stock kernel."""
    return [name for name in kernel_choice.every() if name != kernel_choice.STOCK]


# So many sets of machines keep two cores busy.
SETS = 3
# The debug kernel is ready after so many seconds, or has to be made.
DEBUG_PATIENCE = 60.0
# Checks have no machines, and the budget's machine counts instructions: sets of machines beside them change no result.
# So they, and the making of kernels, take what the sets leave of the processors.
NICE = 10


def selftests(kernel: str, more: Sequence[str] = ()) -> Stage:
    """All selftests of one kernel."""
    # The long form tries everything once, so it leaves the host some time.
    return Stage(f"selftests, {kernel} kernel", ("selftest", "--kernel", kernel, "--jobs", "2", "--resume", *more))


def quick_selftests(kernel: str, jobs: int) -> Stage:
    """The selftests of one kernel that are part of `make test`."""
    form = ["--quick"]
    if kernel not in (kernel_choice.STOCK, "debug"):
        # One machine is client and server. Two machines have two kernels, see `PAIRS`.
        form += ["--topology", "one"]
        form += [argument for name in BRIEF.get(kernel, ()) for argument in ("-T", name)]
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


def run_stage(stage: Stage, report: Report, live: bool = True, set_ended: Callable[[], None] | None = None) -> None:
    """Runs a stage, showing its output as it comes, or all of it at its end. `set_ended` is called when it says so."""
    if live:
        print(f"== {stage.title}", flush=True)
    started = time.monotonic()
    text = []
    process = subprocess.Popen([*_LAB, *stage.argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        text.append(line)
        if set_ended is not None and line.rstrip("\n") == summary.SET_ENDED:
            set_ended()
        if live:
            print(line, end="", flush=True)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    count = summary.count("".join(text), process.returncode)
    # The processors' time tells what a stage costs, whatever runs beside it.
    end = (f"== {stage.title}: {count} ({time.monotonic() - started:.0f} s, "
           f"processors {used.ru_utime + used.ru_stime:.0f} s)")
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
            argv = ["nice", "-n", str(NICE), *_LAB, "setup", "--for", "test", "--kernel", "debug"]
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


def _built(report: Report) -> bool:
    """Builds what all stages on the stock kernel need; whether that succeeded."""
    try:
        build.modules_to_test("stock")
        rnbdctl.program()
    except RuntimeError as error:
        report.failed("modules for the stock kernel", str(error))
        return False
    return True


def _stock(options: argparse.Namespace, wanted: Sequence[str], report: Report) -> None:
    """What the long form runs on the stock kernel."""
    if not _built(report):
        return
    if "stock" in wanted:
        run_stage(selftests("stock", _more(options)), report)
    if "interop" in wanted:
        run_stage(only_c(["--again"] if options.again else []), report)


def _packages(wanted: Sequence[str]) -> list[Stage]:
    """What the long form does with the packages."""
    if "packages" not in wanted:
        return []
    return [Stage("packages", ("deb-test",)), Stage("first hour", ("first-hour",)),
            Stage("clusters", ("cluster-test",))]


def _others(names: Sequence[str], report: Report) -> list[str]:
    """Those of the other kernels on which tests can run; their modules are built."""
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
    return ready


def _is_there(debug: DebugKernel, report: Report) -> bool:
    """Waits for the debug kernel; whether it could be made."""
    if debug.is_alive():
        print(f"== waiting for the debug kernel (see {debug.log})", flush=True)
    debug.join()
    if debug.error:
        report.failed("debug kernel", debug.error)
    return not debug.error


def _debug_arm64(options: argparse.Namespace, report: Report) -> None:
    """What the long form runs on the debug kernel of arm64."""
    try:
        if not setup.setup("test", names=[DEBUG_ARM64]):
            raise RuntimeError("the set-up failed")
        build.modules_to_test(DEBUG_ARM64)
        build.modules_to_test(DEBUG_ARM64, kunit=True)
    except RuntimeError as error:
        report.failed(f"kernel {DEBUG_ARM64}", str(error))
        return
    names = [argument for name in options.names or ON_DEBUG_ARM64 for argument in ("-T", name)]
    run_stage(selftests(DEBUG_ARM64, [*names, *(["--again"] if options.again else [])]), report)


def _behind(work: Callable[[], T]) -> T:
    """Does something in a thread that takes what the sets of machines leave of the processors; its result."""
    def lowered() -> T:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)
        return work()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lowered).result()


class Quick:
    """The stages of `make test`. They run side by side, with `SETS` sets of machines among them: a set begins when
    one of another stage has ended."""

    def __init__(self, debug: DebugKernel, report: Report) -> None:
        self._debug = debug
        self._report = report
        self._sets = threading.Semaphore(SETS)
        self._is_stopped = False
        self._is_built = False
        self._built = threading.Event()
        self._debug_has_begun = threading.Event()
        self._stock_has_begun = threading.Event()
        self._stock_is_over = threading.Event()

    def run(self) -> None:
        """Runs all. The stages on the debug kernel and on the stock kernel take long, and have their sets first."""
        parts = (lambda: _behind(self._checks), lambda: _behind(self._budget),
                 self._on_debug, self._on_stock, self._on_others)
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            running = [pool.submit(part) for part in parts]
            try:
                for ended in running:
                    ended.result()
            except BaseException:
                self._is_stopped = True
                self._debug.stop()
                raise

    def _run(self, stage: Stage, live: bool = False, set_ended: Callable[[], None] | None = None) -> None:
        if not self._is_stopped:
            run_stage(stage, self._report, live, set_ended)

    def _with_sets(self, stage: Stage, number: int = 1, live: bool = False,
                   begun: threading.Event | None = None) -> None:
        """Runs a stage that has so many sets of machines, when it may have them."""
        for _ in range(number):
            self._sets.acquire()
        if begun is not None:
            begun.set()
        held = number

        def set_ended() -> None:
            nonlocal held
            if held > 1:
                held -= 1
                self._sets.release()

        try:
            self._run(stage, live, set_ended)
        finally:
            self._sets.release(held)

    def _checks(self) -> None:
        for stage in BEFORE:
            self._run(stage)

    def _budget(self) -> None:
        # Its machine has one thread, so that the time it takes would be the end of all if it began late.
        self._built.wait()
        if self._is_built:
            self._run(BUDGET)

    def _on_debug(self) -> None:
        try:
            if _is_there(self._debug, self._report):
                # A second set takes too much from the stock kernel's sets. These are gone if the kernel had to be made.
                jobs = 2 if self._stock_is_over.is_set() else 1
                self._with_sets(quick_selftests("debug", jobs), jobs, begun=self._debug_has_begun)
        finally:
            self._debug_has_begun.set()

    def _on_stock(self) -> None:
        try:
            self._is_built = _built(self._report)
            self._built.set()
            if self._is_built:
                self._with_sets(quick_selftests("stock", SETS - 1), SETS - 1, live=True, begun=self._stock_has_begun)
        finally:
            self._stock_has_begun.set()
            self._built.set()
            self._stock_is_over.set()

    def _on_others(self) -> None:
        self._built.wait()
        ready = _behind(lambda: _others(others(), self._report))
        # What begins last should be short: the packages take longest, machines of arm64 longer than those of amd64.
        first = [name for name in ready if kernel_choice.wanted(name).machine is not arch.AMD64]
        stages = [Stage("packages", ("deb-test", "--quick"))] if self._is_built else []
        stages += [quick_selftests(name, 1) for name in first]
        stages += [Stage(f"selftests, client with kernel {client}, server with {server}",
                         ("selftest", "--kernel", client, "--server-kernel", server, "--quick"))
                   for client, server in PAIRS if client in ready and server in ready]
        stages += [quick_selftests(name, 1) for name in ready if name not in first]
        self._stock_has_begun.wait()
        self._debug_has_begun.wait(DEBUG_PATIENCE)
        with concurrent.futures.ThreadPoolExecutor(SETS) as pool:
            for ended in [pool.submit(self._with_sets, stage) for stage in stages]:
                ended.result()


def _long(options: argparse.Namespace, wanted: Sequence[str], debug: DebugKernel, report: Report) -> None:
    """Runs the stages of `make test-long` one after another."""
    if "checks" in wanted:
        run_together(BEFORE, report)
    if {"stock", "interop", "packages"} & set(wanted):
        _stock(options, wanted, report)
    stages = [BUDGET] if "stock" in wanted and not options.names else []
    stages += _packages(wanted)
    ready = _others([name for name in others() if name in wanted], report)
    stages += [selftests(name, _more(options)) for name in ready]
    for stage in stages:
        run_stage(stage, report)
    if "debug" in wanted and _is_there(debug, report):
        run_stage(selftests("debug", _more(options)), report)
    if DEBUG_ARM64 in wanted:
        _debug_arm64(options, report)


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
        if options.long:
            _long(options, wanted, debug, report)
        else:
            Quick(debug, report).run()
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

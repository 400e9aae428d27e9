# SPDX-License-Identifier: GPL-2.0
"""`lab selftest`: choose tests and run them in virtual machines."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
from collections.abc import Callable
from pathlib import Path

from . import build
from . import c_users
from . import csi
from . import paths
from . import release
from . import results
from . import rnbdctl
from . import selftest_modules
from . import selftest_pool
from . import summary
from . import vm_platform
from .selftest_case import Case
from .selftest_case import LINKS
from .selftest_case import load_subjects
from .selftest_case import Subject
from .selftest_pool import Chosen
from .selftest_runner import usage_error
from .vm import Platform

SELFTESTS = Path(__file__).resolve().parents[2] / "selftests"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command line of `lab selftest`."""
    parser = commands.add_parser("selftest", help="run tests in virtual machines")
    parser.add_argument("more", nargs="*", metavar="NAME", help="as -T")
    parser.add_argument("-T", dest="names", action="append", metavar="NAME",
                        help="a file of selftests/ or file.test, with shell wildcards")
    parser.add_argument("--kernel", type=paths.kernel_name, default=paths.STOCK, help=paths.KERNEL_HELP)
    parser.add_argument("--server-kernel", type=paths.kernel_name, metavar="KERNEL",
                        help="the server's, if it has another one; only tests with two machines are run then")
    parser.add_argument("--topology", choices=sorted(LINKS), help="only tests with these machines")
    parser.add_argument("--modules", choices=("ours", "c"), default="ours",
                        help="which modules to test (both are there for tests that mix them)")
    parser.add_argument("--modules-dir", type=Path, help="folder of our .ko files")
    parser.add_argument("--quick", action="store_true",
                        help="only the cases that are part of `make test' on this kernel")
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="sets of machines that run tests side by side")
    parser.add_argument("--resume", action="store_true",
                        help="take the subjects that passed before with the same sources as they are")
    parser.add_argument("--again", action="store_true", help="with --resume: run these, too")
    parser.add_argument("--list", action="store_true", help="print the tests and stop")
    parser.set_defaults(run=main)


def choose(subjects: list[Subject], names: list[str]) -> list[tuple[Subject, list[Case]]]:
    """The cases that any of the names means; all of them if there are no names."""
    return _only(subjects, lambda subject, case: not names or any(
        fnmatch.fnmatch(subject.name, name) or fnmatch.fnmatch(f"{subject.name}.{case.name}", name)
        for name in names))


def fit(subjects: list[Subject], kernel: str, quick: bool) -> list[Subject]:
    """The subjects with the cases that make sense on a kernel; with ``quick``, the quick ones."""
    kernel = paths.DEBUG if paths.is_debug(kernel) else kernel
    kept = _only(subjects, lambda _, case: case.is_for(kernel, quick))
    return [dataclasses.replace(subject, cases=cases) for subject, cases in kept]


def _only(subjects: list[Subject],
          wanted: Callable[[Subject, Case], bool]) -> list[tuple[Subject, list[Case]]]:
    chosen = []
    for subject in subjects:
        cases = [case for case in subject.cases if wanted(subject, case)]
        if cases:
            chosen.append((subject, cases))
    return chosen


def _count(chosen: list[tuple[Subject, list[Case]]]) -> int:
    return sum(len(cases) for _, cases in chosen)


def main(options: argparse.Namespace) -> int:
    """Run `lab selftest`."""
    names = [name for text in (options.names or []) + options.more for name in text.replace(",", " ").split()]
    every = load_subjects(SELFTESTS)
    topology = "two" if options.server_kernel else options.topology
    chosen = [(subject, cases) for subject, cases in choose(fit(every, options.kernel, options.quick), names)
              if topology in (None, subject.topology)]
    if not chosen:
        return usage_error(f"no test is called {' '.join(names)}; see --list")
    if options.resume and (options.modules_dir or options.server_kernel):
        return usage_error("--resume is for the modules of this checkout, and for machines with one kernel")
    if options.list:
        for subject, cases in chosen:
            print(f"{subject.name} ({subject.topology}): {subject.summary}")
            for case in cases:
                print(f"  {subject.name}.{case.name}: {case.summary}")
        return 0
    modules = _modules(options.kernel, options.modules_dir, chosen)
    if not any(modules[options.modules].rglob("*.ko")):
        return usage_error(f"no modules in {modules[options.modules]}; build them first")
    # A case has no time to compile.
    for machine in {paths.machine(options.kernel), paths.machine(options.server_kernel or options.kernel)}:
        rnbdctl.program(machine)
    if any(subject.name.startswith(csi.SUBJECTS) for subject, _ in chosen):
        csi.failing_program(paths.machine(options.kernel))
    if options.quick:
        left = _count(choose(fit(every, options.kernel, False), names)) - _count(chosen)
        print(f"# {left} more cases for this kernel are in make test-long", flush=True)
    platform = vm_platform.platform(options.kernel, modules)
    if options.server_kernel:
        server = vm_platform.platform(options.server_kernel, _modules(options.server_kernel, None, chosen))
        platform = dataclasses.replace(platform, server=server)
    if options.resume:
        return 0 if resume(options, platform, chosen) else 1
    return 0 if selftest_pool.run(platform, options.modules, chosen, options.jobs, options.quick) else 1


def _modules(kernel: str, ours: Path | None, chosen: list[Chosen]) -> dict[str, Path]:
    """The folders of a kernel's sets of modules that the chosen cases may use."""
    modules = vm_platform.module_folders(kernel, ours)
    if any(subject.name == release.SUBJECT for subject, _ in chosen) and release.is_here():
        modules[release.MODULES] = release.folder(kernel)
    if any(subject.name == c_users.SUBJECT for subject, _ in chosen):
        modules[c_users.MODULES] = c_users.folder(kernel, modules["ours"])
    if paths.is_debug(kernel):
        modules["kunit"] = build.output(kernel, None, clippy=False, kunit=True)
    modules["test"] = selftest_modules.folder(kernel)
    return modules


def resume(options: argparse.Namespace, platform: Platform, chosen: list[Chosen]) -> bool:
    """Run what has not passed before with the same sources; true if all has passed, now or before."""
    store = results.Store(options.kernel, str(paths.artifacts(options.kernel).kdir), options.modules)
    passed: list[str] = []
    before = summary.Count()
    left = []
    for subject, cases in chosen:
        found = store.find(subject, cases)
        if found is None or options.again:
            left.append((subject, cases))
            continue
        before += summary.Count(found.passed, 0, found.skipped)
        passed.append(found.line(is_old=True))
    print(f"# {len(passed)} of {len(chosen)} subjects have passed before, {len(left)} are left", flush=True)

    def ended(subject: Subject, cases: list[Case], counts: dict[str, int], seconds: float) -> None:
        result = store.keep(subject, cases, counts, seconds)
        if not result.failed:
            passed.append(result.line(is_old=False))

    # The total comes last; what was taken from before is said before it.
    for line in passed:
        print(line, flush=True)
    good = True
    if left:
        told = len(passed)
        good = selftest_pool.run(platform, options.modules, left, options.jobs, options.quick, ended, before)
        for line in passed[told:]:
            print(line, flush=True)
    else:
        print(before, flush=True)
    return good

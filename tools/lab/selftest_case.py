# SPDX-License-Identifier: GPL-2.0
"""What a selftest file contains, and what one test is given.

A file is one subject: a docstring, ``TOPOLOGY`` ("one", "two", "three", "four" or "five") and
functions ``test_*(t)`` whose docstring is one sentence. ``@case(...)`` adds conditions.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from types import ModuleType
from typing import Any
from typing import NoReturn
from typing import TypeAlias

from .vm import Lab
from .vm_node import Node
from .vm_node import os_error

TEST_SECONDS = 120.0
KERNELS = ("stock", "debug")
# Each other kernel that the modules are made for: cases for the stock kernel make sense on it, too.
OTHER = "other"
EVERYWHERE = (*KERNELS, OTHER)
# Where a case is part of `make test` of which nothing else is said; a file may have a QUICK of its own.
QUICK = ("stock",)
TestFunction: TypeAlias = "Callable[[Test], None]"


class DataError(AssertionError):
    """Data is not what was written, or requests ended twice or not at all: never a matter of time."""


class SkipTest(Exception):
    """The test cannot run here; the text says why."""


@dataclass
class Case:
    """One test function and its conditions."""

    name: str
    function: TestFunction
    summary: str
    timeout: float = TEST_SECONDS
    kernels: tuple[str, ...] = KERNELS
    quick: tuple[str, ...] = QUICK
    module_sets: tuple[str, ...] = ("ours", "c")
    c_known_failure: str = ""


    def is_for(self, kernel: str, quick: bool) -> bool:
        """Whether it is run on a kernel, with ``quick`` as a part of `make test`."""
        if quick:
            return (kernel if kernel in KERNELS else OTHER) in self.quick
        return (kernel if kernel in KERNELS else "stock") in self.kernels


@dataclass
class Subject:
    """One selftest file."""

    name: str
    topology: str
    summary: str
    cases: list[Case] = field(default_factory=list)
    cpus: int = 2
    memory_mib: int = 1024
    links: int = 1


# Machines that all subjects of a topology share cost fewer boots than machines without what a subject does not use.
LINKS = {"one": 1, "two": 2, "three": 2, "four": 4, "five": 4}


def case(*, timeout: float = TEST_SECONDS, kernels: tuple[str, ...] = KERNELS,
         quick: tuple[str, ...] | None = None, module_sets: tuple[str, ...] = ("ours", "c"),
         c_known_failure: str = "") -> Callable[[TestFunction], TestFunction]:
    """Conditions of a test: ``timeout`` in seconds on the stock kernel; ``kernels``
    on which it makes sense, and of these ``quick``, where it is part of `make test`
    (the rest is left to `make test-long`; a case takes minutes on the debug kernel; `OTHER` is
    each kernel beside these two);
    ``c_known_failure`` says what the C modules get wrong (the test then may fail
    with them)."""

    def mark(function: TestFunction) -> TestFunction:
        conditions: dict[str, object] = {"timeout": timeout, "kernels": kernels, "module_sets": module_sets,
                                         "c_known_failure": c_known_failure}
        if quick is not None:
            conditions["quick"] = quick
        if "case" in vars(function):
            raise ValueError(f"{function.__name__}: @case is given twice")
        vars(function)["case"] = conditions
        return function

    return mark


def load_subject(path: Path) -> Subject:
    """Read one selftest file."""
    spec = importlib.util.spec_from_file_location(f"selftest_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    topology = getattr(module, "TOPOLOGY", "one")
    subject = Subject(path.stem, topology, _first_line(module),
                      cpus=getattr(module, "CPUS", 2),
                      memory_mib=getattr(module, "MEMORY_MIB", 1024),
                      links=getattr(module, "LINKS", LINKS[topology]))
    for name, value in vars(module).items():
        if name.startswith("test_") and callable(value):
            conditions = {"quick": getattr(module, "QUICK", QUICK)} | getattr(value, "case", {})
            subject.cases.append(Case(name.removeprefix("test_"), value, _first_line(value), **conditions))
    if not subject.cases:
        raise ValueError(f"{path}: no test_* function")
    return subject


def load_subjects(directory: Path) -> list[Subject]:
    """All selftest files of a folder, by name."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    return [load_subject(path) for path in sorted(directory.glob("*.py"))]


def _first_line(thing: ModuleType | TestFunction) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0].rstrip(".")


def search(pattern: str, text: str) -> re.Match[str]:
    """Where a text matches; fails with the text if it does not."""
    found = re.search(pattern, text)
    if found is None:
        raise AssertionError(f"{pattern!r} does not match {text!r}")
    return found


class Test:
    """What a test function gets: machines, sizes, clean-up, checks."""

    def __init__(self, lab: Lab, modules: str, say: Callable[[str], None] = print,
                 quick: bool = False) -> None:
        self.lab = lab
        self.modules = modules
        self.say = say
        self.quick = quick
        self._cleanups: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []

    @property
    def client(self) -> Node:
        """The machine that maps devices."""
        return self.lab.client

    @property
    def server(self) -> Node:
        """The machine that exports devices; with topology ``one`` the client."""
        return self.lab.server

    @property
    def nodes(self) -> list[Node]:
        """All machines."""
        return self.lab.nodes

    @property
    def debug(self) -> bool:
        """Whether this is the slow debug kernel."""
        return self.lab.platform.flavour == "debug"

    def scaled(self, amount: int, least: int = 1) -> int:
        """An amount of work: whole in the long form, a quarter in the quick form; on debug a sixteenth in both."""
        share = 16 if self.debug else 4 if self.quick else 1
        return max(amount // share, least)

    def rounds(self, quick: int, long: int = 20) -> int:
        """How often to repeat a fault, in the quick and in the long form; a quarter of the latter on other kernels
        than the newest stock kernel of amd64: the debug kernel takes ten times as long for each, arm64 three times."""
        if self.quick:
            return quick
        return long if self.lab.platform.thorough else max(quick, long // 4)

    def defer(self, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Call a function when the test is over, last deferred first."""
        self._cleanups.append((function, args, options))

    def defer_once(self, function: Callable[..., Any], *args: Any) -> None:
        """The same, unless just that is deferred already."""
        if (function, args, {}) not in self._cleanups:
            self.defer(function, *args)

    def run_deferred(self) -> list[str]:
        """Run what was deferred; returns what went wrong."""
        problems = []
        while self._cleanups:
            function, args, options = self._cleanups.pop()
            try:
                function(*args, **options)
            except Exception as error:
                problems.append(f"clean-up {function.__name__}: {error}")
        return problems

    @staticmethod
    def skip(why: str) -> NoReturn:
        """End the test as skipped."""
        raise SkipTest(why)

    @staticmethod
    @contextlib.contextmanager
    def expect_errno(*numbers: int) -> Iterator[None]:
        """The block must fail with one of these errnos of the guest's kernel."""
        wanted = " or ".join(os_error(number) for number in numbers)
        try:
            yield
        except OSError as error:
            if error.errno not in numbers:
                raise AssertionError(f"{error.filename}: got {os_error(error.errno or 0)}, "
                                     f"expected {wanted}") from error
        else:
            raise AssertionError(f"succeeded, expected {wanted}")

    @staticmethod
    def equal(got: Any, wanted: Any, what: str) -> None:
        """Fail unless two values are equal, showing both."""
        if got != wanted:
            raise AssertionError(f"{what}: got {got!r}, expected {wanted!r}")

    @staticmethod
    def intact(got: Any, wanted: Any, what: str) -> None:
        """As ``equal``, for data and counts of finished requests: the case is not tried again."""
        if got != wanted:
            raise DataError(f"{what}: got {got!r}, expected {wanted!r}")

    @staticmethod
    def check(condition: Any, what: str) -> None:
        """Fail with a sentence unless a condition holds."""
        if not condition:
            raise AssertionError(what)

# SPDX-License-Identifier: GPL-2.0
"""What long tests found, kept in the cache, so that they go on where they were stopped.

A subject of the selftests is kept by a digest of all that decides how it ends: the
modules' sources, the test and what tests share, the kernel. If it passed with the same
digest, `make test-long` takes that; what failed is run again. Each subject is written
when it ends, so what a machine had done when it went away is not lost.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from . import cache
from . import paths
from . import rust_source
from . import summary
from .selftest_case import Case
from .selftest_case import Subject

FOLDER = "results"
_BUILT = ("target", "__pycache__", "build", ".git")
# What runs the tests; other parts of the laboratory do not decide how they end.
_RUNNER = ("selftest*.py", "vm*.py", "vm*.c", "image.py", "c_modules.py")


@dataclass(frozen=True)
class Result:
    """How a subject ended."""

    subject: str
    kernel: str
    modules: str
    cases: list[str]
    passed: int
    failed: int
    skipped: int
    # When it ended, in seconds since 1970, and how long it took.
    ended: float
    seconds: float

    def line(self, is_old: bool) -> str:
        """A line about a subject that passed."""
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.ended))
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return (f"{summary.PASSED} {when}{', before' if is_old else ''}: {self.subject} "
                f"({self.passed} passed{skipped}, {self.seconds:.0f} s)")


def files(folders: Iterable[Path]) -> list[Path]:
    """The source files in some folders, or these files themselves."""
    found: set[Path] = set()
    for folder in folders:
        every = folder.rglob("*") if folder.is_dir() else [folder]
        found |= {path for path in every if path.is_file() and not set(_BUILT) & set(path.relative_to(folder).parts)}
    return sorted(found)


def digest(checkout: Path, folders: Iterable[Path]) -> str:
    """A digest of the contents of some files and folders, and of their names."""
    return cache.digest({path.relative_to(checkout).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                         for path in files(folders) if path.suffix != ".pyc"})


def modules(checkout: Path = paths.CHECKOUT) -> str:
    """A digest of what the modules are built from."""
    found = [*(checkout / name for name in ("Kbuild", "VERSION")), *files([checkout / "include"])]
    for folder in rust_source.CRATES.values():
        found += [path for path in files([checkout / folder])
                  if not set(rust_source.OUTSIDE) & set(path.relative_to(checkout / folder).parts)]
    return digest(checkout, found)


class Store:
    """The results of one kernel and set of modules."""

    def __init__(self, kernel: str, kernel_key: str, module_set: str, checkout: Path = paths.CHECKOUT) -> None:
        self._kernel = kernel
        self._module_set = module_set
        self._checkout = checkout
        shared = [checkout / "selftests/lib", checkout / "selftests/modules", checkout / "selftests/c_api",
                  checkout / "tools/rnbdctl", checkout / "tools/rnbd-csi"]
        for pattern in _RUNNER:
            shared += (checkout / "tools/lab").glob(pattern)
        self._shared = {"kernel": kernel_key, "set": module_set, "modules": modules(checkout),
                        "shared": digest(checkout, shared)}

        # By subject: as it was when it was asked for, whatever is edited while it runs.
        self._paths: dict[str, Path] = {}

    def _path(self, subject: Subject, cases: list[Case]) -> Path:
        if subject.name not in self._paths:
            self._paths[subject.name] = self._new_path(subject, cases)
        return self._paths[subject.name]

    def _new_path(self, subject: Subject, cases: list[Case]) -> Path:
        test = self._checkout / "selftests" / f"{subject.name}.py"
        # A folder of its name has programs of the test.
        own = [test, *([test.with_suffix("")] if test.with_suffix("").is_dir() else [])]
        if "ocument" in test.read_text():
            # It reads the documents, or types their commands.
            own += [self._checkout / "Documentation", self._checkout / "README.md"]
        key = cache.digest({**self._shared, "own": digest(self._checkout, own), "cases": [case.name for case in cases]})
        return cache.root() / FOLDER / f"{self._kernel}-{self._module_set}-{subject.name}-{key}.json"

    def find(self, subject: Subject, cases: list[Case]) -> Result | None:
        """How a subject ended before, if it was run with all this and passed."""
        try:
            found = Result(**json.loads(self._path(subject, cases).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return None if found.failed else found

    def keep(self, subject: Subject, cases: list[Case], counts: dict[str, int], seconds: float) -> Result:
        """Writes down how a subject ended; `counts` is by verdict."""
        result = Result(subject.name, self._kernel, self._module_set, [case.name for case in cases],
                        counts["ok"], counts["not ok"], counts["skip"], time.time(), seconds)
        path = self._path(subject, cases)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(result), indent=1) + "\n")
        partial.rename(path)
        return result

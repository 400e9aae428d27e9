# SPDX-License-Identifier: GPL-2.0
"""Which of the archive's kernels are meant: by series, release of Debian and architecture, resolved and remembered.

A kernel's name on a command line is a series (`7.2`), an architecture (`arm64`), both
(`7.2-arm64`), or `stock`: the newest series that the modules are made for, on amd64. These are
kernels of Debian 13 with its backports. `sid` is the kernel of that release of Debian, which is
built by other compilers.
"""

import json
import math
import re
import time
from collections.abc import Iterable
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import arch
from . import archive
from . import cache
from . import debian
from .archive import Package

STOCK = "stock"
# The series that the modules are made for, from oldest to newest, as MAJOR.MINOR.
KERNELS = Path(__file__).resolve().parents[2] / "KERNELS"
# Releases of Debian that are kernel names, too: each means the kernel of that release.
OTHER_SUITES = tuple(name for name in debian.SUITES if name != debian.TRIXIE.name)

_NAME = re.compile(rf"(?:({STOCK}|{'|'.join(OTHER_SUITES)}|\d+\.\d+)(?:-(?=.)|$))?({'|'.join(arch.ALL)})?")
_COMPILER = re.compile(r"\b(gcc-\d+)-for-host\b")


@dataclass(frozen=True)
class Wanted:
    """The meaning of a kernel's name. Without a series it is the newest one that the modules are made for."""

    suite: debian.Suite
    machine: arch.Arch
    series: str | None = None


@dataclass(frozen=True)
class Choice:
    """A kernel of the archive; `packages` are all that is downloaded of it, `compiler` is the C compiler's package."""

    release: str
    version: str
    series: str
    arch: str
    compiler: str
    packages: tuple[str, ...]


def supported() -> list[str]:
    """The series that the modules are made for, from oldest to newest."""
    lines = [line.split("#")[0].strip() for line in KERNELS.read_text().splitlines()]
    return sorted((line for line in lines if line), key=_number)


def _number(series: str) -> tuple[int, int]:
    major, minor = series.split(".")
    return int(major), int(minor)


def wanted(name: str) -> Wanted:
    """What a kernel's name means; raises RuntimeError for what is none."""
    match = _NAME.fullmatch(name) if name else None
    if match is None or (match[1] in OTHER_SUITES and match[2] not in (None, arch.AMD64.name)):
        raise RuntimeError(f"no kernel is called {name!r}: it is `stock', a series such as `{supported()[0]}', "
                           f"an architecture ({', '.join(arch.ALL)}), both, as in `{supported()[0]}-arm64', "
                           f"or {', '.join(OTHER_SUITES)}")
    if match[1] in OTHER_SUITES:
        return Wanted(debian.SUITES[match[1]], arch.AMD64)
    series = match[1] if match[1] not in (None, STOCK) else supported()[-1]
    return Wanted(debian.TRIXIE, arch.ALL[match[2] or arch.AMD64.name], series)


def name_of(kernel: Wanted) -> str:
    """The shortest name of a kernel."""
    if kernel.suite is not debian.TRIXIE:
        return kernel.suite.name
    parts = [] if kernel.series in (None, supported()[-1]) else [kernel.series]
    parts += [] if kernel.machine is arch.AMD64 else [kernel.machine.name]
    return "-".join(part for part in parts if part) or STOCK


def every() -> list[str]:
    """The names of all kernels that the modules are made for, the stock kernel first."""
    kernels = [Wanted(debian.TRIXIE, machine, series)
               for machine in arch.ALL.values() for series in reversed(supported())]
    return [name_of(kernel) for kernel in kernels] + list(OTHER_SUITES)


def candidates(packages: Iterable[Package], machine: arch.Arch) -> list[Choice]:
    """The kernels of an architecture that can be built for, newest first."""
    packages = list(packages)
    available = {(package.name, package.version) for package in packages}
    headers = re.compile(rf"linux-headers-((\d+)\.(\d+)(?:\.(\d+))?[^ -]*-{machine.name})")
    found = []
    for package in packages:
        name, version = package.name, package.version
        match = headers.fullmatch(name)
        compiler = _COMPILER.search(package.depends)
        if match is None or compiler is None:
            continue
        release = match[1]
        number = (int(match[2]), int(match[3]), int(match[4] or 0))
        series = f"{number[0]}.{number[1]}"
        source = f"linux-source-{series}"
        images = [f"linux-{kind}-{release}" for kind in ("base", "binary", "image", "modules")]
        images = [image for image in images if (image, version) in available]
        if (source, version) not in available or not images:
            continue
        # An image package that only depends on a binary one carries nothing.
        if f"linux-binary-{release}" in images:
            images = [image for image in images if not image.startswith("linux-image-")]
        choice = Choice(release, version, series, machine.name, compiler[1], (name, source, *images))
        found.append((number, version, choice))
    return [choice for *_, choice in sorted(found, key=lambda entry: entry[:2], reverse=True)]


def newest(found: Iterable[Choice], among: Iterable[str]) -> Choice | None:
    """The newest kernel of some series among `found`, newest first."""
    among = set(among)
    return next((choice for choice in found if choice.series in among), None)


def _file(kernel: Wanted) -> Path:
    return cache.root() / f"kernels-{kernel.suite.name}-{kernel.machine.name}-{debian.base().key}.json"


def age(name: str) -> float:
    """Seconds since the kernels of a kernel's release and architecture were resolved; endless before the first time."""
    file = _file(wanted(name))
    return time.time() - file.stat().st_mtime if file.is_file() else math.inf


def _resolved(kernel: Wanted) -> list[Choice]:
    """What the last resolution found, newest first. Raises FileNotFoundError before the first one."""
    found: list[dict[str, Any]] = json.loads(_file(kernel).read_text())
    return [Choice(**{**fields, "packages": tuple(fields["packages"])}) for fields in found]


def is_chosen(name: str) -> bool:
    """Whether a resolution has found a kernel for `name`."""
    try:
        chosen(name)
    except (FileNotFoundError, RuntimeError):
        return False
    return True


def chosen(name: str = STOCK) -> Choice:
    """The kernel that the last resolution chose for `name`.

    Raises FileNotFoundError before the first resolution, RuntimeError if the archive had no such kernel.
    """
    kernel = wanted(name)
    among = [kernel.series] if kernel.series else supported()
    choice = newest(_resolved(kernel), among)
    if choice is None:
        raise RuntimeError(f"when it was last looked, {kernel.suite.archives[-1]} had no kernel {' or '.join(among)} "
                           f"for {kernel.machine.name} with headers, source and image; "
                           "`lab setup --refresh' looks again")
    return choice


def served(name: str) -> list[str]:
    """The names of the supported kernels that were resolved together with `name`, newest first."""
    kernel = wanted(name)
    return [other for other in every() if (wanted(other).suite, wanted(other).machine) == (kernel.suite, kernel.machine)
            and is_chosen(other)]


def resolve(name: str, log: Path, refresh: bool = False) -> None:
    """Looks which kernels the archive has, in lists fetched again if `refresh`; remembers the newest of each series."""
    kernel = wanted(name)
    if not refresh and _file(kernel).is_file():
        return
    packages = archive.of(kernel.suite, kernel.machine).packages(log, refresh)
    found = candidates(packages, kernel.machine)
    kept = [choice for series in dict.fromkeys(choice.series for choice in found)
            if (choice := newest(found, [series])) is not None]
    if kernel.suite is debian.TRIXIE and newest(kept, supported()[-1:]) is None:
        raise RuntimeError(f"{kernel.suite.archives[-1]} has no kernel {supported()[-1]} for {kernel.machine.name} "
                           "with headers, source and image")
    partial = _file(kernel).with_suffix(".partial")
    partial.write_text(json.dumps([asdict(choice) for choice in kept], indent=1) + "\n")
    partial.rename(_file(kernel))

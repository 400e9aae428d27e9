# SPDX-License-Identifier: GPL-2.0
"""Which of the archive's kernels are meant: by series and architecture, resolved and remembered.

A kernel's name on a command line is a series (`7.2`), an architecture (`arm64`), both
(`7.2-arm64`), or `stock`: the newest series that the modules are made for, on amd64.
"""

import json
import math
import re
import subprocess
import time
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import arch
from . import cache
from . import debian
from . import foreign
from . import run

STOCK = "stock"
# The series that the modules are made for, from oldest to newest, as MAJOR.MINOR.
KERNELS = Path(__file__).resolve().parents[2] / "KERNELS"

_NAME = re.compile(rf"(?:({STOCK}|\d+\.\d+)(?:-(?=.)|$))?({'|'.join(arch.ALL)})?")


@dataclass(frozen=True)
class Package:
    """One line of the archive's package lists."""

    name: str
    version: str


@dataclass(frozen=True)
class Choice:
    """A kernel of the archive; `packages` are all that is downloaded of it."""

    release: str
    version: str
    series: str
    arch: str
    packages: tuple[str, ...]


def supported() -> list[str]:
    """The series that the modules are made for, from oldest to newest."""
    lines = [line.split("#")[0].strip() for line in KERNELS.read_text().splitlines()]
    return sorted((line for line in lines if line), key=_number)


def _number(series: str) -> tuple[int, int]:
    major, minor = series.split(".")
    return int(major), int(minor)


def wanted(name: str) -> tuple[str, arch.Arch]:
    """The series, and the architecture, that a kernel's name means; raises RuntimeError."""
    match = _NAME.fullmatch(name) if name else None
    if match is None:
        raise RuntimeError(f"no kernel is called {name!r}: it is `stock', a series such as `{supported()[0]}', "
                           f"an architecture ({', '.join(arch.ALL)}), or both, as in `{supported()[0]}-arm64'")
    series = match[1] if match[1] not in (None, STOCK) else supported()[-1]
    return series, arch.ALL[match[2] or arch.AMD64.name]


def name_of(series: str, machine: arch.Arch) -> str:
    """The shortest name of a kernel."""
    parts = [] if series == supported()[-1] else [series]
    parts += [] if machine is arch.AMD64 else [machine.name]
    return "-".join(parts) or STOCK


def parse_packages(text: str) -> Iterator[Package]:
    """Reads `Package:` and `Version:` of the stanzas of a package list."""
    name = ""
    for line in text.splitlines():
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith("Version: ") and name:
            yield Package(name, line[9:])
            name = ""


def candidates(packages: Iterable[Package], machine: arch.Arch) -> list[Choice]:
    """The kernels of an architecture that can be built for, newest first."""
    available = {(package.name, package.version) for package in packages}
    headers = re.compile(rf"linux-headers-((\d+)\.(\d+)(?:\.(\d+))?[^ -]*-{machine.name})")
    found = []
    for name, version in available:
        match = headers.fullmatch(name)
        if match is None:
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
        found.append((number, version, Choice(release, version, series, machine.name, (name, source, *images))))
    return [choice for *_, choice in sorted(found, key=lambda entry: entry[:2], reverse=True)]


def newest(found: Iterable[Choice], series: str) -> Choice | None:
    """The newest kernel of a series among `found`, newest first."""
    return next((choice for choice in found if choice.series == series), None)


def _file(machine: arch.Arch) -> Path:
    return cache.root() / f"kernels-{machine.name}-{debian.base().key}.json"


def age(machine: arch.Arch) -> float:
    """Seconds since the kernels of an architecture were resolved; endless before the first time."""
    return time.time() - _file(machine).stat().st_mtime if _file(machine).is_file() else math.inf


def is_chosen(name: str) -> bool:
    """Whether a resolution has found a kernel for `name`."""
    series, machine = wanted(name)
    return any(fields["series"] == series for fields in _resolved(machine))


def _resolved(machine: arch.Arch) -> list[dict[str, Any]]:
    """What the last resolution found, newest first; nothing before the first one."""
    try:
        found: list[dict[str, Any]] = json.loads(_file(machine).read_text())
    except FileNotFoundError:
        return []
    return found


def chosen(name: str = STOCK) -> Choice:
    """The kernel that the last resolution chose for `name`.

    Raises FileNotFoundError before the first resolution, RuntimeError if the archive had no such kernel.
    """
    series, machine = wanted(name)
    for fields in json.loads(_file(machine).read_text()):
        if fields["series"] == series:
            return Choice(**{**fields, "packages": tuple(fields["packages"])})
    raise RuntimeError(f"when it was last looked, {debian.BACKPORTS} had no kernel {series} for {machine.name} with "
                       "headers, source and image; `lab setup --refresh' looks again")


def served(machine: arch.Arch) -> list[str]:
    """The names of the supported kernels of an architecture that the archive has, newest first."""
    names = [name_of(series, machine) for series in reversed(supported())]
    return [name for name in names if is_chosen(name)]


def resolve(machine: arch.Arch, log: Path, refresh: bool = False) -> None:
    """Looks which kernels the archive has, in lists fetched again if `refresh`; remembers the newest of each series."""
    if not refresh and _file(machine).is_file():
        return
    found = candidates(parse_packages(_dump(machine, log, refresh)), machine)
    kept = [choice for series in dict.fromkeys(choice.series for choice in found)
            if (choice := newest(found, series)) is not None]
    if newest(kept, supported()[-1]) is None:
        raise RuntimeError(f"{debian.BACKPORTS} has no kernel {supported()[-1]} for {machine.name} "
                           "with headers, source and image")
    partial = _file(machine).with_suffix(".partial")
    partial.write_text(json.dumps([asdict(choice) for choice in kept], indent=1) + "\n")
    partial.rename(_file(machine))


def _dump(machine: arch.Arch, log: Path, refresh: bool) -> str:
    """What the archive has for an architecture, as apt-cache prints it."""
    tree = debian.base().path / "root"
    binds = foreign.lists_binds(machine)
    options = foreign.apt_options(machine)
    if refresh or binds:
        run.chroot(tree, ["apt-get", "-q", *options, "update"], binds, log)
    dump = subprocess.run(run.chroot_command(tree, ["apt-cache", *options, "dumpavail"], binds),
                          capture_output=True, text=True, check=True)
    return dump.stdout

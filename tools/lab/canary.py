# SPDX-License-Identifier: GPL-2.0
"""`lab canary`: what of this checkout does not compile with the newest kernel that any Debian suite has.

The kernel's source is prepared with the stock kernel's configuration and compilers; what its own
configuration adds is left at its defaults. Nothing is run.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from . import build
from . import cache
from . import debian
from . import kernel
from . import paths
from . import run
from . import setup
from . import steps
from .archive import Archive
from .archive import Package
from .steps import Step
from .steps import Work

SUITES = (debian.TRIXIE.archives[-1], "testing", "unstable", "experimental")
_SOURCE = re.compile(r"linux-source-(\d+)\.(\d+)")
# The first lines of an error, as rustc and gcc write them.
_RUST_PLACE = re.compile(r"^ *--> ([^:]+):\d+", re.MULTILINE)
_ERROR = re.compile(r"^error(?:\[E\d+\])?: (?!aborting|could not compile)(.*)$")
_C_ERROR = re.compile(r"^([^:\s]+):\d+:\d+: (?:fatal )?error: (.*)$")


def newest(packages: Iterable[Package]) -> Package | None:
    """The source package of the newest kernel series; of one series that of the highest version."""
    found = [(int(match[1]), int(match[2]), package) for package in packages
             if (match := _SOURCE.fullmatch(package.name)) is not None]
    return max(found, key=lambda entry: (*entry[:2], _order(entry[2].version)), default=(0, 0, None))[2]


def _order(version: str) -> list[int]:
    # What follows a tilde comes before nothing: 7.4~rc3 before 7.4, 7.4-1~bpo13+1 before 7.4-1.
    return [*(-1 if part == "~" else int(part) for part in re.findall(r"~|\d+", version)), 0]


def errors(text: str, checkout: Path) -> list[tuple[str, str]]:
    """The errors in what a build printed: file, below the checkout where it is ours, and message."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := _C_ERROR.match(line):
            found.append((_below(match[1], checkout), match[2]))
        elif match := _ERROR.match(line):
            place = _RUST_PLACE.search("\n".join(lines[number + 1 : number + 4]))
            found.append((_below(place[1], checkout) if place else "?", match[1]))
    return found


def _below(name: str, checkout: Path) -> str:
    path = Path(name)
    return str(path.relative_to(checkout)) if path.is_relative_to(checkout) else name


class Canary:
    """The newest kernel, and what is made of it."""

    def __init__(self) -> None:
        self._archive = Archive("canary", SUITES)
        log = steps.log_path("canary")
        log.write_text("")
        found = newest(self._archive.packages(log))
        if found is None:
            raise RuntimeError(f"no suite of {', '.join(SUITES)} has the source of a kernel; see {log}")
        self.package = found

    def source(self) -> cache.Artifact:
        return cache.artifact("source", version=self.package.version, recipe=1)

    def kdir(self) -> cache.Artifact:
        return cache.artifact("kdir-canary", source=self.source().key, config=kernel.stock().key,
                              toolchain=debian.buildroot().stamp()["toolchain"], recipe=1)

    def make_source(self, work: Work) -> None:
        self._archive.download([f"{self.package.name}={self.package.version}"], work.folder, work.log)
        deb = next(work.folder.glob("*.deb"))
        kernel.unpack_source(deb, self.package.name, work.folder / "linux", work.log)
        deb.unlink()

    def _source_bind(self) -> run.Bind:
        return run.Bind(self.source().path / "linux", kernel.SOURCE_INSIDE, True)

    def make_kdir(self, work: Work) -> None:
        kernel.prepare(work.folder / "tree", kernel.stock().path / "config", self._source_bind(), paths.build_root(),
                       self.options(), work.log)

    @staticmethod
    def options() -> list[str]:
        return [option for option in kernel.make_options() if not option.startswith("KERNELRELEASE=")]

    def tree(self) -> build.KernelTree:
        binds = (self._source_bind(), run.Bind(self.kdir().path / "tree", kernel.STOCK_INSIDE))
        # Without the symbols of a kernel of this build the last step would only complain.
        options = (*self.options(), kernel.WITHOUT_BTF, "KBUILD_MODPOST_WARN=1")
        return build.KernelTree(paths.build_root(), kernel.STOCK_INSIDE, binds, options)


def main(_options: argparse.Namespace) -> int:
    """Prints what does not compile; fails only if the newest kernel could not be prepared."""
    if not setup.setup("build"):
        return 1
    progress = steps.Progress()
    canary = Canary()
    progress.say(f"the newest kernel: {canary.package.name} ({canary.package.version})")
    table = {step.name: step for step in (
        Step("canary-source", "its source", canary.source, canary.make_source),
        Step("canary-kdir", "its Rust metadata", canary.kdir, canary.make_kdir, ("canary-source",)),
    )}
    if not steps.run(table, ("canary-kdir",), progress):
        return 1
    status, said = build.output_of(canary.tree(), paths.modules_dir("canary"), ["-k", "modules"])
    found = errors(said, paths.CHECKOUT)
    for file, message in sorted(set(found)):
        print(f"{file}: {message}")
    for file, count in sorted(Counter(file for file, _ in found).items()):
        print(f"{count:4} {file}")
    if status != 0 and not found:
        print(f"{said}\nthe build ended with status {status}")
    print(f"{len(found)} errors with {canary.package.name} ({canary.package.version})")
    return 0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser("canary", help="what does not compile with the newest kernel of any Debian suite")
    command.set_defaults(run=main)

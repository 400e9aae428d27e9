# SPDX-License-Identifier: GPL-2.0
"""Package lists of the Debian archive: of an architecture, in some suites, read by the base's apt.

The base tree has the lists of Debian 13 for the host's architecture. All other lists lie in the cache.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import arch
from . import cache
from . import debian
from . import mirror
from . import run


@dataclass(frozen=True)
class Package:
    """One stanza of a package list."""

    name: str
    version: str
    depends: str = ""


def parse_packages(text: str) -> Iterator[Package]:
    """Reads names, versions and dependencies of the stanzas of a package list."""
    fields: dict[str, str] = {}
    for line in [*text.splitlines(), ""]:
        if line:
            key, _, value = line.partition(": ")
            if key in ("Package", "Version", "Depends"):
                fields[key] = value
            continue
        if "Package" in fields and "Version" in fields:
            yield Package(fields["Package"], fields["Version"], fields.get("Depends", ""))
        fields = {}


@dataclass(frozen=True)
class Archive:
    """The packages of an architecture in some suites; `name` names the folder of their lists."""

    name: str
    suites: tuple[str, ...]
    machine: arch.Arch = field(default=arch.AMD64)

    def _is_of_the_base(self) -> bool:
        return self.suites == debian.TRIXIE.archives and self.machine is arch.AMD64

    def _binds(self) -> list[run.Bind]:
        if self._is_of_the_base():
            return []
        folder = cache.root() / "apt" / f"lists-{self.name}"
        (folder / "partial").mkdir(parents=True, exist_ok=True)
        sources = cache.root() / "apt" / f"{self.name}.list"
        sources.write_text(debian.sources(self.suites))
        return [run.Bind(folder, "/var/lib/apt/lists"), run.Bind(sources, "/etc/apt/sources.list", True)]

    def _options(self) -> list[str]:
        options = mirror.apt_options()
        if self.machine is not arch.AMD64:
            options += ["-o", f"APT::Architecture={self.machine.name}", "-o",
                        f"APT::Architectures={self.machine.name}"]
        if self.suites != debian.TRIXIE.archives:
            options += debian.OLD_LISTS
        return options

    def update(self, log: Path) -> None:
        """Fetches the lists. A suite that the mirror lacks is left out; apt names it in the log."""
        argv = ["sh", "-c", 'apt-get -q "$@" update || true', "sh", *self._options()]
        run.chroot(debian.base().path / "root", argv, self._binds(), log)

    def packages(self, log: Path, refresh: bool = True) -> list[Package]:
        """The packages; none if the mirror has no such suite."""
        if refresh or not self._is_of_the_base():
            self.update(log)
        argv = ["apt-cache", *self._options(), "dumpavail"]
        dump = subprocess.run(run.chroot_command(debian.base().path / "root", argv, self._binds()),
                              capture_output=True, text=True, check=True)
        return list(parse_packages(dump.stdout))

    def download(self, packages: Iterable[str], folder: Path, log: Path) -> None:
        """Downloads packages, each as NAME or NAME=VERSION, into a folder. Apt checks their digests."""
        argv = ["apt-get", "-q", *self._options(), "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root",
                "download", *packages]
        run.chroot(debian.base().path / "root", argv, [*self._binds(), run.Bind(folder, "/mnt")], log, cwd="/mnt")


def of(suite: debian.Suite, machine: arch.Arch) -> Archive:
    """The archive that machines of an architecture with this release of Debian install from."""
    return Archive(f"{suite.name}-{machine.name}", suite.archives, machine)

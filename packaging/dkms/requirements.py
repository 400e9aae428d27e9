# SPDX-License-Identifier: GPL-2.0
"""What is needed to build Rust modules for an installed kernel, and what of it is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Debian's own compilers, whatever else root's PATH finds: the kernel was built with them.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Needed to make the metadata, with the package of each.
PROGRAMS = {"bc": "bc", "make": "make", "tar": "tar", "xz": "xz-utils"}
# What the modules use of a kernel, and what to say without it.
OPTIONS = {
    "CONFIG_RUST": "support for modules written in Rust",
    "CONFIG_INFINIBAND_ADDR_TRANS": "RDMA (the cloud flavour has none)",
    "CONFIG_BLK_DEV": "block devices",
}
# The series that the modules are made for, MAJOR.MINOR, one on each line.
KERNELS = Path(__file__).resolve().parents[2] / "KERNELS"
MODULES = ("rtrs_core", "rtrs_client", "rtrs_server", "rnbd_client", "rnbd_server", "rtrs_client_c",
           "rtrs_server_c", "rtrs_group", "rtrs_group_c", "rtrs_test", "rtrs_test_client", "rtrs_test_server")


def supported() -> list[tuple[int, int]]:
    """The series that the modules are made for, from oldest to newest."""
    lines = [line.split("#")[0].strip() for line in KERNELS.read_text().splitlines()]
    return sorted((int(major), int(minor)) for major, _, minor in (line.partition(".") for line in lines if line))


def _series(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"


def bare(program: str) -> str:
    """A compiler's name without that of the machine that it compiles for."""
    return re.sub(r"^[a-z0-9_]+-linux-gnu-", "", program)


@dataclass(frozen=True)
class Problem:
    """Something that is missing, and what to do about it."""

    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}\n    remedy: {self.remedy}"


@dataclass(frozen=True)
class Root:
    """The file system that is looked at, and how its programs are asked. Tests give another."""

    path: Path = Path("/")

    def at(self, name: str) -> Path:
        return self.path / name.lstrip("/")

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=PATH)

    def output(self, *argv: str) -> str:
        """What a program prints; empty if there is none or it fails."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": PATH, "LC_ALL": "C"})
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def package_version(self, package: str) -> str:
        """The version of an installed package, empty if it is not installed."""
        answer = self.output("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package)
        status, _, version = answer.partition(" ")
        # One that is being configured has its files already.
        return version if status in ("installed", "unpacked", "half-configured", "triggers-pending", "triggers-awaited") else ""


class Kernel:
    """An installed kernel, by its release, such as 7.3.4+deb13-amd64."""

    def __init__(self, release: str, root: Root | None = None, build: Path | None = None) -> None:
        self.release = release
        self.root = root or Root()
        self.build = build or self.root.at(f"/lib/modules/{release}/build")
        self._config: dict[str, str] | None = None

    @property
    def number(self) -> tuple[int, int]:
        match = re.match(r"(\d+)\.(\d+)", self.release)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def headers_package(self) -> str:
        return f"linux-headers-{self.release}"

    @property
    def source_package(self) -> str:
        return f"linux-source-{self.number[0]}.{self.number[1]}"

    @property
    def source_archive(self) -> Path:
        return self.root.at(f"/usr/src/{self.source_package}.tar.xz")

    @property
    def config_file(self) -> Path:
        return self.build / ".config"

    @property
    def config(self) -> dict[str, str]:
        """The kernel's configuration; texts without their quotes."""
        if self._config is None:
            self._config = {}
            for line in self.config_file.read_text().splitlines():
                name, equals, value = line.partition("=")
                if equals and name.startswith("CONFIG_"):
                    self._config[name] = value.strip('"')
        return self._config

    def can_boot(self) -> bool:
        """Whether the kernel itself is installed; some packages have it beside the modules."""
        places = (f"/boot/vmlinuz-{self.release}", f"/lib/modules/{self.release}/vmlinuz")
        return any(self.root.at(place).is_file() for place in places)

    def missing(self) -> list[str]:
        """Which of the modules are not installed for this kernel, whatever installs them."""
        place = self.root.at(f"/lib/modules/{self.release}")
        found = {file.name.split(".ko", 1)[0] for folder in ("updates", "extra") for file in place.glob(f"{folder}/**/*.ko*")}
        return [name for name in MODULES if name not in found]

    @property
    def compiler(self) -> str:
        """The name of the C compiler that the kernel was built with."""
        return self.config.get("CONFIG_CC_VERSION_TEXT", "gcc").split(" ", 1)[0]

    def has_metadata(self) -> bool:
        """Whether the build tree has Rust metadata of its own, as a kernel built by hand has."""
        return (self.build / "rust/libkernel.rmeta").is_file()

    def problems(self) -> list[Problem]:
        """Everything that keeps modules from being built; empty if nothing does."""
        if not self.config_file.is_file():
            return [Problem(f"the headers of kernel {self.release} are not installed", f"apt install {self.headers_package}")]
        unfit = self.unfit()
        if unfit:
            return unfit
        found = self._compilers()
        if not self.has_metadata():
            found += self._programs() + self._source()
        return found

    def unfit(self) -> list[Problem]:
        """What no package can add to this kernel."""
        oldest, newest = supported()[0], supported()[-1]
        arch = self.root.output("dpkg", "--print-architecture") or "amd64"
        fit = f"{_series(oldest)} to {_series(newest)}"
        other = (f"install a kernel {fit}, as by `apt install -t trixie-backports linux-image-{arch} linux-headers-{arch}'; "
                 "then reboot")
        if self.number < oldest:
            return [Problem(f"kernel {self.release} is too old, the modules need {_series(oldest)}", other)]
        if self.number > newest:
            return [Problem(
                f"kernel {self.release} is newer than these modules, which are made for {fit}",
                "upgrade rnbd-dkms, if there is a newer one; until then boot an older kernel (see /usr/share/doc/rnbd-dkms/README.Debian)",
            )]  # fmt: skip
        return [
            Problem(f"kernel {self.release} is built without {option}: {meaning}", other)
            for option, meaning in OPTIONS.items()
            if self.config.get(option) not in ("y", "m")
        ]

    def _compilers(self) -> list[Problem]:
        found = []
        compiler = self.compiler
        if self.root.which(compiler) is None:
            package = bare(compiler)
            found.append(Problem(f"{compiler}, the kernel's C compiler, is not installed", f"apt install {package}"))
        for program, option in (("rustc", "CONFIG_RUSTC_VERSION_TEXT"), ("bindgen", "CONFIG_BINDGEN_VERSION_TEXT")):
            wanted = self.config.get(option, "")
            place = self.root.which(program)
            if place is None:
                found.append(Problem(f"{program} is not installed", f"apt install {program}"))
                continue
            have = self.root.output(place, "--version")
            if wanted and have != wanted:
                found.append(Problem(
                    f"{place} is `{have}', but kernel {self.release} was built with `{wanted}'",
                    f"apt install --reinstall {program}, in the version of the release that the kernel is for",
                ))  # fmt: skip
        rustc = self.root.which("rustc")
        if rustc is not None:
            library = f"{self.root.output(rustc, '--print', 'sysroot')}/lib/rustlib/src/rust/library/core/src/lib.rs"
            if not self.root.at(library).is_file():
                found.append(Problem("the source of Rust's core library is not installed", "apt install rust-src"))
        return found

    def _programs(self) -> list[Problem]:
        return [
            Problem(f"{program} is not installed", f"apt install {package}")
            for program, package in PROGRAMS.items()
            if self.root.which(program) is None
        ]

    def _source(self) -> list[Problem]:
        source, headers = self.source_package, self.headers_package
        wanted = self.root.package_version(headers)
        if not self.source_archive.is_file():
            exact = f"={wanted}" if wanted else ""
            return [Problem(f"the source of kernel {self.release} is not installed", f"apt install {source}{exact}")]
        have = self.root.package_version(source)
        if wanted and have and have != wanted:
            return [Problem(
                f"{source} is version {have}, but {headers} is version {wanted}",
                f"apt install {source}={wanted}; if that is not to be had, install the newest kernel with its headers and source",
            )]  # fmt: skip
        return []


def next_to_boot(root: Root | None = None) -> str:
    """The release of the kernel that boots next: the newest one, unless the boot loader was told another.

    Empty if none is installed.
    """
    return max((release for release in installed(root) if Kernel(release, root).can_boot()), key=order, default="")


def order(release: str) -> list[tuple[str, int]]:
    """A release in the order of its numbers, as GRUB has them in its menu."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", release)]


def installed(root: Root | None = None) -> list[str]:
    """The releases of the kernels that have modules here."""
    folder = (root or Root()).at("/lib/modules")
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

# SPDX-License-Identifier: GPL-2.0
"""The stock kernel: which one, its packages, and a tree to build Rust modules against.

Debian ships the kernel with Rust enabled but without the Rust metadata that a
module's build needs, so that part is made again, from the same source, with
the same configuration and compiler.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from . import cache
from . import debian
from . import mirror
from . import run
from .steps import Work

MAJOR = 7
PREFERRED = (7, 3)
FLAVOUR = "amd64"
CC = "x86_64-linux-gnu-gcc-14"
HOSTCC = "gcc-14"
WITHOUT_BTF = "CONFIG_DEBUG_INFO_BTF_MODULES="
# Where source and trees are inside the build root: paths get recorded in them.
SOURCE_INSIDE = "/kernel/source"
STOCK_INSIDE = "/kernel/stock"

_HEADERS = re.compile(rf"linux-headers-((\d+)\.(\d+)(?:\.(\d+))?[^ -]*-{FLAVOUR})")


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
    packages: tuple[str, ...]


def parse_packages(text: str) -> Iterator[Package]:
    """Reads `Package:` and `Version:` of the stanzas of a package list."""
    name = ""
    for line in text.splitlines():
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith("Version: ") and name:
            yield Package(name, line[9:])
            name = ""


def candidates(packages: Iterable[Package]) -> list[Choice]:
    """The kernels that can be used, best first: the newest 7.3, else the newest other 7.x."""
    available = {(package.name, package.version) for package in packages}
    found = []
    for name, version in available:
        match = _HEADERS.fullmatch(name)
        if match is None or int(match[2]) != MAJOR:
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
        choice = Choice(release, version, series, (name, source, *images))
        found.append((number[:2] == PREFERRED, number, version, choice))
    return [choice for *_, choice in sorted(found, key=lambda entry: entry[:3], reverse=True)]


def _choice_file() -> Path:
    return cache.root() / f"stock-kernel-{debian.base().key}.json"


def is_chosen() -> bool:
    return _choice_file().is_file()


def is_stale() -> bool:
    """Whether the choice is old and its packages, not all here yet, may be gone from the mirror."""
    if not is_chosen() or (stock().is_complete() and source().is_complete()):
        return False
    return time.time() - _choice_file().stat().st_mtime > 24 * 3600


def chosen() -> Choice:
    """The kernel that the last resolution chose; raises FileNotFoundError before the first."""
    fields = json.loads(_choice_file().read_text())
    return Choice(fields["release"], fields["version"], fields["series"], tuple(fields["packages"]))


def resolve(log: Path, refresh: bool = False) -> Choice:
    """Chooses the kernel, from lists fetched again if `refresh`; remembers the choice."""
    tree = debian.base().path / "root"
    if not refresh and is_chosen():
        return chosen()
    if refresh:
        run.chroot(tree, ["apt-get", "-q", *mirror.apt_options(), "update"], log=log)
    dump = subprocess.run(
        run.chroot_command(tree, ["apt-cache", "dumpavail"]), capture_output=True, text=True, check=True
    )
    found = candidates(parse_packages(dump.stdout))
    if not found:
        raise RuntimeError(f"{debian.BACKPORTS} has no {MAJOR}.x kernel with headers, source and image")
    partial = _choice_file().with_suffix(".partial")
    partial.write_text(json.dumps(asdict(found[0]), indent=1) + "\n")
    partial.rename(_choice_file())
    return found[0]


def stock() -> cache.Artifact:
    return cache.artifact("stock", version=chosen().version, packages=chosen().packages, recipe=1)


def source() -> cache.Artifact:
    return cache.artifact("source", version=chosen().version, recipe=1)


def kdir() -> cache.Artifact:
    return cache.artifact(
        "kdir",
        release=chosen().release,
        version=chosen().version,
        toolchain=debian.buildroot().stamp()["toolchain"],
        recipe=1,
    )


def _download(package: str, version: str, log: Path) -> Path:
    """Downloads one package into the cache; gives its file. Apt checks its digest."""
    folder = cache.root() / "debs" / version.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    have = sorted(folder.glob(f"{package}_*.deb"))
    if not have:
        partial = folder / f"{package}.partial"
        cache.remove_tree(partial)
        partial.mkdir()
        argv = ["apt-get", "-q", *mirror.apt_options(), "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"]
        argv += ["download", f"{package}={version}"]
        run.chroot(debian.base().path / "root", argv, [run.Bind(partial, "/mnt")], log, cwd="/mnt")
        for deb in partial.glob("*.deb"):
            deb.rename(folder / f"{package}_{deb.name.split('_', 1)[1]}")
        partial.rmdir()
        have = sorted(folder.glob(f"{package}_*.deb"))
    return have[0]


def _extract(deb: Path, into: Path, log: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    run.call(["dpkg-deb", "-x", str(deb), str(into)], log)


def make_stock(work: Work) -> None:
    """Fills a folder with vmlinuz, all modules, the configuration and the symbol list."""
    choice = chosen()
    unpacked = work.folder / "unpacked"
    for package in choice.packages:
        if not package.startswith("linux-source-"):
            _extract(_download(package, choice.version, work.log), unpacked, work.log)
    headers = unpacked / "usr/src" / f"linux-headers-{choice.release}"
    config = (headers / ".config").read_text()
    if "\nCONFIG_RUST=y\n" not in config:
        raise RuntimeError(f"{choice.release} is built without CONFIG_RUST")
    shutil.move(headers / ".config", work.folder / "config")
    shutil.move(headers / "Module.symvers", work.folder / "Module.symvers")
    images = [unpacked / f"usr/lib/modules/{choice.release}/vmlinuz", unpacked / f"boot/vmlinuz-{choice.release}"]
    shutil.move(next(image for image in images if image.is_file()), work.folder / "vmlinuz")
    trees = [unpacked / f"{prefix}lib/modules/{choice.release}" for prefix in ("usr/", "")]
    shutil.move(next(tree for tree in trees if (tree / "kernel").is_dir()), work.folder / "modules")
    cache.remove_tree(unpacked)
    work.facts["release"] = choice.release


def make_source(work: Work) -> None:
    """Unpacks the kernel's source."""
    choice = chosen()
    name = f"linux-source-{choice.series}"
    deb = _download(name, choice.version, work.log)
    tree = work.folder / "linux"
    tree.mkdir()
    pipe = 'dpkg-deb --fsys-tarfile "$1" | tar -xOf - "./usr/src/$2.tar.xz" | xz -dcT0 | tar -xf - -C "$3" --strip=1'
    run.call(["sh", "-euc", pipe, "sh", str(deb), name, str(tree)], work.log)
    if not (tree / "rust/kernel/lib.rs").is_file():
        raise RuntimeError(f"{deb}: no kernel source with Rust in it")


def source_bind() -> run.Bind:
    return run.Bind(source().path / "linux", SOURCE_INSIDE, readonly=True)


def stock_make_options(release: str) -> list[str]:
    """What every make in the stock tree must be told, so that it matches Debian's kernel."""
    return [f"CC={CC}", f"HOSTCC={HOSTCC}", f"KERNELRELEASE={release}"]


def module_make_options(release: str) -> list[str]:
    """For building modules: type information for BPF would need Debian's vmlinux, and nothing here uses it."""
    return [*stock_make_options(release), WITHOUT_BTF]


def make_kdir(work: Work) -> None:
    """Makes the tree for building modules: Debian's configuration, Rust metadata, symbols."""
    choice = chosen()
    tree = work.folder / "tree"
    tree.mkdir()
    shutil.copy(stock().path / "config", tree / ".config")
    binds = [source_bind(), run.Bind(tree, STOCK_INSIDE)]
    make = ["make", "-s", "-C", SOURCE_INSIDE, f"O={STOCK_INSIDE}", *stock_make_options(choice.release)]
    root = debian.buildroot().path / "root"
    for goals in (["olddefconfig"], ["-j3", "prepare"], ["-j3", "modules_prepare"]):
        run.chroot(root, [*make, *goals], binds, work.log)
    shutil.copy(stock().path / "Module.symvers", tree / "Module.symvers")
    _check_config(stock().path / "config", tree / ".config")
    work.facts["release"] = choice.release
    work.facts["source"] = source().path.name


def _check_config(ours: Path, made: Path) -> None:
    """Refuses a tree whose configuration drifted from Debian's, which would not load there."""
    wanted = set(filter(_matters, ours.read_text().splitlines()))
    got = set(filter(_matters, made.read_text().splitlines()))
    lost = sorted(wanted - got)
    if lost:
        raise RuntimeError(f"the configuration differs from Debian's, first in: {lost[0]}")


def _matters(line: str) -> bool:
    # Texts and versions describe the build machine, not the kernel.
    return line.startswith("CONFIG_") and line.endswith(("=y", "=m")) and "_HAS_" not in line

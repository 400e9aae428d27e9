# SPDX-License-Identifier: GPL-2.0
"""Root trees for another architecture than the host's, made of its packages."""

import os
from collections.abc import Iterable
from pathlib import Path

from . import arch
from . import archive
from . import cache
from . import debian
from . import run
from .steps import Work

# `e_machine` of an ELF file.
ELF_MACHINES = {arch.AMD64.name: 62, arch.ARM64.name: 183}


def make_buildroot(work: Work, machine: arch.Arch) -> None:
    """The build root, with what it takes to build and run for another architecture."""
    tree = work.folder / "root"
    run.call(["cp", "-a", "--reflink=auto", str(debian.buildroot().path / "root"), str(tree)], work.log)
    packages = debian.CROSS_PACKAGES[machine.name]
    debian.install(tree, packages, "build", work.log)
    libraries = work.folder / "libraries"
    libraries.mkdir()
    # Rust takes libraries of its own version only.
    versions = debian.installed_versions(tree, debian.CROSS_LIBRARIES)
    archive.of(debian.TRIXIE, machine).download([f"{name}={version}" for name, version in versions.items()], libraries,
                                                work.log)
    for deb in sorted(libraries.glob("*.deb")):
        run.call(["dpkg-deb", "-x", str(deb), str(tree)], work.log)
    cache.remove_tree(libraries)
    work.facts["toolchain"] = debian.installed_versions(tree, (*debian.TOOLCHAIN, *packages))


def make_guest(work: Work, machine: arch.Arch) -> None:
    """The tree of the virtual machines' root for another architecture.

    No program of that architecture runs here, so no package can be set up. But what setting up makes
    does not depend on the architecture, and the native tree has it: so this is that tree, with the files
    of each package replaced by those of the same package for the other architecture.
    """
    tree = work.folder / "root"
    run.call(["cp", "-a", "--reflink=auto", str(debian.guest().path / "root"), str(tree)], work.log)
    packages = work.folder / "packages"
    packages.mkdir()
    # Rebuilds (+b1) differ between architectures, so no version is asked for.
    archive.of(debian.TRIXIE, machine).download(sorted(debian.installed(tree)), packages, work.log)
    _remove_packaged(tree)
    for deb in sorted(packages.glob("*.deb")):
        # Settings stay as they were made; links that lead from the old folders into /usr stay, too.
        unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -xpf - -C "$2" --keep-directory-symlink --exclude="./etc/*"'
        run.call(["sh", "-euc", unpack, "sh", str(deb), str(tree)], work.log)
    cache.remove_tree(packages)
    left = list(_programs_of(tree, ELF_MACHINES[arch.AMD64.name]))
    if left:
        raise RuntimeError(f"{len(left)} programs for {arch.AMD64.name} are left, first {left[0]}")
    (tree / "var/lib/dpkg/arch").write_text(f"{machine.name}\n")


def _remove_packaged(tree: Path) -> None:
    """Removes the files that came with packages, but for settings."""
    for listing in (tree / "var/lib/dpkg/info").glob("*.list"):
        for name in listing.read_text().splitlines():
            path = tree / name.lstrip("/")
            is_folder = path.is_dir() and not path.is_symlink()
            # Links of the root folder lead into /usr.
            if not is_folder and not name.startswith("/etc/") and path.parent != tree:
                path.unlink(missing_ok=True)


def _programs_of(tree: Path, machine: int) -> Iterable[Path]:
    """The ELF files of a tree that are for a machine."""
    for folder, _, files in os.walk(tree):
        for name in files:
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                continue
            with open(path, "rb") as file:
                head = file.read(20)
            if head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == machine:
                yield path

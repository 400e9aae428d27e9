# SPDX-License-Identifier: GPL-2.0
"""The program of the campaign (selftests/campaign/), compiled with the libraries that the machines have."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import archive
from . import cache
from . import debian
from . import paths
from . import run
from .arch import AMD64
from .arch import Arch
from .steps import log_path
from .steps import Work

SOURCE = paths.CHECKOUT / "selftests" / "campaign"
# What is linked, by the package whose version the headers have, and the package of the headers.
LIBRARIES = {"libibverbs.so.1": ("libibverbs1", "libibverbs-dev"),
             "librdmacm.so.1": ("librdmacm1t64", "librdmacm-dev")}
FLAGS = ("-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-Werror", "-pthread")


def headers() -> cache.Artifact:
    """Headers of the RDMA libraries, of the versions that the machines have. They are those of each architecture."""
    return cache.artifact("rdma-headers", guest=debian.guest().key, recipe=1)


def make_headers(work: Work) -> None:
    """Download the packages with the headers, and take these."""
    versions = debian.installed(debian.guest().path / "root")
    wanted = [f"{package}={versions[library]}" for library, package in LIBRARIES.values()]
    packages = work.folder / "packages"
    packages.mkdir()
    archive.of(debian.TRIXIE, AMD64).download(wanted, packages, work.log)
    for deb in sorted(packages.glob("*.deb")):
        run.call(["dpkg-deb", "-x", str(deb), str(work.folder / "tree")], work.log)
    shutil.move(work.folder / "tree/usr/include", work.folder / "include")
    cache.remove_tree(packages)
    cache.remove_tree(work.folder / "tree")


def _headers_folder() -> Path:
    target = headers()
    with cache.lock(f"rdma-headers-{target.key}"):
        if not target.is_complete():
            with cache.building(target) as (folder, facts):
                make_headers(Work(folder, facts, log_path("rdma-headers")))
    target.touch()
    return target.path / "include"


def program(machine: Arch = AMD64) -> Path:
    """The program for an architecture."""
    sources = {path.name: path.read_text() for path in sorted(SOURCE.glob("*.[ch]"))}
    target = cache.artifact("hostile-peers", sources=sources, flags=FLAGS, headers=headers().key,
                            buildroot=debian.buildroot(machine).key, guest=debian.guest(machine).key)
    include = _headers_folder()
    return cache.made(target, lambda folder: _compile(folder, sources, include, machine)) / "campaign"


def _compile(folder: Path, sources: dict[str, str], include: Path, machine: Arch) -> None:
    for name, text in sources.items():
        (folder / name).write_text(text)
    found = debian.guest(machine).path / "root/usr/lib" / machine.triplet
    binds = [run.Bind(folder, "/mnt/campaign"), run.Bind(include, "/mnt/include", True),
             run.Bind(found, "/mnt/lib", True)]
    # The libraries' own libraries are in the machines only.
    argv = [machine.compiler, *FLAGS, "-I/mnt/include", "-o", "campaign",
            *(name for name in sources if name.endswith(".c")), *(f"/mnt/lib/{name}" for name in LIBRARIES),
            "-Wl,--allow-shlib-undefined"]
    run.chroot(debian.buildroot(machine).path / "root", argv, binds, log_path("hostile-peers"), cwd="/mnt/campaign")

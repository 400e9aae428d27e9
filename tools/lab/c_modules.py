# SPDX-License-Identifier: GPL-2.0
"""The C modules of the kernel's source, built for a kernel that ships without them."""

import shutil
from pathlib import Path

from . import build
from . import cache
from . import debug_kernel
from . import kernel
from . import paths
from . import run
from .arch import AMD64
from .arch import Arch
from .steps import Work

FOLDERS = {"rtrs": "drivers/infiniband/ulp/rtrs", "rnbd": "drivers/block/rnbd"}
SYMBOLS = (
    "CONFIG_INFINIBAND_RTRS", "CONFIG_INFINIBAND_RTRS_CLIENT", "CONFIG_INFINIBAND_RTRS_SERVER",
    "CONFIG_BLK_DEV_RNBD", "CONFIG_BLK_DEV_RNBD_CLIENT", "CONFIG_BLK_DEV_RNBD_SERVER",
)  # fmt: skip
MODULES = ("rtrs-core", "rtrs-client", "rtrs-server", "rnbd-client", "rnbd-server")


def stock(name: str = kernel.STOCK) -> cache.Artifact:
    return cache.artifact("c-modules", kdir=kernel.kdir(name).key, recipe=1)


def debug(machine: Arch = AMD64) -> cache.Artifact:
    return cache.artifact("c-modules-debug", kdir=debug_kernel.debug(machine).key, recipe=1)


def _make(work: Work, tree: build.KernelTree, source: Path) -> None:
    copy = work.folder / "source"
    copy.mkdir()
    for name, folder in FOLDERS.items():
        shutil.copytree(source / folder, copy / name)
    (copy / "Kbuild").write_text("obj-m += rtrs/ rnbd/\n")
    binds = [*tree.binds, run.Bind(copy, "/mnt/c-modules")]
    argv = ["make", "-s", "-j2", "-C", tree.inside, "M=/mnt/c-modules", *tree.options]
    argv += [f"{symbol}=m" for symbol in SYMBOLS]
    run.chroot(tree.root, argv, binds, work.log)
    for name in MODULES:
        built = next(copy.glob(f"*/{name}.ko"))
        shutil.copy(built, work.folder / built.name)
    cache.remove_tree(copy)


def make_stock(work: Work, name: str = kernel.STOCK) -> None:
    """Builds the five modules for a stock kernel."""
    _make(work, build.stock_tree(name), kernel.source(name).path / "linux")


def make_debug(work: Work, machine: Arch = AMD64) -> None:
    """Builds the five modules for a debug kernel."""
    _make(work, build.debug_tree(machine), kernel.source().path / "linux")


def folder(name: str) -> Path:
    """The folder with the five .ko files for the kernel `name`."""
    return (debug(paths.machine(name)) if paths.is_debug(name) else stock(name)).path

# SPDX-License-Identifier: GPL-2.0
"""The root image of `lab bench` with iSER, SRP and iSCSI: that of all machines, and what these systems need beside it.

It is an image of its own, since all tests would boot whatever is added to the common one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from . import cache
from . import debian
from . import image
from . import kernel
from . import kmods
from . import run
from .steps import Work
from .vm import Platform

# The program that logs in to an iSCSI target.
PACKAGES = ("open-iscsi",)
# ib_iser, ib_isert, ib_srp and ib_srpt are in the common image, with most of what they need.
MODULES = ("kernel/drivers/scsi/iscsi_tcp.*", "kernel/drivers/target/target_core_iblock.*")
STEP = "bench-image"


def root_image() -> cache.Artifact:
    """Folder with root.img."""
    return cache.artifact(STEP, boot=image.boot().key, packages=PACKAGES, modules=MODULES, recipe=1)


def make_root_image(work: Work) -> None:
    """Makes the image from the tree of the common one."""
    tree = work.folder / "root"
    run.call(["cp", "-a", str(debian.guest().path / "root"), str(tree)], work.log)
    debian.install(tree, PACKAGES, STEP, work.log)
    cache.remove_tree(tree / "var/lib/apt/lists")
    modules = image.guest_modules(work)
    every = work.folder / "every"
    add_modules(every, modules, work.log)
    image.make_root_image(tree, modules, work.folder / "root.img", work.log)
    for waste in (tree, modules, every):
        cache.remove_tree(waste)


def add_modules(every: Path, modules: Path, log: Path) -> None:
    """Adds `MODULES` and what they need to a tree like /lib/modules, from one with all modules."""
    release = kernel.chosen().release
    table = kmods.parse_dep((every / release / "modules.dep").read_text())
    kmods.copy_unpacked(every / release, modules / release, kmods.select(table, MODULES))
    image.depmod(modules, release, log)


def of(platform: Platform) -> Platform:
    """A platform of the stock kernel, with this image as its root."""
    return dataclasses.replace(platform, root_image=root_image().path / "root.img")


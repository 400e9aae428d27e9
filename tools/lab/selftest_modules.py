# SPDX-License-Identifier: GPL-2.0
"""Kernel modules that only the tests need, built at first use."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from . import build
from . import cache
from . import paths
from . import run

SOURCE = paths.CHECKOUT / "selftests" / "modules"
INSIDE = "/mnt/test-modules"


def folder(kernel: str) -> Path:
    """The folder of their .ko files for a kernel."""
    sources = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
               for path in sorted(SOURCE.iterdir()) if path.is_file()}
    target = cache.artifact("test-modules", kernel=str(paths.artifacts(kernel).kdir),
                            sources=sources)
    return cache.made(target, lambda made: _make(made, kernel))


def _make(made: Path, kernel: str) -> None:
    tree = build.kernel_tree(kernel, None)
    copy = made / "source"
    shutil.copytree(SOURCE, copy)
    log = cache.root() / "log" / "test-modules.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = ["make", "-s", "-C", tree.inside, f"M={INSIDE}", *tree.options]
    run.chroot(tree.root, argv, [*tree.binds, run.Bind(copy, INSIDE)], log)
    for module in copy.glob("*.ko"):
        shutil.copy(module, made / module.name)
    cache.remove_tree(copy)

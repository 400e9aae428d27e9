# SPDX-License-Identifier: GPL-2.0
"""Modules as an installation has them: without debug information.

DKMS and Debian strip modules, too. Machines load them so often, and with debug information they are fifteen times as
large, that tests and boots take a fifth of the processors' time for nothing else.
"""

import shutil
from pathlib import Path

from . import build
from . import cache
from . import paths
from . import run

INSIDE = "/mnt/loadable"


def folder(kernel: str, source: Path) -> Path:
    """The modules in `source`, at any depth, in one flat folder, without debug information.

    The folder is made at first use, and again for each module that is newer. Two modules of one name are an error.
    """
    target = cache.root() / "loadable" / cache.digest(str(source.resolve()))
    wanted: dict[str, Path] = {}
    for file in sorted(source.rglob("*.ko")):
        if file.name in wanted:
            raise RuntimeError(f"{source}: two modules are called {file.name}")
        wanted[file.name] = file
    with cache.lock(f"loadable-{target.name}"):
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("*.ko"):
            if old.name not in wanted:
                old.unlink()
        stale = [file for file in wanted.values() if _age(target / file.name) != _age(file)]
        if stale:
            _strip(kernel, stale, target)
    return target


def _age(file: Path) -> int | None:
    """When a file was written; nothing if there is none."""
    return file.stat().st_mtime_ns if file.exists() else None


def _strip(kernel: str, files: list[Path], target: Path) -> None:
    """Copies modules without their debug information; a module has its name and its date when it is whole."""
    made = target / "new"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    for file in files:
        shutil.copy2(file, made / file.name)
    argv = [f"{paths.machine(kernel).prefix}strip", "-g", "-p", *[f"{INSIDE}/{file.name}" for file in files]]
    run.chroot(build.kernel_tree(kernel, None).root, argv, [run.Bind(made, INSIDE)])
    for file in files:
        # -p keeps the date in whole seconds only.
        shutil.copystat(file, made / file.name)
        (made / file.name).replace(target / file.name)
    made.rmdir()

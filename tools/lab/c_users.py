# SPDX-License-Identifier: GPL-2.0
"""Users of our transport that are written in C: the kernel's rnbd-client and rnbd-server, and callers for tests.

Client and server are built unchanged, from the kernel's source, with our header (include/rtrs.h) and
against the modules of this checkout. A machine gets it together with these, as one set.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from . import build
from . import c_modules
from . import cache
from . import kernel
from . import paths
from . import run

# The name of this set of modules, and the selftest that uses it.
MODULES = "c-users"
SUBJECT = "c_users"
_CALLER = paths.CHECKOUT / "selftests" / "c_api"
_HEADERS = paths.CHECKOUT / "include"
_INSIDE = "/mnt/c-users"
# Ours of these names are not in the set.
_REPLACED = ("rnbd_client.ko", "rnbd_server.ko")


def folder(kernel_name: str, ours: Path) -> Path:
    """The folder with the set for a kernel: the modules in `ours`, and on top of them those in C."""
    built = _built(kernel_name, ours)
    target = paths.modules_dir(f"{kernel_name}-{MODULES}")
    wanted = [path for path in sorted(ours.rglob("*.ko")) if path.name not in _REPLACED] + sorted(built.glob("*.ko"))
    with cache.lock(f"c-users-{cache.digest(str(target))}"):
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("*.ko"):
            if old.name not in {path.name for path in wanted}:
                old.unlink()
        for path in wanted:
            shutil.copy2(path, target / path.name)
    return target


def _built(kernel_name: str, ours: Path) -> Path:
    """The modules in C, built at first use."""
    sources = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
               for path in [*sorted(_CALLER.iterdir()), *sorted(_HEADERS.iterdir()), ours / "Module.symvers"]}
    target = cache.artifact("c-users", kernel=str(paths.artifacts(kernel_name).kdir), sources=sources, recipe=1)
    return cache.made(target, lambda made: _make(made, kernel_name, ours))


def _make(made: Path, kernel_name: str, ours: Path) -> None:
    tree = build.kernel_tree(kernel_name, None)
    linux = (kernel.source() if paths.is_debug(kernel_name) else kernel.source(kernel_name)).path / "linux"
    source = made / "source"
    shutil.copytree(_CALLER, source)
    shutil.copytree(_HEADERS, source / "include")
    shutil.copytree(linux / c_modules.FOLDERS["rnbd"], source / "rnbd")
    shutil.copy(ours / "Module.symvers", source / "ours.symvers")
    log = cache.root() / "log" / "c-users.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    argv = ["make", "-s", "-j2", "-C", tree.inside, f"M={_INSIDE}", *tree.options,
            # Before the folder that the Makefile of rnbd names, where C's header may be.
            f"KCPPFLAGS=-I{_INSIDE}/include", f"KBUILD_EXTRA_SYMBOLS={_INSIDE}/ours.symvers",
            "CONFIG_BLK_DEV_RNBD_CLIENT=m", "CONFIG_BLK_DEV_RNBD_SERVER=m", "modules"]
    run.chroot(tree.root, argv, [*tree.binds, run.Bind(source, _INSIDE)], log)
    for module in source.rglob("*.ko"):
        shutil.copy(module, made / module.name)
    cache.remove_tree(source)

# SPDX-License-Identifier: GPL-2.0
"""The modules of the last release, which machines have that are not upgraded yet.

The file RELEASE names the release and its commit. They are built from the history of the checkout.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import build
from . import cache
from . import paths
from . import run

FILE = paths.CHECKOUT / "RELEASE"
# The name of this set of modules, and the selftest that uses it.
MODULES = "release"
SUBJECT = "upgrade"
_INSIDE = "/mnt/release"


def last() -> tuple[str, str]:
    """The version of the last release, and its commit."""
    lines = [line.split() for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    version, commit = lines[-1]
    return version, commit


def is_here() -> bool:
    """Whether the history of this checkout reaches back to the last release."""
    commit = last()[1]
    found = subprocess.run(["git", "-C", str(paths.CHECKOUT), "cat-file", "-e", f"{commit}^{{commit}}"],
                           capture_output=True, check=False)
    return found.returncode == 0


def folder(kernel_name: str) -> Path:
    """The folder with the last release's .ko files for a kernel, built at first use."""
    commit = last()[1]
    target = cache.artifact("release-modules", commit=commit, kernel=str(paths.artifacts(kernel_name).kdir))
    return cache.made(target, lambda made: _make(made, commit, kernel_name))


def _make(made: Path, commit: str, kernel_name: str) -> None:
    tree = build.kernel_tree(kernel_name, None)
    source = made / "source"
    source.mkdir()
    log = cache.root() / "log" / "release-modules.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    run.call(["sh", "-euc", 'git -C "$1" archive "$2" | tar -xf - -C "$3"', "sh", str(paths.CHECKOUT), commit,
              str(source)], log)
    argv = ["make", "-s", "-j2", "-C", tree.inside, f"M={_INSIDE}", *tree.options, "modules"]
    run.chroot(tree.root, argv, [*tree.binds, run.Bind(source, _INSIDE)], log)
    for module in source.glob("*.ko"):
        module.rename(made / module.name)
    cache.remove_tree(source)

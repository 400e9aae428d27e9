# SPDX-License-Identifier: GPL-2.0
"""Plugins of the emulator, each one C file of this folder."""

from __future__ import annotations

from pathlib import Path

from . import cache
from . import debian
from . import run


def compiled(name: str) -> Path:
    """The plugin of this name, compiled at first use."""
    file = Path(__file__).with_name(f"{name}.c")
    source = file.read_text()
    artifact = name.replace("_", "-")
    target = cache.artifact(artifact, source=source, buildroot=debian.buildroot().key)
    with cache.lock(artifact):
        if not target.is_complete():
            with cache.building(target) as (folder, _facts):
                (folder / file.name).write_text(source)
                run.chroot(debian.buildroot().path / "root",
                           ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
                            "-o", f"{name}.so", file.name],
                           [run.Bind(folder, "/mnt")], cwd="/mnt")
    return target.path / f"{name}.so"

# SPDX-License-Identifier: GPL-2.0
"""Choosing, unpacking and ordering kernel modules, from depmod's own tables."""

import fnmatch
import lzma
from collections.abc import Iterable
from pathlib import Path


def stem(path: str) -> str:
    """The module's name: `kernel/fs/9p/9p.ko.xz` gives `9p`, dashes become underscores."""
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")


def parse_dep(text: str) -> dict[str, list[str]]:
    """Reads modules.dep: each module's path, and the paths it needs, nearest first."""
    table = {}
    for line in text.splitlines():
        path, _, needs = line.partition(":")
        table[path] = needs.split()
    return table


def builtin(text: str) -> set[str]:
    """Reads modules.builtin: the names of what is compiled in."""
    return {stem(line) for line in text.splitlines() if line}


def select(table: dict[str, list[str]], patterns: Iterable[str]) -> list[str]:
    """The paths that match a pattern, and all that those need; sorted."""
    patterns = list(patterns)
    chosen = set()
    for path, needs in table.items():
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            chosen.add(path)
            chosen.update(needs)
    return sorted(chosen)


def load_order(table: dict[str, list[str]], compiled_in: set[str], names: Iterable[str]) -> list[str]:
    """The paths to insert, in order, so that the modules `names` are loaded.

    Raises KeyError for a name that is neither a module nor compiled in.
    """
    paths = {stem(path): path for path in table}
    order: list[str] = []
    for name in names:
        if name in compiled_in and name not in paths:
            continue
        path = paths[name]
        for needed in [*reversed(table[path]), path]:
            if needed not in order:
                order.append(needed)
    return order


def unpacked(path: Path) -> bytes:
    """A module's contents, decompressed."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.name.endswith(".xz") else data


def copy_unpacked(source: Path, target: Path, paths: Iterable[str]) -> None:
    """Copies modules from one `lib/modules/RELEASE` to another, decompressed.

    Decompressing in an emulated machine takes longer than reading more bytes.
    """
    for path in paths:
        to = target / path.removesuffix(".xz")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(unpacked(source / path))

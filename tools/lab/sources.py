# SPDX-License-Identifier: GPL-2.0
"""The files of the checkout, and the digest of those that something is built from."""

import hashlib
import subprocess
from collections.abc import Sequence

from . import paths

_NO_SOURCES = ("build", ".git", "target")


def files() -> list[str]:
    """What belongs to the checkout, committed or not, by paths from its top."""
    listed = subprocess.run(["git", "-C", str(paths.CHECKOUT), "ls-files", "-coz", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name and (paths.CHECKOUT / name).is_file()]
    every = (path.relative_to(paths.CHECKOUT) for path in paths.CHECKOUT.rglob("*") if path.is_file())
    return [str(path) for path in every if not set(path.parts) & set(_NO_SOURCES)]


def digest(without: Sequence[str]) -> str:
    """A digest of names, modes and contents of all files, without those below the folders `without`.

    The files that a build reads are not known beforehand; folders that it does not read are.
    """
    left_out = tuple(f"{folder}/" for folder in without)
    state = hashlib.sha256()
    for name in sorted(files()):
        if not name.startswith(left_out):
            path = paths.CHECKOUT / name
            state.update(f"{name}\0{path.stat().st_mode & 0o111:o}\0".encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()

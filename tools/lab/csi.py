# SPDX-License-Identifier: GPL-2.0
"""Building this checkout's `rnbd-csi`, the driver for orchestrators of containers, inside the build root."""

from pathlib import Path

from . import paths
from . import rnbdctl
from .arch import AMD64
from .arch import Arch

NAME = "rnbd-csi"
# The names of the selftests of the driver begin so.
SUBJECTS = "csi"
# With it the program dies where a test wants it to.
FAILURE_POINTS = "failure-points"


def program(machine: Arch = AMD64) -> Path:
    """Builds the program as it is shipped; gives its file."""
    return rnbdctl.built(NAME, _folder(machine) / NAME, machine)


def failing_program(machine: Arch = AMD64) -> Path:
    """Builds the program with the failure points of `src/fail.rs`; gives its file."""
    return rnbdctl.built(NAME, _folder(machine) / f"{NAME}-{FAILURE_POINTS}", machine, (FAILURE_POINTS,))


def _folder(machine: Arch) -> Path:
    return paths.CHECKOUT / "build" / (NAME if machine is AMD64 else f"{NAME}-{machine.name}")

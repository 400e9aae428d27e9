# SPDX-License-Identifier: GPL-2.0
"""`lab cluster-test`: the recipes of Documentation/clusters.md, typed on a server and two hosts.

Pacemaker moves a file system between the hosts, and QEMU a virtual machine that writes for ever. A host that has lost
a disk goes on to write, and nothing of that may reach the disk.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import story
from .cluster_migration import Migration
from .cluster_pacemaker import Pacemaker
from .cluster_story import Story
from .story import expect

PARTS = ("pacemaker", "qemu")


def cases(told: Story, part: str | None) -> list[Callable[[], None]]:
    """What is run: all, or one part of the document, with what both parts need."""

    def other_recipe_is_skipped() -> None:
        """The blocks of the other recipe are left out."""
        told.skip_to("blkpr -c reserve")

    def all_is_typed() -> None:
        """No block of the document is left."""
        expect(not told.blocks, f"not typed: {[str(block) for block in told.blocks]}")

    run: list[Callable[[], None]] = [told.boot, told.map]
    if part != "qemu":
        run += Pacemaker(told).cases()
    else:
        run.append(other_recipe_is_skipped)
    if part != "pacemaker":
        run += [*Migration(told).cases(), all_is_typed]
    return [*run, told.kernels_are_well]


def main(options: argparse.Namespace) -> int:
    """Runs the cases; the exit code."""
    with tempfile.TemporaryDirectory(prefix="rnbd-cluster-", dir=options.scratch) as folder:
        told = Story(Path(folder))
        try:
            return story.run(cases(told, options.part),
                             lambda: told.machines.last_words() if told.cluster is not None else "")
        finally:
            told.close()


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command line."""
    command = commands.add_parser("cluster-test", help="the recipes of Documentation/clusters.md, on three machines")
    command.add_argument("--part", choices=PARTS, help="one of the recipes only")
    command.add_argument("--scratch", type=Path, help="where to put disk images for the time (a GB)")
    command.set_defaults(run=main)

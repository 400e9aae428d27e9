# SPDX-License-Identifier: GPL-2.0
"""What the documents tell an administrator to type works as it stands there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab import documents
from lab.selftest_case import case
from lab.selftest_case import QUICK
from lab.selftest_case import Test
from lib import documented

TOPOLOGY = "two"
# Documents whose commands take minutes.
LONG = ("fabric",)


def run(t: Test, path: Path) -> None:
    """Type all blocks of a document, from the first to the last."""
    documented.prepare(t)
    for block in documents.blocks(path):
        if block.place in documented.PLACES:
            documented.type_block(t, block)


def subject(path: Path) -> Callable[[Test], None]:
    """The test of one document."""
    def test(t: Test) -> None:
        run(t, path)

    test.__doc__ = f"The commands of {path.relative_to(documents.CHECKOUT)}."
    return case(module_sets=("ours",), quick=() if path.stem in LONG else QUICK)(test)


for _path in documents.documents():
    if any(_block.place in documented.PLACES for _block in documents.blocks(_path)):
        globals()["test_" + _path.stem.lower().replace("-", "_")] = subject(_path)

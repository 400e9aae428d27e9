# SPDX-License-Identifier: GPL-2.0
"""The pictures in the documents are what rnbdctl shows now."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path

from lab import paths
from lab import rnbdctl
from lab import screens


class Pictures(unittest.TestCase):
    def test_what_does_not_move_is_as_in_the_documents(self) -> None:
        """What does not depend on the time: another picture means `lab screens', and a look at the new one."""
        folder = Path(tempfile.mkdtemp(prefix="screens-", dir=paths.CHECKOUT / "build"))
        self.addCleanup(shutil.rmtree, folder)
        names = [name for name in screens.NAMES if name != "top"]
        screens.take(rnbdctl.program(), folder, names)
        made = sorted(file.name for file in folder.glob("*.svg"))
        self.assertEqual(len(made), len(names) * len(screens.SIZES))
        for name in made:
            self.assertEqual((folder / name).read_text(), (screens.FOLDER / name).read_text(),
                             f"{name} looks different now: run `lab screens'")

    def test_every_picture_is_there(self) -> None:
        wanted = {f"{name}-{columns}x{rows}.svg" for name in screens.NAMES for columns, rows in screens.SIZES}
        self.assertEqual({file.name for file in screens.FOLDER.iterdir()}, wanted)

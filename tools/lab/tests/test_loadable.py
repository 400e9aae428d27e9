# SPDX-License-Identifier: GPL-2.0
"""When modules are stripped again, and what the folder for the machines has."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import cache
from lab import loadable


class Loadable(unittest.TestCase):
    """The folder of stripped modules, with a strip that copies."""

    def setUp(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.source = folder / "source"
        self.source.mkdir()
        self.stripped: list[str] = []
        self.enterContext(mock.patch.object(cache, "root", return_value=folder / "cache"))
        self.enterContext(mock.patch.object(loadable, "_strip", side_effect=self._copy))
        (folder / "cache").mkdir()

    def _copy(self, _kernel: str, files: list[Path], target: Path) -> None:
        for file in files:
            shutil.copy2(file, target / file.name)
            self.stripped.append(file.name)

    def _module(self, path: str, date: int) -> None:
        file = self.source / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"module")
        os.utime(file, (date, date))

    def _names(self) -> list[str]:
        return sorted(file.name for file in loadable.folder("stock", self.source).iterdir())

    def test_flat(self) -> None:
        self._module("a.ko", 1)
        self._module("below/b.ko", 1)
        self._module("below/b.o", 1)
        self.assertEqual(self._names(), ["a.ko", "b.ko"])

    def test_only_what_has_changed(self) -> None:
        self._module("a.ko", 2)
        self._module("b.ko", 2)
        self._names()
        self.stripped.clear()
        self._names()
        self.assertEqual(self.stripped, [])
        # A build that was taken back to an older source has an older module.
        self._module("b.ko", 1)
        self._names()
        self.assertEqual(self.stripped, ["b.ko"])

    def test_removed(self) -> None:
        self._module("a.ko", 1)
        self._module("b.ko", 1)
        self._names()
        (self.source / "a.ko").unlink()
        self.assertEqual(self._names(), ["b.ko"])

    def test_two_of_one_name(self) -> None:
        self._module("a.ko", 1)
        self._module("below/a.ko", 1)
        with self.assertRaisesRegex(RuntimeError, r"two modules are called a\.ko"):
            loadable.folder("stock", self.source)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: GPL-2.0
"""The campaign goes on where it was stopped, and adds up over seeds, as long as the sources are the same."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import results
from lab.campaign_progress import PEERS
from lab.campaign_progress import Progress


class Kept(unittest.TestCase):
    modules = "m"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name) / "checkout"
        for name in PEERS:
            file = self.checkout / name / "program.c" if "." not in name else self.checkout / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        for patch in (mock.patch.dict(os.environ, {"RNBD_CACHE": str(Path(folder.name) / "cache")}),
                      mock.patch.object(results, "modules", lambda _checkout: self.modules)):
            patch.start()
            self.addCleanup(patch.stop)

    def progress(self, kernel: str = "stock", end: str = "clients") -> Progress:
        """The progress as another run finds it."""
        return Progress(kernel, end, self.checkout)

    def test_goes_on_and_adds_up(self) -> None:
        self.assertEqual(self.progress().next(1), 0)
        self.progress().add(1, 10, {"io": 5, "open": 1}, {"lost": 1})
        self.progress().add(1, 12, {"io": 2}, {})
        self.progress().add(2, 3, {"news": 4}, {"lost": 2})
        found = self.progress()
        self.assertEqual([found.next(seed) for seed in (1, 2, 3)], [12, 3, 0])
        self.assertEqual(found.messages(), {"io": 7, "open": 1, "news": 4})
        self.assertEqual(found.outcomes(), {"lost": 3})

    def test_begins_anew(self) -> None:
        self.progress().add(1, 10, {"io": 5}, {})
        self.assertEqual(self.progress(kernel="debug").next(1), 0)
        self.assertEqual(self.progress(end="servers").next(1), 0)
        self.assertEqual(self.progress().next(1), 10)
        self.modules = "changed"
        self.assertEqual(self.progress().next(1), 0)
        self.modules = "m"
        (self.checkout / PEERS[0] / "program.c").write_text("changed")
        self.assertEqual(self.progress().next(1), 0)

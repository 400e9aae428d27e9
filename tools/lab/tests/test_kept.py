# SPDX-License-Identifier: GPL-2.0
"""Builds that are done once for the same sources."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import kept
from lab import paths
from lab import sources
from lab.tests.test_cache import InCache


class Results(InCache):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "out"
        self.builds = 0

    def build(self) -> None:
        self.builds += 1
        self.out.mkdir(exist_ok=True)
        (self.out / "made.ko").write_text(f"build {self.builds}")
        (self.out / "made.o").write_text("not a result")

    def results(self, key: int) -> str:
        kept.results("x", self.out, ("*.ko",), self.build, key=key)
        return (self.out / "made.ko").read_text()

    def test_the_same_sources_are_built_once(self) -> None:
        self.assertEqual(self.results(1), "build 1")
        self.assertEqual(self.results(2), "build 2")
        self.assertEqual(self.results(1), "build 1")
        self.assertEqual(self.builds, 2)

    def test_another_folder_gets_only_results(self) -> None:
        self.results(1)
        self.out = self.out.with_name("other")
        self.assertEqual(self.results(1), "build 1")
        self.assertEqual([file.name for file in self.out.iterdir()], ["made.ko"])

    def test_a_file_that_is_there_keeps_its_time(self) -> None:
        self.results(1)
        before = (self.out / "made.ko").stat().st_mtime_ns
        self.results(1)
        self.assertEqual((self.out / "made.ko").stat().st_mtime_ns, before)

    def test_a_build_that_fails_is_not_kept(self) -> None:
        def fail() -> None:
            raise RuntimeError("does not compile")

        with self.assertRaises(RuntimeError):
            kept.results("x", self.out, ("*.ko",), fail, key=1)
        self.assertEqual(self.results(1), "build 1")

    def test_a_build_without_results_is_not_kept(self) -> None:
        with self.assertRaisesRegex(RuntimeError, r"made none of \*\.ko"):
            kept.results("x", self.out, ("*.ko",), lambda: None, key=1)
        self.assertEqual(self.results(1), "build 1")


class Digest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        for name in ("proto/proto.rs", "selftests/abi.py", "build/stock/x.ko"):
            (self.top / name).parent.mkdir(parents=True)
            (self.top / name).write_text(name)
        patch = mock.patch.object(paths, "CHECKOUT", self.top)
        patch.start()
        self.addCleanup(patch.stop)
        self.before = self.digest()

    def digest(self) -> str:
        return sources.digest(("selftests",))

    def test_changes_with_each_source(self) -> None:
        (self.top / "proto/proto.rs").write_text("changed")
        self.assertNotEqual(self.digest(), self.before)

    def test_changes_with_a_new_file_and_with_its_mode(self) -> None:
        (self.top / "Kbuild").write_text("")
        new = self.digest()
        self.assertNotEqual(new, self.before)
        (self.top / "Kbuild").chmod(0o755)
        self.assertNotEqual(self.digest(), new)

    def test_does_not_change_with_what_is_left_out_or_was_built(self) -> None:
        (self.top / "selftests/abi.py").write_text("changed")
        (self.top / "build/stock/x.ko").write_text("changed")
        self.assertEqual(self.digest(), self.before)

# SPDX-License-Identifier: GPL-2.0
"""Keys, atomic completion and resumption; steps that need each other."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import cache
from lab import steps


class InCache(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"RNBD_CACHE": folder.name})
        patch.start()
        self.addCleanup(patch.stop)
        self.root = Path(folder.name)


class Artifacts(InCache):
    def test_the_key_changes_with_an_ingredient_and_not_with_their_order(self) -> None:
        one = cache.artifact("x", a=1, b=[2])
        self.assertEqual(one, cache.artifact("x", b=[2], a=1))
        self.assertNotEqual(one, cache.artifact("x", a=1, b=[3]))

    def test_an_interrupted_build_leaves_nothing_that_looks_complete(self) -> None:
        target = cache.artifact("x")
        with self.assertRaises(KeyboardInterrupt), cache.building(target) as (folder, _):
            (folder / "half").write_text("half")
            raise KeyboardInterrupt
        self.assertFalse(target.is_complete())
        with cache.building(target) as (folder, facts):
            self.assertFalse((folder / "half").exists())
            facts["known"] = 1
        self.assertTrue(target.is_complete())
        self.assertEqual(target.stamp()["known"], 1)

    def test_what_is_made_is_made_once(self) -> None:
        target = cache.artifact("x")
        times: list[Path] = []

        def make(folder: Path) -> None:
            times.append(folder)
            (folder / "file").write_text("made")

        for _ in range(2):
            self.assertEqual((cache.made(target, make) / "file").read_text(), "made")
        self.assertEqual(times, [target.partial])

    def test_a_resumable_build_finds_what_it_had(self) -> None:
        target = cache.artifact("x")
        with self.assertRaises(OSError), cache.building(target, resume=True) as (folder, _):
            (folder / "half").write_text("half")
            raise OSError
        with cache.building(target, resume=True) as (folder, _):
            self.assertTrue((folder / "half").exists())

    def test_a_tree_with_a_mount_in_it_is_not_removed(self) -> None:
        (self.root / "tree").mkdir()
        with mock.patch.object(cache, "mounts_below", return_value=["/tree/proc"]), self.assertRaises(RuntimeError):
            cache.remove_tree(self.root / "tree")
        self.assertTrue((self.root / "tree").exists())

    def test_only_what_was_not_used_for_long_is_unused(self) -> None:
        old, new = cache.artifact("old"), cache.artifact("new")
        for target in (old, new):
            with cache.building(target):
                pass
        os.utime(old.path / cache.STAMP, (0, 0))
        (self.root / "locks-of-others").mkdir()
        self.assertEqual(cache.unused(30), [old.path])


class Steps(InCache):
    def step(self, name: str, needs: tuple[str, ...] = (), fails: bool = False) -> steps.Step:
        def make(work: steps.Work) -> None:
            self.made.append(name)
            work.log.write_text(f"log of {name}\n")
            if fails:
                raise RuntimeError("no luck")

        return steps.Step(name, name, lambda: cache.artifact(name), make, needs)

    def run_steps(self, *every: steps.Step) -> tuple[bool, str]:
        self.made: list[str] = []
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            good = steps.run({step.name: step for step in every}, [every[-1].name], steps.Progress())
        return good, out.getvalue()

    def test_needs_come_first_and_a_second_run_does_nothing(self) -> None:
        every = (self.step("a"), self.step("b", ("a",)), self.step("c", ("b", "a")))
        self.assertTrue(self.run_steps(*every)[0])
        self.assertEqual(self.made, ["a", "b", "c"])
        self.assertTrue(self.run_steps(*every)[0])
        self.assertEqual(self.made, [])

    def test_a_failure_names_its_step_shows_its_log_and_stops(self) -> None:
        good, text = self.run_steps(self.step("a", fails=True), self.step("b", ("a",)))
        self.assertFalse(good)
        self.assertEqual(self.made, ["a"])
        self.assertIn("a: FAILED: no luck", text)
        self.assertIn("log of a", text)

    def test_steps_that_need_each_other_are_refused(self) -> None:
        table = {"a": self.step("a", ("b",)), "b": self.step("b", ("a",))}
        with self.assertRaises(ValueError):
            steps.closure(table, ["a"])

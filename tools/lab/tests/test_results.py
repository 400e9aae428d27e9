# SPDX-License-Identifier: GPL-2.0
"""Long tests go on where they were stopped, and only there."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import results
from lab import rust_source
from lab import selftest
from lab import selftest_pool
from lab import summary
from lab import test_command
from lab.selftest_case import Case
from lab.selftest_case import load_subjects
from lab.selftest_case import Subject
from lab.selftest_runner import Outcome
from lab.selftest_runner import Runner

GOOD = {"ok": 2, "not ok": 0, "skip": 1}
BAD = {"ok": 1, "not ok": 1, "skip": 0}


def subject(name: str, *cases: str) -> Subject:
    """A subject with some cases."""
    return Subject(name, "one", "", [Case(case, lambda test: None, "") for case in cases])


class Tree(unittest.TestCase):
    """A checkout and a cache of their own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name) / "checkout"
        patch = mock.patch.dict(os.environ, {"RNBD_CACHE": str(Path(folder.name) / "cache")})
        patch.start()
        self.addCleanup(patch.stop)
        for name in ("Kbuild", "VERSION", "README.md", "Documentation/a.md", "selftests/lib/agent.py",
                     "selftests/modules/Makefile", "tools/rnbdctl/src/main.rs", "tools/lab/selftest_runner.py",
                     "tools/lab/bench.py", "selftests/map.py", "selftests/data.py",
                     *(f"{place}/{crate}.rs" for crate, place in rust_source.CRATES.items())):
            self.write(name, "")

    def write(self, name: str, text: str) -> None:
        """Writes a file of the checkout."""
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def store(self, kernel: str = "stock", key: str = "k", module_set: str = "ours") -> results.Store:
        """The results as another run finds them."""
        return results.Store(kernel, key, module_set, self.checkout)


class Kept(Tree):
    """What counts as the same."""

    def setUp(self) -> None:
        super().setUp()
        self.map = subject("map", "one", "two")
        self.store().keep(self.map, self.map.cases, GOOD, 12.3)

    def is_kept(self) -> bool:
        """Whether the result is taken as it is."""
        return self.store().find(self.map, self.map.cases) is not None

    def test_what_passed_is_found(self) -> None:
        found = self.store().find(self.map, self.map.cases)
        assert found is not None
        self.assertEqual((found.passed, found.skipped, found.cases), (2, 1, ["one", "two"]))
        self.assertRegex(found.line(is_old=True), r"^# PASSED 20\d\d-.*, before: map \(2 passed, 1 skipped, 12 s\)$")
        self.assertNotIn("before", found.line(is_old=False))

    def test_what_failed_is_run_again(self) -> None:
        data = subject("data", "one")
        self.store().keep(data, data.cases, BAD, 1)
        self.assertIsNone(self.store().find(data, data.cases))
        self.store().keep(data, data.cases, GOOD, 1)
        self.assertIsNotNone(self.store().find(data, data.cases))

    def test_other_kernels_modules_and_cases_are_others(self) -> None:
        for store in (self.store("debug"), self.store(key="other"), self.store(module_set="c")):
            self.assertIsNone(store.find(self.map, self.map.cases))
        self.assertIsNone(self.store().find(self.map, self.map.cases[:1]))

    def test_changes_that_matter(self) -> None:
        for name in ("rtrs_client/rtrs_client.rs", "bindings/kunit/new.rs", "Kbuild", "selftests/lib/agent.py",
                     "selftests/lib/new.py", "selftests/map.py", "selftests/modules/Makefile",
                     "tools/rnbdctl/src/main.rs", "tools/lab/selftest_runner.py"):
            self.assertTrue(self.is_kept(), name)
            self.write(name, "x")
            self.assertFalse(self.is_kept(), name)
            self.store().keep(self.map, self.map.cases, GOOD, 1)

    def test_changes_that_do_not_matter(self) -> None:
        for name in ("proto/tests/a.rs", "proto/fuzz/a.rs", "tools/lab/bench.py", "Documentation/a.md",
                     "selftests/data.py", "tools/rnbdctl/target/x", "selftests/lib/__pycache__/agent.pyc"):
            self.write(name, "x")
            self.assertTrue(self.is_kept(), name)

    def test_documents_matter_where_they_are_tested(self) -> None:
        self.write("selftests/map.py", "from lab import documents")
        self.store().keep(self.map, self.map.cases, GOOD, 1)
        self.assertTrue(self.is_kept())
        self.write("Documentation/a.md", "x")
        self.assertFalse(self.is_kept())

    def test_what_is_edited_meanwhile_is_not_what_was_tested(self) -> None:
        store = self.store()
        store.find(self.map, self.map.cases)
        self.write("selftests/map.py", "x")
        store.keep(self.map, self.map.cases, GOOD, 1)
        self.assertFalse(self.is_kept())

    def test_half_a_file_is_none(self) -> None:
        for path in (self.checkout.parent / "cache" / results.FOLDER).iterdir():
            path.write_text('{"subject": "map"')
        self.assertFalse(self.is_kept())


class Resumed(Tree):
    """A second run."""

    def run_once(self, outcomes: list[Outcome], again: bool = False) -> tuple[bool, list[str], int]:
        """Runs two subjects of a case each; how it ended, what it said, and how many cases ran."""
        chosen = [(found, found.cases) for found in (subject("data", "one"), subject("map", "one"))]
        options = argparse.Namespace(kernel="stock", modules="ours", again=again, jobs=1, quick=False)
        output = io.StringIO()
        store = self.store()
        with (mock.patch.object(Runner, "run_case", side_effect=outcomes) as run_case,
              mock.patch("lab.results.Store", return_value=store),
              mock.patch("lab.paths.artifacts"), contextlib.redirect_stdout(output)):
            good = selftest.resume(options, mock.Mock(flavour="stock"), chosen)
        return good, output.getvalue().splitlines(), run_case.call_count

    def test_goes_on(self) -> None:
        good, lines, ran = self.run_once([Outcome("ok", []), Outcome("not ok", ["why"])])
        self.assertEqual((good, ran, lines[0]), (False, 2, "# 0 of 2 subjects have passed before, 2 are left"))
        good, lines, ran = self.run_once([Outcome("ok", [])])
        self.assertEqual((good, ran, lines[0]), (True, 1, "# 1 of 2 subjects have passed before, 1 are left"))
        text = "\n".join(lines)
        self.assertEqual([line.split(": ")[1].split()[0] for line in summary.passed(text)], ["data", "map"])
        self.assertIn("before", summary.passed(text)[0])
        self.assertEqual(summary.count(text, 0), summary.Count(2, 0, 0))

    def test_nothing_left(self) -> None:
        self.run_once([Outcome("ok", []), Outcome("skip", [])])
        good, lines, ran = self.run_once([])
        self.assertEqual((good, ran, lines[-1]), (True, 0, "1 passed, 0 failed, 1 skipped"))
        self.assertEqual(self.run_once([Outcome("ok", [])] * 2, again=True)[2], 2)

    def test_a_machine_that_goes_away_leaves_what_had_ended(self) -> None:
        with mock.patch("threading.excepthook"):
            good, _, ran = self.run_once([Outcome("ok", []), KeyboardInterrupt()])  # type: ignore[list-item]
        self.assertEqual((good, ran), (False, 2))
        self.assertEqual(self.run_once([Outcome("ok", [])])[2], 1)

    def test_pool_tells_of_each_subject(self) -> None:
        told = []
        with (mock.patch.object(Runner, "run_case", side_effect=[Outcome("ok", []), Outcome("not ok", [])]),
              contextlib.redirect_stdout(io.StringIO())):
            found = subject("map", "one", "two")
            selftest_pool.run(mock.Mock(flavour="stock"), "ours", [(found, found.cases)], 1, False,
                              lambda which, cases, counts, seconds: told.append((which.name, counts)))
        self.assertEqual(told, [("map", {"ok": 1, "not ok": 1, "skip": 0})])


class Parts(unittest.TestCase):
    """Which stages are run."""

    def stages(self, **given: object) -> list[str]:
        """The commands of the stages of `make test-long` with these options."""
        options = argparse.Namespace(**{"long": True, "parts": None, "names": None, "again": False} | given)
        ran: list[str] = []

        def run_stage(stage: test_command.Stage, _report: object, _live: bool = True,
                      _set_ended: object = None) -> None:
            ran.append(" ".join(stage.argv))

        debug = mock.Mock(error="")
        debug.return_value.is_alive.return_value = False
        debug.return_value.error = ""
        with (mock.patch.object(test_command, "run_stage", run_stage),
              mock.patch.object(test_command, "DebugKernel", debug),
              mock.patch("lab.setup.setup", return_value=True),
              mock.patch("lab.build.modules_to_test"),
              mock.patch("lab.rnbdctl.program"),
              contextlib.redirect_stdout(io.StringIO())):
            test_command.run(options)
        return sorted(ran)

    def test_all(self) -> None:
        others = test_command.others()
        self.assertEqual(len(self.stages()), 12 + len(others))
        self.assertEqual(sum("--resume" in stage for stage in self.stages()), 4 + len(others))
        self.assertFalse(any("--resume" in stage for stage in self.stages(long=False)))

    def test_budget(self) -> None:
        self.assertIn("budget", self.stages(long=False))
        self.assertEqual(self.stages(parts=["stock"]), ["budget", "selftest --kernel stock --jobs 2 --resume"])

    def test_other_kernels(self) -> None:
        self.assertEqual(self.stages(parts=["arm64"]), ["selftest --kernel arm64 --jobs 2 --resume"])
        quick = self.stages(long=False)
        pairs = [stage for stage in quick if "--server-kernel" in stage]
        self.assertEqual(len(pairs), len(test_command.PAIRS))
        # Each other kernel has a set of its own, which is not of two machines.
        for name in test_command.others():
            (own,) = [stage for stage in quick if stage.startswith(f"selftest --kernel {name} --jobs 1 ")]
            self.assertIn("--topology one", own)

    def test_brief_sets_have_cases(self) -> None:
        every = load_subjects(selftest.SELFTESTS)
        for kernel, names in test_command.BRIEF.items():
            self.assertIn(kernel, test_command.others())
            for name in names:
                (found,) = [found for found, _ in selftest.choose(selftest.fit(every, kernel, True), [name])]
                self.assertEqual(found.topology, "one", name)

    def test_some(self) -> None:
        (on_arm64,) = self.stages(parts=["debug-arm64"])
        self.assertTrue(on_arm64.startswith("selftest --kernel debug-arm64 --jobs 2 --resume -T kunit "), on_arm64)
        self.assertEqual(self.stages(parts=["debug"]), ["selftest --kernel debug --jobs 2 --resume"])
        self.assertEqual(self.stages(parts=["interop"], again=True),
                         ["selftest --modules c --resume --again interop interop_faults"])
        self.assertEqual(self.stages(names=["failover"]), [
            f"selftest --kernel {kernel} --jobs 2 --resume -T failover" for kernel in ("debug", "stock")])
        self.assertEqual(self.stages(parts=["stock"], names=["map"]),
                         ["selftest --kernel stock --jobs 2 --resume -T map"])


if __name__ == "__main__":
    unittest.main()

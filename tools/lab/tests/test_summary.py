# SPDX-License-Identifier: GPL-2.0
"""Counting the tests of other runners."""

import unittest

from lab import rust_analyzer
from lab.summary import Count
from lab.summary import count
from lab.summary import failures

CARGO = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n"


class Summary(unittest.TestCase):
    def test_cargo_and_unittest_are_added(self) -> None:
        text = CARGO + CARGO + "Ran 5 tests in 0.1s\n\nOK (skipped=2)\n"
        self.assertEqual(count(text, 0), Count(27, 0, 4))

    def test_failures_of_unittest_are_counted(self) -> None:
        text = "Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=2)\n"
        self.assertEqual(count(text, 1), Count(2, 3, 0))

    def test_the_last_total_of_our_own_runners_counts(self) -> None:
        self.assertEqual(count("1 passed, 0 failed, 0 skipped\n3 passed, 1 failed, 0 skipped\n", 1), Count(3, 1, 0))

    def test_without_a_report_the_status_decides(self) -> None:
        self.assertEqual(count("", 0), Count(1))
        self.assertEqual(count("", 1), Count(failed=1))

    def test_a_failing_status_is_never_a_success(self) -> None:
        self.assertEqual(count(CARGO, 101), Count(12, 1, 1))

    def test_the_end_is_the_reason_of_who_gives_none(self) -> None:
        self.assertEqual(failures("lints", "a\n" * 20 + "why\n")[0], "# FAILED lints:")
        self.assertEqual(failures("lints", "a\n" * 20 + "why\n")[-1], "# FAILED   why")


class RustAnalyzer(unittest.TestCase):
    def test_crates_see_each_other_and_paths_are_the_hosts(self) -> None:
        crates: list[dict[str, object]] = [{"display_name": "a", "deps": []}, {"display_name": "b", "deps": []}]
        rust_analyzer.add_deps(crates, rust_analyzer.crate_deps("x := y\ndeps-b := a\n"))
        self.assertEqual(crates[1]["deps"], [{"crate": 0, "name": "a"}])
        moved = rust_analyzer.translate({"p": ["/usr/lib/x", "/usrx"]}, {"/usr": "/root/usr"})
        self.assertEqual(moved, {"p": ["/root/usr/lib/x", "/usrx"]})

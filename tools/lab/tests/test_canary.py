# SPDX-License-Identifier: GPL-2.0
"""Which kernel is the newest, and what a build's errors are about."""

import unittest
from pathlib import Path

from lab import canary
from lab.archive import Package

SAID = """\
error[E0432]: unresolved import `kernel::gone`
  --> /here/bindings/sync/rcu.rs:8:5
   |
8  | use kernel::gone;
   |     ^^^^^^^^^^^^ no `gone` in the root

error: aborting due to 1 previous error

/here/bindings/helpers_sys.c:22:9: error: implicit declaration of function 'gone' [-Wimplicit-function-declaration]
/here/bindings/helpers_sys.c:25:9: warning: unused variable
"""


class Canary(unittest.TestCase):
    def test_the_newest_series_is_taken(self) -> None:
        packages = [Package("linux-source-7.9", "7.9.2-1"), Package("linux-source-7.10", "7.10~rc3-1~exp1"),
                    Package("linux-source", "8.0-1"), Package("linux-doc-8.1", "8.1-1")]
        self.assertEqual(canary.newest(packages), packages[1])

    def test_of_a_series_the_highest_version_is_taken(self) -> None:
        packages = [Package("linux-source-7.4", version) for version in ("7.4~rc7-1~exp1", "7.4.10-1", "7.4.9-1")]
        self.assertEqual(canary.newest(packages), packages[1])
        self.assertEqual(canary.newest(packages[:1]), packages[0])
        candidates = [Package("linux-source-7.4", version) for version in ("7.4~rc7-1~exp1", "7.4-1")]
        self.assertEqual(canary.newest(candidates), candidates[1])

    def test_there_may_be_none(self) -> None:
        self.assertIsNone(canary.newest([Package("bash", "5.2")]))

    def test_errors_are_found_by_file(self) -> None:
        self.assertEqual(canary.errors(SAID, Path("/here")), [
            ("bindings/sync/rcu.rs", "unresolved import `kernel::gone`"),
            ("bindings/helpers_sys.c", "implicit declaration of function 'gone' [-Wimplicit-function-declaration]"),
        ])


if __name__ == "__main__":
    unittest.main()

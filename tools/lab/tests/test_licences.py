# SPDX-License-Identifier: GPL-2.0
"""Which licences go with that of the programs."""

from __future__ import annotations

import unittest
from typing import Any

from lab import licences


def metadata(licence: str | None, kind: str | None = None) -> dict[str, Any]:
    """A program with one dependency."""
    return {
        "packages": [
            {"id": "a", "name": "program", "version": "1", "license": "GPL-2.0"},
            {"id": "b", "name": "crate", "version": "2", "license": licence},
        ],
        "resolve": {
            "root": "a",
            "nodes": [
                {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": kind}]}]},
                {"id": "b", "deps": []},
            ],
        },
    }


class Licences(unittest.TestCase):
    """What is told of licences."""

    def test_expressions(self) -> None:
        """One of several is enough; all that are needed must be good."""
        for good in ("MIT", "MIT OR Apache-2.0", "Apache-2.0/MIT", "Apache-2.0 OR BSL-1.0",
                     "(MIT OR Apache-2.0) AND Unicode-3.0", "Unlicense OR MIT",
                     "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"):
            self.assertTrue(licences.is_good(good), good)
        for bad in ("Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT AND Apache-2.0", "GPL-3.0-only",
                    "(MIT OR ISC) AND Apache-2.0", "proprietary"):
            self.assertFalse(licences.is_good(bad), bad)
        for nonsense in ("", "MIT OR", "(MIT", "MIT Apache-2.0", "AND"):
            with self.assertRaises(ValueError, msg=nonsense):
                licences.is_good(nonsense)

    def test_what_is_linked(self) -> None:
        """Crates of tests and of build scripts are not in the program."""
        self.assertEqual(licences.problems(metadata("MIT"), "x"), [])
        (problem,) = licences.problems(metadata("Apache-2.0"), "x")
        self.assertEqual(problem, "x: crate 2 is under Apache-2.0, which does not go with GPL-2.0")
        (problem,) = licences.problems(metadata(None), "x")
        self.assertIn("does not name", problem)
        for kind in ("dev", "build"):
            self.assertEqual(licences.problems(metadata("Apache-2.0", kind), "x"), [])


if __name__ == "__main__":
    unittest.main()

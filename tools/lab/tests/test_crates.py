# SPDX-License-Identifier: GPL-2.0
"""Which crates the programs may be made of."""

from __future__ import annotations

import tomllib
import unittest

from lab import check
from lab import crates
from lab import paths

OWN = '[[package]]\nname = "rnbdctl"\nversion = "0.2.0"\n'


def package(name: str, source: str, checksum: str = 'checksum = "00"\n') -> str:
    """A package of a Cargo.lock."""
    return f'{OWN}[[package]]\nname = "{name}"\nversion = "1.0.0"\nsource = "{source}"\n{checksum}'


class Crates(unittest.TestCase):
    """What is told of a Cargo.lock."""

    def test_own(self) -> None:
        """Crates of the checkout and of the registry are good."""
        self.assertEqual(crates.locked(package("serde", crates.REGISTRY), "x"), [])

    def test_problems(self) -> None:
        """Other sources, missing checksums and banned crates are told."""
        for text, problem in (
            (package("serde", "git+https://example.com/serde#1"), "comes from git+https://example.com/serde#1"),
            (package("serde", crates.REGISTRY, ""), "has no checksum"),
            (package("atty", crates.REGISTRY), "is banned"),
            (package("prost", crates.REGISTRY), "is under Apache-2.0 alone"),
        ):
            found = crates.locked(text, "x/Cargo.lock")
            self.assertEqual(len(found), 1, found)
            self.assertIn(problem, found[0])
            self.assertTrue(found[0].startswith("x/Cargo.lock: "))

    def test_features(self) -> None:
        """A library is built without its features, and with each alone; a program is not."""
        features = {"default": ["top", "exporter"], "top": ["dep:ratatui"], "exporter": ["dep:hyper"]}
        self.assertEqual(check.feature_sets({"lib": {}, "features": features}), ["", "top", "exporter"])
        self.assertEqual(check.feature_sets({"lib": {}}), [])
        self.assertEqual(check.feature_sets({"features": {"failure-points": []}}), [])

    def test_csi_driver(self) -> None:
        """The CSI driver is made of nothing that only the exporter or the view of rnbdctl needs."""
        locked = tomllib.loads((paths.CHECKOUT / "tools/rnbd-csi/Cargo.lock").read_text())
        names = {package["name"] for package in locked["package"]}
        self.assertIn("rnbdctl", names)
        self.assertEqual(names & {"crossterm", "prometheus-client", "ratatui"}, set())

    def test_checkout(self) -> None:
        """The checkout keeps to that."""
        self.assertEqual(crates.check(paths.CHECKOUT), [])

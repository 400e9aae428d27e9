# SPDX-License-Identifier: GPL-2.0
"""Versions, dependencies and file lists of the packages."""

import tempfile
import unittest
from pathlib import Path

from lab import deb
from lab import deb_machine
from lab import packages
from lab import paths

CONTROL = """Source: thing
Build-Depends: cargo,
 debhelper-compat (= 13),
# a comment
 dh-dkms,

Package: a
Depends:
 first (>= 2) | second,
 ${misc:Depends},
 third,
Description: a
 Depends: not a field
"""


class Versions(unittest.TestCase):
    def test_one_version_everywhere(self) -> None:
        found = deb.versions()
        self.assertEqual(set(found.values()), {deb.version()}, found)

    def test_setting_another(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            cargo = [f"{crate}/{name}" for crate in deb.CRATES for name in ("Cargo.toml", "Cargo.lock")]
            for name in ("VERSION", "debian/changelog", *cargo):
                if (paths.CHECKOUT / name).is_file():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    (tree / name).write_text((paths.CHECKOUT / name).read_text())
            deb.set_version(tree, "9.8.7")
            self.assertEqual(set(deb.versions(tree).values()), {"9.8.7"})
            self.assertEqual(len(deb.versions(tree)), len(deb.versions()))


class Dependencies(unittest.TestCase):
    def test_fields_of_a_control_file(self) -> None:
        self.assertEqual(packages.control_field(CONTROL, "Source: thing", "Build-Depends"),
                         ["cargo", "debhelper-compat", "dh-dkms"])
        self.assertEqual(packages.control_field(CONTROL, "Package: a", "Depends"), ["first", "third"])
        self.assertEqual(packages.control_field(CONTROL, "Package: b", "Depends"), [])

    def test_ours(self) -> None:
        self.assertIn("debhelper", packages.build_dependencies())
        needed = packages.dependencies()
        self.assertTrue({"dkms", "rustc", "rust-src", "bindgen", "python3"} <= set(needed), needed)
        self.assertFalse({name for name in needed if name.startswith(("linux-", "rnbd"))})


class Files(unittest.TestCase):
    def test_differences(self) -> None:
        before = {"etc/a": "f1 644", "etc/b": "f1 644", "etc/c": "lx"}
        after = {"etc/a": "f1 644", "etc/b": "f2 644", "etc/d": "d755"}
        self.assertEqual(deb_machine.difference(before, after),
                         ["left behind: /etc/d", "gone: /etc/c", "changed: /etc/b"])
        self.assertEqual(deb_machine.difference(before, before), [])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: GPL-2.0
"""Limits of the Rust sources, and how their lines are counted."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from lab import house
from lab import ratchet
from lab import rust_source
from lab import sizes

KUNIT = "#[cfg(RNBD_KUNIT)]\n#[kunit_tests(x)]\nmod tests {\n    fn a() { if b {} }\n}\n"


class Tree(unittest.TestCase):
    """A checkout in a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name)

    def write(self, name: str, text: str) -> None:
        """Writes a file of the checkout."""
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, name: str, text: str) -> list[str]:
        """What is wrong with a checkout of one file."""
        self.write(name, text)
        try:
            return house.check(self.checkout)
        finally:
            (self.checkout / name).unlink()


class House(Tree):
    """What the check says."""

    def test_columns(self) -> None:
        self.assertEqual(self.check("proto/a.rs", "/" * 99 + "…"), [])
        for name in ("proto/a.rs", "bindings/kunit/a.rs", "tools/rnbdctl/src/a.rs"):
            self.assertIn(f"{name}:2", "\n".join(self.check(name, "\n" + "/" * 101)))

    def test_functions(self) -> None:
        good = "struct A;\nimpl A {\n    fn a<T>(x: [u8; 4]) -> [u8; 4]\n    {\n" + "        x;\n" * 57 + "    }\n}\n"
        self.assertEqual(self.check("rtrs_core/a.rs", good), [])
        bad = good.replace("    {\n", "    {\n        if x { /* } */ \"}\" }\n        fn b();\n")
        self.assertEqual(self.check("rtrs_core/a.rs", bad), [
            f"rtrs_core/a.rs: a: 62 {house.LONG_FUNCTIONS}, 0 allowed by {ratchet.FILE}", "  rtrs_core/a.rs:3"])
        for name in ("bindings/kunit/a.rs", "proto/tests/a.rs"):
            self.assertEqual(self.check(name, bad), [])

    def test_traits_without_bodies(self) -> None:
        text = "trait A {\n    fn a(x: [u8; 4]);\n}\n" + "\n" * 70 + "fn b() {}\ntype C = fn(u8);\nstruct D {}\n"
        self.assertEqual(self.check("rtrs_core/a.rs", text), [])

    def test_files(self) -> None:
        self.assertEqual(self.check("rtrs_core/a.rs", "\n" * 600), [])
        self.assertIn("rtrs_core/a.rs: 601", self.check("rtrs_core/a.rs", "\n" * 601)[0])

    def test_unsafe(self) -> None:
        self.assertEqual(self.check("bindings/a.rs", "unsafe fn f() {}"), [])
        self.assertIn("  rtrs_client_c/client.rs:1", self.check("rtrs_client_c/client.rs", "unsafe fn f() {}"))
        self.assertEqual(self.check("proto/a.rs", "#![forbid(unsafe_code)]\n// unsafe\n"), [])
        self.assertIn("  proto/a.rs:2", self.check("proto/a.rs", "\nunsafe { f() }"))

    def test_what_hides(self) -> None:
        text = "fn f() {\n    a.unwrap_or(0);\n    b.unwrap_or_default();\n    c.saturating_add(1);\n}\n" + KUNIT
        errors = self.check("proto/a.rs", text)
        self.assertIn("proto: 2 unwrap_or of a number, 0 allowed", errors[0])
        self.assertEqual(errors[1:3], ["  proto/a.rs:2", "  proto/a.rs:3"])
        self.assertIn("proto: 1 saturating arithmetic", errors[3])
        self.assertEqual(self.check("proto/a.rs", "fn f() { a.unwrap_or(NONE); }"), [])
        self.assertEqual(self.check("proto/a.rs", "// a.unwrap_or(0)"), [])

    def test_ratchet(self) -> None:
        self.write(str(ratchet.FILE), f'["{house.LONG_FILES}"]\n"proto/a.rs" = 700\n"proto/b.rs" = 650\n')
        self.write("proto/a.rs", "\n" * 650)
        self.write("proto/b.rs", "\n" * 660)
        text = "\n".join(house.check(self.checkout))
        self.assertIn("proto/a.rs: 650 lines of files over 600, fewer than the 700", text)
        self.assertIn("proto/b.rs: 660 lines of files over 600, 650 allowed", text)
        self.assertEqual(len(house.check(self.checkout, lower=True)), 1)
        self.assertIn('"proto/a.rs" = 650\n"proto/b.rs" = 650\n', (self.checkout / ratchet.FILE).read_text())


class Lines(Tree):
    """What counts as a line of code."""

    def test_counted(self) -> None:
        text = "// SPDX\n\n//! Words.\nfn f() { // why\n    /* a\n    b */\n    let x = \"//\";\n}\n" + KUNIT
        self.write("proto/a.rs", text)
        self.write("proto/tests/b.rs", "fn f() {}\n")
        self.write("bindings/kunit/c.rs", "fn f() {}\n")
        counted = sizes.lines(self.checkout)
        self.assertEqual(counted["proto"], 3)
        self.assertEqual(sum(counted.values()), 3)
        self.assertIn("| all | 3 |", sizes.lines_table(counted))

    def test_literals_stay_literals(self) -> None:
        text = "let a = '\\''; let b = b\"\\\"\"; let c = r#\"a\"b\"#; let d: &'a str = \"x\";"
        self.assertEqual([word.text for word in rust_source.tokens(text) if word.text.isidentifier()],
                         ["let", "a", "let", "b", "let", "c", "let", "d", "str"])


if __name__ == "__main__":
    unittest.main()

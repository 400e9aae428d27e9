# SPDX-License-Identifier: GPL-2.0
"""Which links lead nowhere."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from lab import links
from lab import prose


class Links(unittest.TestCase):
    """What is told of the links of a document."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name)
        (self.checkout / "Documentation").mkdir()
        (self.checkout / "README.md").write_text("# Read\n")
        (self.checkout / "Documentation/b.md").write_text(
            "# The B\n\n## `x_y`: what it's for\n\n## Why\n\n```sh here\n# Block\n```\n\n## Why\n\n"
            "### A [link](a.md) ##\n")

    def problems(self, text: str) -> list[str]:
        """What is told of Documentation/a.md with this text."""
        document = self.checkout / "Documentation/a.md"
        document.write_text(text)
        return links.check(self.checkout, [], [document])

    def test_links_that_lead_somewhere(self) -> None:
        for target in ("b.md", "b.md#the-b", "#own-words", "b.md#x_y-what-its-for", "b.md#why", "b.md#why-1",
                       "b.md#a-link", "../README.md#read", "/README.md", "../Documentation", "<b.md>", 'b.md "title"',
                       "https://example.org/no.md#no", "mailto:a@example.org"):
            self.assertEqual(self.problems(f"# Own *words*\n\n[a\nb]({target})\n"), [], target)

    def test_files_that_are_not_there(self) -> None:
        self.assertEqual(self.problems("\n[a](bb.md)\n"), ["Documentation/a.md:2: there is no `bb.md'; perhaps b.md"])
        self.assertEqual(self.problems("\n![a](x.svg#b)\n"), ["Documentation/a.md:2: there is no `x.svg'"])
        self.assertEqual(self.problems("[a]\n\n[a]: c/d.md\n"), ["Documentation/a.md:3: there is no `c/d.md'"])
        self.assertIn("outside", self.problems("[a](../../x.md)")[0])

    def test_headings_that_are_not_there(self) -> None:
        self.assertEqual(self.problems("[a](b.md#wy)"),
                         ["Documentation/a.md:1: `#wy' is no heading of b.md; perhaps #why"])
        for anchor in ("why-2", "block", "x_y", "Why"):
            self.assertIn(f"`#{anchor}' is no heading", self.problems(f"[a](b.md#{anchor})")[0])
        self.assertIn("no heading of a.md", self.problems("[a](#x)")[0])

    def test_code_has_no_links(self) -> None:
        self.assertEqual(self.problems("`[a](no.md)`\n\n```text\n[a](no.md)\n```\n"), [])

    def test_documents_that_comments_name(self) -> None:
        texts = [prose.Prose("a.rs", "\nSee Documentation/b.md.\nAnd Documentation/bd.md.\n"),
                 prose.Prose("tools/lab/tests/test_a.py", "Documentation/no.md")]
        self.assertEqual(links.check(self.checkout, texts, []),
                         ["a.rs:3: there is no Documentation/bd.md; perhaps Documentation/b.md"])


if __name__ == "__main__":
    unittest.main()

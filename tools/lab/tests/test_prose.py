# SPDX-License-Identifier: GPL-2.0
"""What counts as prose in each kind of file, and where it stands."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from lab import prose


def said(name: str, text: str) -> list[str]:
    """The words of each line of a file, without the code between them."""
    found = prose.of(name, text)
    if found is None:
        return []
    return [" ".join(line.replace(prose.CODE, " ").split()) for line in found.text.split("\n")]


class Kinds(unittest.TestCase):
    """Each kind of file."""

    def test_rust(self) -> None:
        text = ('// SPDX-License-Identifier: GPL-2.0\n\n//! Words of `code` and\n//! [`A::b`](c) more.\nfn f() {\n'
                '    let a = "// text"; // why\n    /* and\n     * how */ g(\'"\', b"/*", r#"//"#);\n}\n')
        self.assertEqual(said("a.rs", text),
                         ["", "", "Words of and", "[ ] more.", "", "why", "and", "how", "", ""])

    def test_code_inside_of_comments(self) -> None:
        text = "/// Before.\n///\n/// ```\n/// let thsi = 1;\n/// ```\n/// After.\nfn f() {}\n"
        self.assertEqual(said("a.rs", text), ["Before.", "", "", "", "", "After.", "", ""])

    def test_descriptions_of_modules(self) -> None:
        text = 'module! {\n    name: "abc",\n    description: "Time in ms \\\n        of a path",\n}\n'
        self.assertEqual(said("a.rs", text), ["", "", "Time in ms", "of a path", "", ""])
        self.assertEqual(said("a.c", 'MODULE_PARM_DESC(size, "size of it");\nMODULE_LICENSE("GPL");\n'),
                         ["size of it", "", ""])

    def test_c(self) -> None:
        text = '/* SPDX */\n/**\n * One. `x`\n */\nint a = \'"\'; // two\nchar *b = "/* no */";\n'
        self.assertEqual(said("a.h", text), ["SPDX", "", "One.", "", "two", "", ""])

    def test_python(self) -> None:
        text = ('#!/usr/bin/env python3\n"""Module."""\n\nA = """no"""  # yes\n\ndef f(x="# no"):\n    """Says\n'
                '    it."""\n    print("no")\n    parser.add_argument("--a", help="how it "\n'
                '                        f"goes {x}", default="no")  # noqa: E501\n')
        self.assertEqual(said("a.py", text), ["", "Module.", "", "yes", "", "", "Says", "it.", "", "how it", "goes",
                                              ""])

    def test_documents(self) -> None:
        text = "# Head\n\nA [text](file.md#x) of `--a\nb` <https://a.b> and [file](file.md).\n```sh\nno\n```\nEnd\n"
        self.assertEqual(said("a.md", text), ["# Head", "", "A [text] of", "and .", "", "", "", "End", ""])

    def test_manual_pages(self) -> None:
        text = ('.TH A 5\n.SH SEE ALSO\n.B key\nIt is \\fBx\\fR or \\(dqy\\(dq.\n.EX\nno\n.EE\n.\\" no\n'
                'As root\\-owned.\n')
        self.assertEqual(said("a.5", text), ["", "See also", "", "It is or .", "", "", "", "", "As root-owned.", ""])

    def test_abi(self) -> None:
        text = "What:\t\t/sys/a\nDate:\t\tToday\nDescription:\tRO. It\n\t\tis.\n"
        self.assertEqual(said("Documentation/ABI/testing/a", text), ["", "", "RO. It", "is.", ""])

    def test_settings(self) -> None:
        self.assertEqual(said("a.toml", '# Why\nkey = "a#b"  # how\n# key = 3\n# [[table]]\n'),
                         ["Why", "how", "", "", ""])
        self.assertEqual(said("a.service", "Description=What it is\nExecStart=no\n"), ["What it is", "", ""])
        self.assertEqual(said("Makefile", "# What\nx:\n\techo $#\n"), ["What", "", "", ""])
        self.assertEqual(said("a.json", '{"title": "Paths",\n"name": "no"}\n'), ["Paths", "", ""])

    def test_other_files_have_none(self) -> None:
        self.assertIsNone(prose.of("COPYING", "words\n"))


class Checkout(unittest.TestCase):
    """The files of a checkout."""

    def test_what_was_built_is_none_of_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.md", "b/a.rs", "build/a.md", "b/target/a.rs", ".git/a.md", "b/snapshots/a.md"):
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("// a\n")
            self.assertEqual([text.name for text in prose.read(Path(folder))], ["a.md", "b/a.rs"])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: GPL-2.0
"""Which words are asked for, and what is told of those that are wrong."""

from __future__ import annotations

import unittest
from collections.abc import Iterable

from lab import prose
from lab import spelling


def words(text: str) -> list[str]:
    """The words of a text."""
    return [word for _, word in spelling.words(text)]


def problems(text: str, known: str = "", wrong: dict[str, list[str]] | None = None) -> list[str]:
    """What is told of a document, where the dictionary lacks the words `wrong`."""
    def speller(asked: Iterable[str]) -> dict[str, list[str]]:
        return {word: suggested for word, suggested in (wrong or {}).items() if word in set(asked)}

    return spelling.problems([prose.Prose("a.md", text)], spelling.Words(known), speller)


class Words(unittest.TestCase):
    """What is a word."""

    def test_words(self) -> None:
        self.assertEqual(words("The client's \"path\", (half-open): it doesn\N{RIGHT SINGLE QUOTATION MARK}t."),
                         ["The", "client", "path", "half", "open", "it", "doesn't"])

    def test_code_is_none(self) -> None:
        for text in ("a_b", "f()", "--option", "-Dwarnings", "/dev/rnbd0", "a/b", "file.rs", "x=1", "RDMA", "IOs",
                     "CamelCase", "0x1f", "a::b", "$path", "%lld", "@errno", f"{prose.CODE}ed"):
            self.assertEqual(words(text), [], text)

    def test_places(self) -> None:
        text = "\n  (half-opne)"
        self.assertEqual([text[at:at + len(word)] for at, word in spelling.words(text)], ["half", "opne"])


class Problems(unittest.TestCase):
    """What is told."""

    def test_a_wrong_word(self) -> None:
        errors = problems("good\nbaad, baad\n", wrong={"baad": ["bad", "baa"]})
        self.assertEqual(errors[:2], ["a.md:2: `baad' is in no dictionary: perhaps bad, baa"] * 2)
        self.assertIn("words.txt", errors[2])
        self.assertIn("no word is like it", problems("qqq", wrong={"qqq": []})[0])

    def test_the_words_of_the_project(self) -> None:
        wrong: dict[str, list[str]] = {word: [] for word in ("kobject", "Kobjects", "debian", "Debian")}
        self.assertEqual(problems("kobject Kobjects Debian", "# Why.\nDebian\nkobject\n", wrong), [])
        self.assertIn("`debian'", problems("Debian debian", "Debian\n", wrong)[0])

    def test_the_list(self) -> None:
        self.assertEqual(problems("a1 bb cc dd ee", "# Two groups.\nbb\ncc\n\n# One.\naa\n")[0],
                         "tools/lab/words.txt:6: no text has `aa' any more: take it out")
        errors = "\n".join(problems("bb cc dd", "cc\nbb\ndd\ncc\nd d\n"))
        self.assertIn("words.txt:2: `bb' comes before `cc'", errors)
        self.assertIn("words.txt:4: `cc' is in line 1, too", errors)
        self.assertIn("words.txt:5: `d d' is not one word", errors)

    def test_what_hunspell_says(self) -> None:
        text = "@(#) International Ispell\n*\n\n& baad 2 1: bad, ba ad\n\n# qqq 1\n\n+ GO\n-\n"
        self.assertEqual(spelling.parse(text), {"baad": ["bad", "ba ad"], "qqq": []})


if __name__ == "__main__":
    unittest.main()

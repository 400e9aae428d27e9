# SPDX-License-Identifier: GPL-2.0
"""What the glossary forbids, where it is found, and where it is allowed."""

from __future__ import annotations

import unittest

from lab import paths
from lab import prose
from lab import terms

GLOSSARY = """# Design

## Terms

| term | meaning | not |
|---|---|---|
| response | the message that ends a request | answer, reply |
| in flight | of a request | under way |

### Of servers

| term | meaning | not |
|---|---|---|
| drain | of a server | quiesce |
| path | a way | |

## Layers

| term | meaning | not |
|---|---|---|
| other | table | path |
"""
ENTRY = '[[allowed]]\nword = "answer"\nwhy = "a reason"\n'


def problems(text: str, exceptions: str = "", name: str = "a.md") -> list[str]:
    """What is told of a document."""
    return terms.problems([prose.Prose(name, text)], GLOSSARY, exceptions)


class Terms(unittest.TestCase):
    """What is told of words."""

    def test_a_word_that_is_not_used(self) -> None:
        errors = problems("One.\nIts reply is late.\n")
        self.assertEqual(errors[0], "a.md:2: `reply': write `response' (the glossary of Documentation/design.md)")
        self.assertIn("terms.toml", errors[1])

    def test_its_forms(self) -> None:
        for text in ("Replies", "it replied", "replying", "answers", "(answered)", "quiesces", "quiescing",
                     "an\nanswer", "under\n\t\tway"):
            self.assertEqual(len(problems(text)), 2, text)

    def test_other_words(self) -> None:
        for text in ("response", "path", "no-answer", "answer_open", "answer()", "answer.rs", "unanswered", "/answer",
                     "thunder ways", "not", "meaning", f"under {prose.CODE} way", "quiescent"):
            self.assertEqual(problems(text), [], text)

    def test_the_glossary_may_have_them(self) -> None:
        self.assertEqual(problems(GLOSSARY, name=terms.GLOSSARY), [])
        self.assertIn(f"{terms.GLOSSARY}:1:", problems("answer\n" + GLOSSARY, name=terms.GLOSSARY)[0])

    def test_a_glossary_there_must_be(self) -> None:
        with self.assertRaisesRegex(ValueError, "no table"):
            terms.terms("# Design\n\n| term | meaning | not |\n")

    def test_that_of_the_project(self) -> None:
        found = terms.terms((paths.CHECKOUT / terms.GLOSSARY).read_text())
        self.assertIn(terms.Term("under way", "in flight"), found)
        self.assertGreater(len(found), 10)


class Allowed(unittest.TestCase):
    """Places where such a word means another thing."""

    def test_phrases(self) -> None:
        entry = ENTRY + "phrase = 'not answers?'\n"
        self.assertEqual(problems("does not\n   answer", entry), [])
        self.assertIn("a.md:1:", problems("its answer does not answer", entry)[0])
        self.assertEqual(len(problems("its reply does not answer", entry)), 2)

    def test_files(self) -> None:
        entry = ENTRY + 'files = ["http/*"]\n'
        self.assertEqual(problems("answer", entry, "http/a.rs"), [])
        self.assertIn("a.md:1:", problems("answer", entry)[0])
        both = entry + "phrase = 'an answer'\n"
        self.assertEqual(problems("an answer", both, "http/a.rs"), [])
        self.assertTrue(problems("the answer", both, "http/a.rs"))
        self.assertTrue(problems("an answer", both))

    def test_entries_that_cover_nothing(self) -> None:
        self.assertIn("entry 1 (`\\b(?:an\\s+answer)\\b'): no text has that any more",
                      problems("text", ENTRY + "phrase = 'an answer'\n")[0])
        self.assertIn("the glossary has no word `path'",
                      problems("path", ENTRY.replace("answer", "path") + "phrase = 'path'\n")[0])

    def test_entries_that_are_wrong(self) -> None:
        for text in (ENTRY, ENTRY + "other = 1\n", ENTRY.replace("why", "phrase")):
            with self.assertRaisesRegex(ValueError, "entry 1"):
                terms.allowed(text)


if __name__ == "__main__":
    unittest.main()

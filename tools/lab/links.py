# SPDX-License-Identifier: GPL-2.0
"""`lab links`: links of the documents that lead to no file, or to no heading of it.

Anchors are those that GitHub makes of headings. Documents that comments name must be there, too. Links to other sites
are not followed.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import documents
from . import paths
from . import prose

_LINK = re.compile(r"\]\(\s*<?([^)\s>]*)>?[^)]*\)|(?m:^ {0,3}\[[^\]\n]+\]:[ \t]*<?(\S+?)>?$)")
_OTHER_SITE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_HEADING = re.compile(r"(?m)^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$")
_OWN_ANCHOR = re.compile(r"<a\s+(?:name|id)=\"([^\"]+)\"")
# A line of a source, as GitHub names it.
_LINE = re.compile(r"L\d+(-L\d+)?")
_NAMED = re.compile(r"(?<![\w/.-])Documentation/[\w/-]+\.md\b")
# Made-up documents are named there.
_TESTS = "tools/lab/tests/"


@dataclass(frozen=True)
class Link:
    """A link: the number of its line, where it leads to, and the anchor there, which may be empty."""

    line: int
    target: str
    anchor: str


def links(text: str) -> Iterator[Link]:
    """The links of a document to others of the checkout, and to places of its own."""
    text = prose.without_code(text)
    for found in _LINK.finditer(text):
        where = found[1] or found[2] or ""
        if where and not _OTHER_SITE.match(where):
            target, _, anchor = where.partition("#")
            yield Link(text.count("\n", 0, found.start(1 if found[1] else 2)) + 1, target, anchor)


def anchors(text: str) -> list[str]:
    """The anchors of a document's headings, as GitHub makes them, and those that it has itself."""
    text = prose.without_blocks(text)
    found = _OWN_ANCHOR.findall(text)
    times: dict[str, int] = {}
    for heading in _HEADING.findall(text):
        said = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", said.lower()).replace(" ", "-")
        times[anchor] = times.get(anchor, -1) + 1
        found.append(f"{anchor}-{times[anchor]}" if times[anchor] else anchor)
    return found


def _nearest(wanted: str, there: Iterable[str], mark: str = "") -> str:
    """What may be meant."""
    near = difflib.get_close_matches(wanted, list(there), 1, 0.5)
    return f"; perhaps {mark}{near[0]}" if near else ""


def _problem(checkout: Path, document: Path, link: Link) -> str | None:
    """What is wrong with a link."""
    base = checkout if link.target.startswith("/") else document.parent
    path = (base / link.target.lstrip("/")).resolve() if link.target else document
    if not path.is_relative_to(checkout):
        return f"`{link.target}' is outside of the checkout: name a file of it"
    if not path.exists():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        return f"there is no `{link.target}'" + _nearest(path.name, (other.name for other in beside))
    if not link.anchor or (path.suffix != ".md" and _LINE.fullmatch(link.anchor)):
        return None
    there = anchors(path.read_text()) if path.suffix == ".md" else []
    if link.anchor in there:
        return None
    return f"`#{link.anchor}' is no heading of {path.name}" + _nearest(link.anchor, there, "#")


def check(checkout: Path, texts: Iterable[prose.Prose], every: Iterable[Path]) -> list[str]:
    """What is wrong with the links of the documents `every`, and with the names of documents in the texts."""
    checkout = checkout.resolve()
    found = []
    for document in every:
        name = document.resolve().relative_to(checkout).as_posix()
        for link in links(document.read_text()):
            problem = _problem(checkout, document.resolve(), link)
            if problem:
                found.append(f"{name}:{link.line}: {problem}")
    for text in texts:
        for named in _NAMED.finditer(text.text) if not text.name.startswith(_TESTS) else ():
            if not (checkout / named[0]).exists():
                there = (path.relative_to(checkout).as_posix() for path in (checkout / "Documentation").rglob("*.md"))
                found.append(f"{text.name}:{text.line(named.start())}: there is no {named[0]}"
                             + _nearest(named[0], there))
    return found


def _run(_options: argparse.Namespace) -> int:
    errors = check(paths.CHECKOUT, prose.read(paths.CHECKOUT), documents.documents())
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab links`."""
    command = commands.add_parser("links", help="check that the links of the documents lead somewhere",
                                  description=__doc__)
    command.set_defaults(run=_run)

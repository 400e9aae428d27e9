# SPDX-License-Identifier: GPL-2.0
"""`lab layers`: imports go down, between crates and between the layers of each crate.

The layers are those of the picture in Documentation/design.md, below the heading
"Layers": a crate begins a line, with the crates that it may use, and its layers follow
from the top, indented, each with its files (without `.rs`) and folders (with a slash at
the end). A file may import from its own layer and from lower ones. Files of one layer
must not import each other in a circle. What the tree does not keep to yet is in
ratchet.toml.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import paths
from . import ratchet
from . import rust_imports
from . import rust_source

DOCUMENT = Path("Documentation/design.md")
HEADING = "## Layers"


@dataclass
class Crate:
    """What the picture says of a crate."""

    name: str
    uses: list[str]
    # From the top: the name of each layer, and its files and folders.
    layers: list[tuple[str, list[str]]] = field(default_factory=list)

    def place(self, file: str) -> int | None:
        """The number of a file's layer, 0 being the top; the longest name that fits counts."""
        best: tuple[int, int] | None = None
        for number, (_, names) in enumerate(self.layers):
            for name in names:
                if name == file or (name.endswith("/") and file.startswith(name)):
                    best = max(best or (0, 0), (len(name), number))
        return best[1] if best else None


@dataclass
class Verdict:
    """What a crate's imports are like."""

    errors: list[str] = field(default_factory=list)
    # Imports that go up, and circles: one line each.
    upward: list[str] = field(default_factory=list)
    circles: list[str] = field(default_factory=list)


def picture(document: str) -> dict[str, Crate]:
    """Reads the picture; ValueError says what is wrong with it."""
    if f"\n{HEADING}\n" not in document:
        raise ValueError(f"{DOCUMENT} has no heading {HEADING!r}")
    after = document.split(f"\n{HEADING}\n", 1)[1]
    if "\n```text\n" not in after:
        raise ValueError(f"{DOCUMENT}: below {HEADING!r} is no block ```text")
    block = after.split("\n```text\n", 1)[1].split("\n```", 1)[0]
    crates: dict[str, Crate] = {}
    crate: Crate | None = None
    indent = 0
    for line in block.split("\n"):
        words = line.replace(",", " ").split()
        depth = len(line) - len(line.lstrip())
        if not words:
            continue
        if depth == 0:
            if words[0] not in rust_source.CRATES or words[1:2] not in ([], ["uses"]):
                raise ValueError(f"{DOCUMENT}: a crate's line is `CRATE uses CRATES', not {line!r}")
            crate = crates[words[0]] = Crate(words[0], words[2:])
            indent = 0
        elif crate is None:
            raise ValueError(f"{DOCUMENT}: a layer without a crate: {line!r}")
        elif not indent or depth == indent:
            indent = depth
            crate.layers.append((words[0], words[1:]))
        else:
            crate.layers[-1][1].extend(words)
    missing = set(rust_source.CRATES) - set(crates)
    if missing:
        raise ValueError(f"{DOCUMENT}: no layers of {', '.join(sorted(missing))}")
    return crates


def _known(crate: Crate, files: set[str]) -> list[str]:
    """Names of the picture that are not there, twice there, or missing in it."""
    errors = []
    names = [name for _, every in crate.layers for name in every]
    for name in names:
        if not any(name == file or (name.endswith("/") and file.startswith(name)) for file in files):
            errors.append(f"{DOCUMENT}: {crate.name} has no {name}")
    errors += [f"{DOCUMENT}: {name} of {crate.name} is there twice"
               for name in sorted(set(names)) if names.count(name) > 1]
    errors += [f"{rust_source.CRATES[crate.name]}/{file}.rs: in no layer of {DOCUMENT}"
               for file in sorted(files) if crate.place(file) is None]
    return errors


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of files in which each can be reached from each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def judge(crate: Crate, source: rust_imports.Source) -> Verdict:
    """Compares a crate's imports with the picture."""
    verdict = Verdict(_known(crate, source.files()))
    within: defaultdict[str, set[str]] = defaultdict(set)
    folder = rust_source.CRATES[crate.name]
    verdict.errors += [f"{folder}/{file}.rs: no `mod` leads to it" for file in sorted(source.unread())]
    seen = set()
    for found in source.imports():
        where = f"{folder}/{found.file}.rs"
        if found.crate != crate.name:
            if found.crate not in crate.uses:
                verdict.errors.append(f"{where}:{found.line}: {crate.name} may not use {found.crate}")
            continue
        if found.target == found.file or (found.file, found.target) in seen:
            continue
        seen.add((found.file, found.target))
        place, target = crate.place(found.file), crate.place(found.target)
        if place is None or target is None:
            continue
        if target < place:
            verdict.upward.append(f"{where}:{found.line}: {crate.layers[place][0]} imports {found.target}.rs "
                                  f"of {crate.layers[target][0]}, which is above it")
        elif target == place:
            within[found.file].add(found.target)
    for group in circles(within):
        at = crate.place(group[0]) or 0
        verdict.circles.append(f"{folder}: layer {crate.layers[at][0]}: these files import each other "
                               f"in a circle: {', '.join(group)}")
    return verdict


def order(crates: dict[str, Crate]) -> list[str]:
    """Crates that the picture has use crates that do not come later in it."""
    names = list(crates)
    return [f"{DOCUMENT}: {name} uses {other}, which is not below it"
            for name, crate in crates.items() for other in crate.uses
            if other not in names or names.index(other) <= names.index(name)]


def check(checkout: Path, wanted: list[str], verbose: bool, lower: bool) -> list[str]:
    """What is wrong with the imports of some crates; empty if nothing is."""
    crates = picture((checkout / DOCUMENT).read_text())
    allowed = ratchet.Ratchet(checkout)
    errors = order(crates)
    for name in wanted:
        verdict = judge(crates[name], rust_imports.Source(name, checkout))
        errors += verdict.errors
        if verbose:
            for line in verdict.upward + verdict.circles:
                print(line)
        upward = ratchet.Found(len(verdict.upward), verdict.upward)
        errors += allowed.compare("upward imports", {name: upward}, lower, [name])
        # One is tolerated as well as several: a knot that is cut in two is no worse.
        knots = ratchet.Found(bool(verdict.circles), verdict.circles)
        errors += allowed.compare("knots of files", {name: knots}, lower, [name])
    if lower:
        allowed.write()
    return errors


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab layers`."""
    command = commands.add_parser("layers", help="check that imports go down", description=__doc__)
    command.add_argument("crates", nargs="*", metavar="CRATE", help="only these")
    command.add_argument("--list", action="store_true", help="print what is tolerated, too")
    command.add_argument("--lower", action="store_true",
                         help="take what became better out of ratchet.toml")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    wanted = options.crates or list(rust_source.CRATES)
    unknown = sorted(set(wanted) - set(rust_source.CRATES))
    if unknown:
        print(f"layers: no crate {', '.join(unknown)}, only {', '.join(rust_source.CRATES)}", file=sys.stderr)
        return 2
    errors = check(paths.CHECKOUT, wanted, options.list, options.lower)
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0

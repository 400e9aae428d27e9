# SPDX-License-Identifier: GPL-2.0
"""What the files of a crate import from each other and from other crates.

Read from the words of the source, not by a compiler: `use` trees, `mod` files, and
paths in code. A name that a module re-exports leads to where it is defined.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from . import paths
from . import rust_source
from .rust_source import Token

_ITEMS = ("struct", "enum", "trait", "fn", "const", "static", "type", "union")
_ROOT = ("crate", "$crate")
_PATH_ATTRIBUTE = re.compile(r'^[ \t]*#\[path = "([^"]+)\.rs"\]\s+(?:pub )?mod (\w+);', re.MULTILINE)
_RELATIVE = ("self", "super")
Segments = tuple[str, ...]


@dataclass(frozen=True)
class Import:
    """File `file` of this crate names something of file `target` of crate `crate`."""

    file: str
    line: int
    crate: str
    target: str


@dataclass
class Module:
    """A module: of a file, or inside of one."""

    file: str
    parent: Module | None
    children: dict[str, Module] = field(default_factory=dict)
    uses: dict[str, Segments] = field(default_factory=dict)
    globs: list[Segments] = field(default_factory=list)
    items: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Target:
    """Where a path leads: a module of a crate of ours, or an item in it."""

    crate: str
    module: Module | None


def use_tree(words: list[Token], at: int) -> tuple[list[tuple[str, Segments]], int]:
    """The names that a tree brings in, each with its path (`*` for all), and where it ends."""
    prefix: list[str] = []
    while True:
        text = words[at].text
        if text == "{":
            found = []
            at += 1
            while words[at].text != "}":
                inner, at = use_tree(words, at)
                found += [(name, (*prefix, *segments)) for name, segments in inner]
                at += words[at].text == ","
            return found, at + 1
        if text == "*":
            return [("*", tuple(prefix))], at + 1
        if text != "::":
            prefix.append(text)
        at += 1
        if words[at].text == "as":
            return [(words[at + 1].text, tuple(prefix))], at + 2
        if words[at].text != "::" and text != "::":
            break
    # `a::self` is a.
    if len(prefix) > 1 and prefix[-1] == "self":
        prefix.pop()
    return [(prefix[-1], tuple(prefix))], at


# Made by `module!` at the crate's root: what the kernel crate's macros name the module by, wherever they are.
LOCAL_MODULE = ("crate", "LocalModule")


class Source:
    """A crate's files."""

    def __init__(self, crate: str, checkout: Path = paths.CHECKOUT) -> None:
        self.crate = crate
        folder = checkout / rust_source.CRATES[crate]
        self._texts = {path.relative_to(folder).as_posix()[:-3]: path.read_text()
                       for path in rust_source.files(crate, checkout)}
        self._paths: list[tuple[Module, str, int, Segments]] = []
        self._macros: dict[str, Module] = {}
        self._read: set[str] = set()
        self.root = Module(crate, None)
        self._read_file(self.root, "")

    def unread(self) -> set[str]:
        """The files that are no module of the crate."""
        return set(self._texts) - self._read

    def files(self) -> set[str]:
        """All files of the crate's folder, without `.rs`."""
        return set(self._texts)

    def imports(self) -> Iterator[Import]:
        """All imports, in the order of the text; the same one as often as it is there."""
        for module, file, line, segments in self._paths:
            target = self._resolve(module, segments, set())
            if target is None:
                continue
            if target.module is None:
                yield Import(file, line, target.crate, "")
            else:
                yield Import(file, line, target.crate, target.module.file)

    def _read_file(self, module: Module, folder: str) -> None:
        self._read.add(module.file)
        _Reader(self, module, folder, rust_source.tokens(self._texts[module.file])).read()

    def add_path(self, module: Module, line: int, segments: Segments) -> None:
        """Notes a path that a file has."""
        if segments == LOCAL_MODULE:
            return
        self._paths.append((module, module.file, line, segments))

    def add_macro(self, module: Module, name: str) -> None:
        """Notes a macro, which paths find at the crate's root."""
        self._macros[name] = module

    def child(self, module: Module, name: str, folder: str) -> None:
        """Reads the file of `mod NAME;` in a module whose children are in a folder."""
        named = {found[2]: found[1] for found in _PATH_ATTRIBUTE.finditer(self._texts[module.file])}
        beside = posixpath.dirname(module.file)
        files = [f"{folder}{name}", f"{folder}{name}/mod"]
        if name in named:
            files = [posixpath.normpath(posixpath.join(beside, named[name]))]
        for file in files:
            if file in self._texts and file not in self._read:
                made = module.children[name] = Module(file, module)
                self._read_file(made, f"{folder}{name}/")

    def _resolve(self, module: Module, segments: Segments, seen: set[tuple[int, str]]) -> Target | None:
        first, rest = segments[0], segments[1:]
        if first in _ROOT:
            return self._walk(self.root, rest, seen)
        if first in _RELATIVE:
            if first == "super":
                module = module.parent or module
            while rest and rest[0] == "super":
                module, rest = module.parent or module, rest[1:]
            return self._walk(module, rest, seen)
        if first in module.children:
            return self._walk(module.children[first], rest, seen)
        if first in module.uses and (id(module), first) not in seen:
            seen.add((id(module), first))
            return self._resolve(module, (*module.uses[first], *rest), seen)
        if first in rust_source.CRATES and first != self.crate:
            return Target(first, None)
        return None

    def _walk(self, module: Module, segments: Segments, seen: set[tuple[int, str]]) -> Target | None:
        """Follows a path below a module, through what the modules re-export."""
        while segments:
            name = segments[0]
            if name in module.children:
                module, segments = module.children[name], segments[1:]
                continue
            if name in module.uses and (id(module), name) not in seen:
                seen.add((id(module), name))
                return self._resolve(module, (*module.uses[name], *segments[1:]), seen)
            if name not in module.items:
                if module is self.root and name in self._macros:
                    return Target(self.crate, self._macros[name])
                for glob in module.globs:
                    found = self._resolve(module, glob, set(seen))
                    if found and found.module and name in (found.module.items | set(found.module.uses)):
                        return self._walk(found.module, segments, seen)
            break
        return Target(self.crate, module)


class _Reader:
    """Reads the words of one file."""

    def __init__(self, source: Source, module: Module, folder: str, words: list[Token]) -> None:
        self._source = source
        self._words = words
        # For each open brace, the module outside of it if it is a module's.
        self._open: list[tuple[Module, str, int] | None] = []
        self._module = module
        self._folder = folder
        # How many braces are open around the items of the module.
        self._depth = 0

    def read(self) -> None:
        """Reads all of it."""
        at = 0
        while at < len(self._words):
            at = self._step(at)

    def _text(self, at: int) -> str:
        return self._words[at].text if 0 <= at < len(self._words) else ""

    def _step(self, at: int) -> int:
        text = self._text(at)
        if text == "{":
            self._open.append(None)
        elif text == "}":
            outside = self._open.pop() if self._open else None
            if outside:
                self._module, self._folder, self._depth = outside
        elif text == "pub" and self._text(at + 1) == "(":
            while self._text(at) != ")":
                at += 1
        elif text == "use" and self._text(at + 1) != "<":
            return self._use(at)
        elif text == "mod" and self._text(at + 2) in (";", "{"):
            return self._mod(at)
        elif text == "macro_rules" and self._text(at + 1) == "!":
            self._source.add_macro(self._module, self._text(at + 2))
        elif text in _ITEMS and len(self._open) == self._depth:
            self._module.items.add(self._text(at + 1))
        elif self._is_path(at):
            return self._path(at)
        return at + 1

    def _use(self, at: int) -> int:
        line = self._words[at].line
        names, end = use_tree(self._words, at + 1)
        for name, segments in names:
            if name == "*":
                self._module.globs.append(segments)
            elif name != "_":
                self._module.uses[name] = segments
            self._source.add_path(self._module, line, segments)
        return end

    def _mod(self, at: int) -> int:
        name = self._text(at + 1)
        if self._text(at + 2) == ";":
            self._source.child(self._module, name, self._folder)
        else:
            self._open.append((self._module, self._folder, self._depth))
            made = self._module.children[name] = Module(self._module.file, self._module)
            self._module, self._folder = made, f"{self._folder}{name}/"
            self._depth = len(self._open)
        return at + 3

    def _is_path(self, at: int) -> bool:
        text = self._text(at)
        return ((text[0].isalpha() or text[0] in "_$") and self._text(at + 1) == "::"
                and (self._text(at - 1) != "::" or self._is_global(at)))

    def _is_global(self, at: int) -> bool:
        before = self._text(at - 2)
        return not (before.isidentifier() or before in (">", "]", ")"))

    def _path(self, at: int) -> int:
        line = self._words[at].line
        segments = [self._text(at)]
        while self._text(at + 1) == "::" and (self._text(at + 2)[:1].isalpha() or self._text(at + 2)[:1] == "_"):
            at += 2
            segments.append(self._text(at))
        self._source.add_path(self._module, line, tuple(segments))
        return at + 1

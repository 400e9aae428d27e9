# SPDX-License-Identifier: GPL-2.0
"""The prose of the checkout, for checks of its words: documents, comments, docstrings, help texts.

The text of a file keeps its lines. Code has become one character that belongs to no word (`CODE`): what is not a
comment, blocks and spans of code, addresses, placeholders. So words on both sides of it are not neighbours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CODE = "\0"
# Folders of the checkout that no author writes.
_NOT_OURS = ("build", "target", ".git", "snapshots", "corpus")
# Files of Rust in which every string is a part of the help.
_HELP = ("tools/rnbdctl/src/cli.rs", "tools/rnbdctl/src/examples.rs")

_C_LIKE = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*.*?(?:\*/|\Z))
  | (?P<raw>\b[bc]?r(?P<marks>\#*)".*?"(?P=marks))
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<char>'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))')
    """,
    re.VERBOSE | re.DOTALL,
)
# What stands before a string that says what a module or a parameter of it is, in Rust and in C.
_DESCRIPTION = re.compile(r"(?:\bdescription:\s*|\bMODULE_DESCRIPTION\(\s*|\bMODULE_PARM_DESC\(\s*\w+,\s*)\Z")
_PYTHON = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
  | (?:\b[rRbBfFuU]{1,2})?(?P<string>\"\"\".*?\"\"\"|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    """,
    re.VERBOSE | re.DOTALL,
)
_PYTHON_HELP = re.compile(r"\b(?:help|description|epilog)=\(?\s*[rf]?\Z")
_HASH = re.compile(r"(?m)(?<!\S)#(?!!)[^\n]*|^Description=[^\n]*")
# A setting that is commented out.
_SETTING = re.compile(r"#[ \t]*(?:[\w.-]+[ \t]*=.*|\[+[\w.-]+\]+)")
_JSON = re.compile(r'"(?:title|description)":\s*("(?:[^"\\\n]|\\.)*")')

_FENCED = re.compile(r"(?ms)^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)")
_SPAN = re.compile(rf"(`+)(?=[^`])[^{CODE}]{{1,400}}?(?<!`)\1(?!`)")
_TARGET = re.compile(r"(?<=[\]\0])(?:\([^)\s]*\)|\[[^\]\n]*\])|(?m:^[ \t]*\[[^\]\n]+\]:[ \t]*\S+$)")
_OTHER_CODE = re.compile(rf"\bhttps?://\S+|<[^<>\n]{{1,60}}>|``[^`']+''|`[^`'\n]{{1,60}}'|:[a-z]+:(?={CODE})")
# A link whose text is the name of the document.
_NAMED_LINK = re.compile(r"\[([a-z][\w.-]*)\](?=\([^)\s]*?\1(?:\.md)?[)#])")


@dataclass(frozen=True)
class Prose:
    """The prose of a file, named by its path in the checkout."""

    name: str
    text: str

    def line(self, at: int) -> int:
        """The number of the line, from 1, of a place in the text."""
        return self.text.count("\n", 0, at) + 1


def _kept(text: str, parts: Iterable[tuple[int, int, str]]) -> str:
    """The text of which only some parts are prose, given by start, end and what stands there; lines stay."""
    made: list[str] = []
    last = 0
    for start, end, words in (*parts, (len(text), len(text), "")):
        code = text[last:start]
        made += [CODE if code.strip() else "", "\n" * code.count("\n"), " ", words]
        last = end
    return "".join(made)


def _as_code(found: re.Match[str]) -> str:
    return CODE + "\n" * found[0].count("\n")


def without_code(text: str) -> str:
    """A document without its blocks and spans of code."""
    return _SPAN.sub(_as_code, without_blocks(text))


def without_blocks(text: str) -> str:
    """A document without its blocks of code."""
    return _FENCED.sub(_as_code, text)


def _marked_up(text: str) -> str:
    """Text without its code: blocks, spans, the targets of links, addresses, placeholders."""
    text = without_code(text)
    for pattern in (_NAMED_LINK, _TARGET, _OTHER_CODE):
        text = pattern.sub(_as_code, text)
    return text


def _unquoted(literal: str) -> str:
    """What a string says: without quotes, escapes and places for values."""
    return re.sub(r"\\(?:\n|.)|\{[^{}\n]*\}|%[\d.]*[a-z]+", lambda found: " " + "\n" * found[0].count("\n"),
                  literal.strip("\"'"))


def _c_like(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    for found in _C_LIKE.finditer(text):
        kind = found.lastgroup
        if kind == "line":
            # A comment of the third slash or of a mark for rustdoc.
            words = re.sub(r"^//[/!]*", "", found[0])
            yield found.start(), found.end(), "" if "SPDX-" in words else words
        elif kind == "block":
            words = re.sub(r"(?m)^[ \t]*\*+(?!/)|^/\*+!?|\*+/\Z", "", found[0])
            yield found.start(), found.end(), "" if "SPDX-" in words else words
        elif kind == "string" and (_DESCRIPTION.search(text, max(0, found.start() - 80), found.start())
                                   or (name in _HELP and not found[0].startswith('"rnbdctl'))):
            yield found.start(), found.end(), _unquoted(found[0])


def _python(_name: str, text: str) -> Iterator[tuple[int, int, str]]:
    last, was_help, code = 0, False, ""
    for found in _PYTHON.finditer(text):
        between = text[last:found.start()]
        code = between if between.strip() else code
        if found["comment"]:
            if not re.match(r"#!|# SPDX-|# (?:noqa|type:|fmt:)", found[0]):
                yield found.start(), found.end(), re.sub(r"^#+|# noqa.*", "", found[0])
        elif between.strip() or not was_help:
            was_help = bool(_PYTHON_HELP.search(text, max(0, found.start("string") - 40), found.start("string")))
            is_statement = not code.strip() or code.rstrip().endswith(":")
            if was_help or (is_statement and found["string"].startswith('"""')):
                yield found.start(), found.end(), _unquoted(found["string"])
        else:
            # A string that goes on the one before it.
            yield found.start(), found.end(), _unquoted(found["string"])
        last = found.end()
        code = code if found["comment"] else CODE


def _hash(_name: str, text: str) -> Iterator[tuple[int, int, str]]:
    for found in _HASH.finditer(text):
        if "SPDX-" not in found[0] and not _SETTING.fullmatch(found[0]):
            yield found.start(), found.end(), re.sub(r"^#+|^Description=", "", found[0])


def _json(_name: str, text: str) -> Iterator[tuple[int, int, str]]:
    for found in _JSON.finditer(text):
        yield found.start(), found.end(), _unquoted(found[1])


def _assembly(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    yield from (part for part in _c_like(name, text) if text.startswith("/", part[0]))


def _abi(_name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """A file of Documentation/ABI: the fields that name the file, its date and its contact are no prose."""
    for found in re.finditer(r"(?m)^(?!(?:What|Date|KernelVersion|Contact):)(?:Description:)?(.*)$", text):
        yield found.start(), found.end(), found[1]


def _control(_name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """debian/control: the descriptions."""
    for found in re.finditer(r"(?m)^Description: (.*(?:\n .*)*)", text):
        yield found.start(), found.end(), found[1]


def _manual(_name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """A manual page: what is bold or in italics is a name or a placeholder, and so is what stands in quotes."""
    in_example = False
    at = 0
    for line in text.splitlines(keepends=True):
        start, at = at, at + len(line)
        if re.match(r"\.(?:nf|EX)\b", line):
            in_example = True
        elif re.match(r"\.(?:fi|EE)\b", line):
            in_example = False
        if in_example or line.startswith((".\\\"", ".TH")):
            continue
        if line.startswith("."):
            found = re.match(r"\.(?:SH|SS)\s+(.*)", line)
            if found:
                yield start, start + len(line) - 1, found[1].capitalize()
            continue
        words = line.rstrip("\n").replace("\\-", "-").replace("\\(aq", "'")
        words = re.sub(r"\\f[BI].*?\\f[RP]|\\\(dq.*?\\\(dq", CODE, words)
        yield start, start + len(line) - 1, re.sub(r"\\(?:\(..|.)", " ", words)


_Parts = Callable[[str, str], Iterator[tuple[int, int, str]]]
_BY_SUFFIX: Mapping[str, _Parts] = {
    ".rs": _c_like, ".c": _c_like, ".h": _c_like, ".S": _assembly, ".py": _python, ".json": _json,
    ".5": _manual, ".8": _manual,
} | dict.fromkeys((".toml", ".sh", ".service", ".rules", ".yaml", ".hcl", ".config", ".conf", ".postinst", ".postrm",
                   ".prerm", ".triggers"), _hash)
# Whole files are prose.
_DOCUMENTS = (".md", ".Debian")
_BY_NAME: Mapping[str, _Parts] = dict.fromkeys(("Makefile", "Kbuild", "Containerfile", "rules", "shellrc", "rnbd-dkms",
                                            "fence_rnbd", "map-disk", "KERNELS", "bindgen_parameters"), _hash)


def of(name: str, text: str) -> Prose | None:
    """The prose of a file; `None` for a kind of file that has none."""
    path = Path(name)
    parts = _BY_SUFFIX.get(path.suffix) or _BY_NAME.get(path.name)
    if name.startswith("Documentation/ABI/"):
        parts = _abi
    elif name == "debian/control":
        parts = _control
    elif path.suffix in _DOCUMENTS:
        return Prose(name, _marked_up(re.sub(r"<!--.*?-->", _as_code, text, flags=re.DOTALL)))
    elif text.startswith("#!") and "python" in text.split("\n", 1)[0]:
        parts = _python
    return Prose(name, _marked_up(_kept(text, parts(name, text)))) if parts else None


def read(checkout: Path) -> list[Prose]:
    """The prose of all files of the checkout."""
    found = []
    for path in files(checkout):
        if path.suffix in (".lock", ".svg", ".snap"):
            continue
        prose = of(path.relative_to(checkout).as_posix(), path.read_text(errors="replace"))
        if prose is not None:
            found.append(prose)
    return found


def files(checkout: Path) -> list[Path]:
    """The files of the checkout, in the order of their names."""
    found = []
    for folder, folders, names in os.walk(checkout):
        folders[:] = [name for name in folders if name not in _NOT_OURS and (name[0] != "." or name == ".ci")]
        found += [Path(folder) / name for name in names]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())

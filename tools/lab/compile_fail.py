# SPDX-License-Identifier: GPL-2.0
"""Programs that must not compile: what the types of bindings/ forbid.

A case is compiled with the command that Kbuild recorded for a crate of this project, with another
source and another output.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import build
from . import paths
from .run import CommandFailed

FOLDER = "tools/compile_fail"
# The crate whose recorded command the cases are compiled with; they depend on what it depends on.
_LIKE = "rtrs_core"
_EXPECTED = re.compile(r"//~(\^?) (E\d{4})$")
# Options of the recorded command that name an output, or a lint that such a small program need not keep.
_DROPPED = re.compile(r"--emit=|-[WAD]clippy::|-D?warnings$|-Wmissing_docs$|-Wunreachable_pub$")


@dataclass(frozen=True, order=True)
class Error:
    """An error of rustc, reported or expected."""

    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.code} in line {self.line}"


def expected(source: str) -> set[Error]:
    """The errors that a case announces, each at the end of its line, or below it with `//~^'."""
    lines = enumerate(source.splitlines(), start=1)
    return {Error(number - len(found[1]), found[2]) for number, line in lines if (found := _EXPECTED.search(line))}


def reported(diagnostics: str, name: str) -> tuple[set[Error], str]:
    """The errors of the file `name` in what rustc wrote with --error-format=json, and its text for people."""
    errors = set()
    text = ""
    for line in diagnostics.splitlines():
        if not line.startswith("{"):
            text += line + "\n"
            continue
        message = json.loads(line)
        text += message.get("rendered") or ""
        if message.get("level") == "error" and message["spans"]:
            errors.add(Error(_line(message, name), (message["code"] or {"code": "?"})["code"]))
    return errors, text


def _line(message: dict[str, Any], name: str) -> int:
    """The first line of the file `name` that an error points to: by itself, or by one of its notes."""
    spans = sorted(message["spans"], key=lambda span: not span["is_primary"])
    for span in [*spans, *(span for child in message["children"] for span in child["spans"])]:
        # What a macro expands to stands where the file calls it.
        place = span
        while place["expansion"] and Path(place["file_name"]).name != name:
            place = place["expansion"]["span"]
        if Path(place["file_name"]).name == name:
            return int(place["line_start"])
    return 0


def command(recorded: str, source: str, metadata: str) -> list[str]:
    """The command that compiles `source` as the crate was compiled whose command was recorded.

    Metadata is the cheapest output. It goes to a file of its own: rustc renames what it has written, and
    as root it would put a plain file in the place of a device such as /dev/null.
    """
    words = _kept(iter(shlex.split(recorded.partition(":=")[2])))
    # The kernel's make passes this on to rustc, which then knows the options of nightly releases.
    options = ["--crate-name=case", "--error-format=json", f"--emit=metadata={metadata}"]
    argv = ["env", "RUSTC_BOOTSTRAP=1", *words, *options, source]
    return ["rustc" if word == "clippy-driver" else word for word in argv]


def _kept(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word == "--out-dir":
            next(words)
        elif not word.endswith(".rs") and not _DROPPED.match(word):
            yield word


def _judge(name: str, source: str, diagnostics: str) -> str:
    """What is wrong with the outcome of a case; empty if nothing is."""
    want = expected(source)
    found, text = reported(diagnostics, name)
    if not want:
        return f"{name}: does not say which error is expected, by `//~ E0000' at the end of a line"
    if found == want:
        return ""
    listed = ", ".join(map(str, sorted(found))) or "no error at all"
    return f"{name}: expected {', '.join(map(str, sorted(want)))}; there was {listed}\n{text}"


def check(out: Path) -> None:
    """Tries all cases against the crates in `out`, a build of the stock kernel's modules.

    Raises CommandFailed if a case compiles, or is refused otherwise than it says.
    """
    recorded = (out / _LIKE / f".{_LIKE}.o.cmd").read_text().splitlines()[0]
    results = out / "compile_fail"
    results.mkdir(exist_ok=True)
    cases = sorted((paths.CHECKOUT / FOLDER).glob("*.rs"))
    script = ""
    for case in cases:
        result = shlex.quote(str(results / f"{case.stem}.json"))
        argv = command(recorded, str(case), str(results / f"{case.stem}.rmeta"))
        script += f"{shlex.join(argv)} 2>{result} || true\n"
    build.inside(["sh", "-ec", script], build.stock_tree().binds, out)
    outcomes = [_judge(case.name, case.read_text(), (results / f"{case.stem}.json").read_text()) for case in cases]
    problems = [outcome for outcome in outcomes if outcome]
    if problems:
        raise CommandFailed("\n".join(problems))

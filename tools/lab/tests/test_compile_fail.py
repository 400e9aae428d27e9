# SPDX-License-Identifier: GPL-2.0
"""How errors of rustc are compared with those that a case announces."""

import json
import unittest

from .. import compile_fail
from ..compile_fail import Error


def _span(file: str, line: int, primary: bool = True) -> dict[str, object]:
    return {"file_name": file, "line_start": line, "is_primary": primary, "expansion": None}


def _message(code: str, spans: list[dict[str, object]], notes: list[dict[str, object]]) -> str:
    children = [{"spans": [note]} for note in notes]
    return json.dumps({"level": "error", "code": {"code": code}, "spans": spans, "children": children,
                       "rendered": code})


class Errors(unittest.TestCase):
    def test_a_case_says_which_line_must_fail(self) -> None:
        found = compile_fail.expected("fn a() {}\nfn b() { c() } //~ E0425\n//~^ E0308\n// E0001 is only spoken of\n")
        self.assertEqual(found, {Error(2, "E0425"), Error(2, "E0308")})

    def test_an_error_counts_where_the_case_has_it(self) -> None:
        found, text = compile_fail.reported(_message("E0308", [_span("lib.rs", 7, False), _span("x/case.rs", 3)], []),
                                            "case.rs")
        self.assertEqual(found, {Error(3, "E0308")})
        self.assertEqual(text, "E0308")

    def test_a_note_leads_to_the_case_when_the_error_does_not(self) -> None:
        found, _ = compile_fail.reported(_message("E0080", [_span("lib.rs", 7)], [_span("x/case.rs", 4)]), "case.rs")
        self.assertEqual(found, {Error(4, "E0080")})

    def test_what_is_no_diagnostic_is_shown(self) -> None:
        self.assertEqual(compile_fail.reported("error: no such option\n", "case.rs"),
                         (set(), "error: no such option\n"))

    def test_the_recorded_command_gets_another_source_and_no_output(self) -> None:
        recorded = ("savedcmd_a.o := A=1 clippy-driver -Dwarnings -Wclippy::all --extern b --out-dir a/ "
                    "--emit=obj=a.o /src/a.rs")
        argv = compile_fail.command(recorded, "/cases/case.rs", "/out/case.rmeta")
        self.assertEqual(argv[:3], ["env", "RUSTC_BOOTSTRAP=1", "A=1"])
        self.assertEqual(argv[3:6], ["rustc", "--extern", "b"])
        self.assertEqual(argv[-1], "/cases/case.rs")
        self.assertIn("--emit=metadata=/out/case.rmeta", argv)
        self.assertNotIn("/src/a.rs", argv)
        self.assertNotIn("--emit=obj=a.o", argv)

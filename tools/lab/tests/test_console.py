# SPDX-License-Identifier: GPL-2.0
"""What is typed at `make shell`."""

import unittest

from lab.vm_console import Keys


class Typed(unittest.TestCase):
    def parts(self, *reads: bytes) -> list[tuple[str, bytes]]:
        keys = Keys()
        return [part for typed in reads for part in keys.parse(typed)]

    def test_text_goes_to_the_machine(self) -> None:
        self.assertEqual(self.parts(b"ls\r", b"nq"), [("text", b"ls\r"), ("text", b"nq")])

    def test_the_escape_changes_and_ends_however_it_arrives(self) -> None:
        for reads in ((b"a\x1dnb\x1dq",), (b"a", b"\x1d", b"n", b"b", b"\x1d", b"q")):
            self.assertEqual(self.parts(*reads), [("text", b"a"), ("next", b"\r"), ("text", b"b"), ("quit", b"")])

    def test_an_escape_before_another_key_is_left_out(self) -> None:
        self.assertEqual(self.parts(b"\x1dx"), [("text", b"x")])

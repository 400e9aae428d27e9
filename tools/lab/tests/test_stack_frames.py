# SPDX-License-Identifier: GPL-2.0
"""What functions take of the stack is read from their instructions."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from lab import arch
from lab import ratchet
from lab import stack_frames

AMD64 = """
x.ko:     file format elf64-x86-64

Disassembly of section .text:

0000000000000010 <a::small>:
  10:\tpush   %rbx
  11:\tcall   16 <__fentry__>
  16:\tpop    %rbx
  17:\tret

0000000000000020 <<<a::Files>::LIST::{closure#1} as core::ops::function::FnOnce<(&[u8],)>>::call_once>:
  20:\tpush   %rbp
  21:\tpush   %r15
  22:\tsub    $0x400,%rsp
  29:\tpush   $0x1
  2b:\tpush   %rax
  2c:\tadd    $0x400,%rsp
  33:\tret

0000000000000040 <a::pages>:
  40:\tpush   %rbx
  41:\tlea    -0x5000(%rsp),%r11
  49:\tsub    $0x1000,%rsp
  50:\tmovq   $0x0,(%rsp)
  58:\tcmp    %r11,%rsp
  5b:\tjne    49
  5d:\tsub    $0x20,%rsp
  61:\tret

0000000000000070 <a::two_pages>:
  70:\tsub    $0x1000,%rsp
  77:\tmovq   $0x0,(%rsp)
  7f:\tsub    $0x10,%rsp
  83:\tret
"""
ARM64 = """
0000000000000000 <a::saves>:
   0:\tpaciasp
   4:\tstp\tx29, x30, [sp, #-96]!
   8:\tstp\tx20, x19, [sp, #16]
   c:\tmov\tx29, sp
  10:\tsub\tsp, sp, #0x1, lsl #12
  14:\tsub\tsp, sp, #0x30
  18:\tret

0000000000000020 <a::leaf>:
  20:\tret
"""


def elf(machine: int) -> bytes:
    """The beginning of a file for a machine."""
    return b"\x7fELF\x02\x01" + bytes(12) + machine.to_bytes(2, "little")


class Frames(unittest.TestCase):
    def test_amd64(self) -> None:
        self.assertEqual(stack_frames.frames(AMD64, arch.AMD64), {
            "a::small": 8, "<a::Files>::LIST::{closure#1}": 16 + 0x400, "a::pages": 8 + 0x5000,
            "a::two_pages": 0x1010})

    def test_arm64(self) -> None:
        self.assertEqual(stack_frames.frames(ARM64, arch.ARM64), {"a::saves": 96 + 0x1000 + 0x30, "a::leaf": 0})

    def test_of_several_of_one_name_the_largest_counts(self) -> None:
        twice = AMD64.replace("a::two_pages", "a::small")
        self.assertEqual(stack_frames.frames(twice, arch.AMD64)["a::small"], 0x1010)

    def test_machine(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "x.ko"
            for head, known in ((elf(62), arch.AMD64), (elf(183), arch.ARM64)):
                file.write_bytes(head)
                self.assertIs(stack_frames.machine(file), known)
            for head in (elf(3), b"", b"\x7fELF", b"\x7fELF\x01" + elf(62)[5:]):
                file.write_bytes(head)
                with self.assertRaises(RuntimeError):
                    stack_frames.machine(file)

    def test_a_folder_without_modules_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(RuntimeError):
            stack_frames.of_folder(Path(folder))


class Check(unittest.TestCase):
    """What the check says, of made-up frames."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name)
        (self.checkout / ratchet.FILE).parent.mkdir(parents=True)

    def allow(self, **allowed: int) -> None:
        """Writes the ratchet."""
        lines = [f'["{stack_frames.RULE}"]', *(f"{name} = {figure}" for name, figure in allowed.items())]
        (self.checkout / ratchet.FILE).write_text("\n".join(lines) + "\n")

    def check(self, lower: bool = False, **frames: int) -> list[str]:
        """What is wrong with functions of these frames."""
        with mock.patch.object(stack_frames, "of_folder", return_value=frames):
            return stack_frames.check(self.checkout, self.checkout, lower)

    def test_limit(self) -> None:
        self.assertEqual(self.check(a=stack_frames.LIMIT), [])
        self.assertEqual(self.check(a=stack_frames.LIMIT + 8), [
            f"a: 1280 {stack_frames.RULE}, 0 allowed by {ratchet.FILE}", "  takes 1032 bytes"])

    def test_ratchet(self) -> None:
        self.allow(a=1536)
        self.assertEqual(self.check(a=1536), [])
        # A compiler may take a few bytes more or less.
        self.assertEqual(self.check(a=1288), [])
        self.assertIn("1792", self.check(a=1537)[0])
        self.assertIn("lower it there", self.check(a=1280)[0])
        self.assertIn("lower it there", self.check(a=8)[0])

    def test_lower(self) -> None:
        self.allow(a=1536, b=2048)
        self.assertEqual(self.check(lower=True, a=1280, b=8), [])
        self.assertEqual(self.check(a=1280), [])
        self.assertNotEqual(self.check(a=1281), [])

    def test_largest(self) -> None:
        self.assertEqual(stack_frames.largest({"a": 8, "b": 2048, "c": 8}, 2), ["  2048 b", "     8 a"])


if __name__ == "__main__":
    unittest.main()

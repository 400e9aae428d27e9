# SPDX-License-Identifier: GPL-2.0
"""Walks of a request are found in the order of executed blocks and the debug information."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from lab import walk
from lab import walk_frames
from lab import walk_hops
from lab.vm_trace import Leaving
from lab.vm_trace import Step
from lab.walk_calls import Call
from lab.walk_calls import calls
from lab.walk_calls import CLIENT
from lab.walk_calls import Functions
from lab.walk_calls import SERVER
from lab.walk_frames import Frame

KALLSYMS = """\
ffffffff80001000 T rxe_post_send\t[rdma_rxe]
ffffffff80001100 T submit_bio
ffffffff80001200 T blk_mq_end_request
ffffffff80001300 T rust_helper_lock
ffffffff80001340 T other
ffffffffc0001000 t queue_rq\t[rnbd_client]
ffffffffc0001080 t .Ltmp1\t[rnbd_client]
ffffffffc0001100 t __pfx_send\t[rnbd_client]
ffffffffc0001110 t send\t[rnbd_client]
ffffffffc0001200 t complete\t[rnbd_client]
ffffffffc0001300 t foreign\t[other]
ffffffffc0002000 t run\t[rtrs_core]
ffffffffc0003000 t request\t[rtrs_server]
ffffffffc0003100 t end_io\t[rtrs_server]
ffffffffc0003200 t __init_end\t[other]
"""
CALL, JUMP, RET, ON = Leaving.CALLS, Leaving.JUMPS, Leaving.RETURNS, Leaving.GOES_ON
BASES = {"rnbd_client": 0xffffffffc0001000, "rtrs_core": 0xffffffffc0002000, "rtrs_server": 0xffffffffc0003000,
         "rtrs_client": 0, "rnbd_server": 0}


def step(address: int, leaving: Leaving, cpu: int = 0, others: int = 0, locked: int = 0) -> Step:
    """A block at the end of the address space."""
    return Step(0xffffffff_00000000 + address, 4, locked, leaving, cpu, others)


# A request: posted, its bio submitted and ended at once, the response posted, the request ended.
REQUEST = [
    step(0xc0001000, CALL, 1, 9), step(0xc0001110, CALL, 1, locked=2), step(0x80001000, ON, 1, 3),
    step(0xc0002000, CALL, 0, 9), step(0xc0003000, CALL, 0, 2, locked=1), step(0x80001100, ON, 0, 1),
    step(0xc0001114, RET, 1, 20), step(0xc0001008, RET, 1),
    step(0xc0003100, CALL, 0, 9), step(0x80001000, ON, 0, 3), step(0xc0003104, RET, 0, 9, locked=1),
    step(0xc0003004, RET, 0, 9), step(0xc0002004, RET, 0),
    step(0xc0001200, JUMP, 1, 9, locked=1), step(0x80001200, ON, 1),
]


def tree(call: Call) -> str:
    """A call with what it calls, in one line."""
    parts = [tree(part) if isinstance(part, Call) else part for part in call.parts if not isinstance(part, Step)]
    return f"{'*' if call.is_callback else ''}{call.function.name}({' '.join(parts)})"


class Calls(unittest.TestCase):
    """Calls are told from the order of blocks."""

    def setUp(self) -> None:
        self.functions = Functions(KALLSYMS, walk_hops.MARKS)

    def trees(self, steps: list[Step]) -> list[str]:
        """The calls of a trace."""
        return [tree(call) for call in calls(steps, self.functions)]

    def test_request(self) -> None:
        self.assertEqual(self.trees(REQUEST), [
            "*queue_rq(send(rxe_post_send))", "*run(request(submit_bio *end_io(rxe_post_send)))",
            "*complete(blk_mq_end_request)"])

    def test_tail_calls(self) -> None:
        steps = [step(0xc0001000, CALL), step(0xc0001110, JUMP), step(0xc0001200, RET), step(0xc0001004, RET)]
        self.assertEqual(self.trees(steps), ["*queue_rq(send() complete())"])

    def test_jumps_inside_of_a_function(self) -> None:
        steps = [step(0xc0001000, JUMP), step(0xc0001010, CALL), step(0xc0001110, RET), step(0xc0001014, RET)]
        self.assertEqual(self.trees(steps), ["*queue_rq(send())"])

    def test_interrupt_of_the_other_end(self) -> None:
        steps = [step(0xc0001000, ON), step(0xc0003100, RET, others=50), step(0xc0001004, RET)]
        self.assertEqual(self.trees(steps), ["*queue_rq()", "*end_io()"])

    def test_ends(self) -> None:
        sides = [call.side() for call in calls(REQUEST, self.functions)]
        self.assertEqual(sides, [CLIENT, SERVER, CLIENT])

    def test_watched_ranges(self) -> None:
        ranges = self.functions.ranges()
        self.assertTrue(any(start <= 0xffffffffc0001085 < end for start, end in ranges))
        self.assertIn((0xffffffff80001000, 0xffffffff80001001), ranges)
        self.assertFalse(any(start <= 0xffffffffc0001300 < end for start, end in ranges))
        self.assertFalse(any(start <= 0xffffffff80001340 < end for start, end in ranges))

    def test_locked(self) -> None:
        self.assertEqual(walk.locked(calls(REQUEST, self.functions)), {CLIENT: 3, SERVER: 2})

    def test_helpers_count_for_the_caller(self) -> None:
        steps = [step(0xc0001000, CALL, others=9), step(0x80001300, RET, locked=1), step(0xc0001004, RET),
                 step(0x80001300, RET, others=9, locked=1)]
        self.assertEqual(walk.locked(calls(steps, self.functions)), {CLIENT: 1})

    def test_requests(self) -> None:
        found = walk_hops.requests(calls(REQUEST * 3, self.functions))
        self.assertEqual(len(found), 2)
        self.assertEqual(walk_hops.shape(found[0]), walk_hops.shape(found[1]))


ADDR2LINE = """0x0000000000000010
core::mem::take
/usr/lib/rustlib/src/rust/library/core/src/mem/mod.rs:2
<rnbd_client::queue::Queue as kernel_ext::X>::queue_rq::{closure#0}
/tmp/x/rnbd_client/queue.rs:12 (discriminator 2)
<rnbd_client::queue::Queue>::queue_rq
/tmp/x/rnbd_client/queue.rs:10
0x0000000000000011
??
??:0
"""


class Frames(unittest.TestCase):
    """Frames are read from what addr2line prints."""

    def test_parse(self) -> None:
        found = walk_frames.parse(ADDR2LINE)
        self.assertEqual([frame.file for frame in found[16]], ["rnbd_client/queue.rs", "rnbd_client/queue.rs", ""])
        self.assertEqual([frame.line for frame in found[16]], [10, 12, 2])
        self.assertEqual([frame.is_closure for frame in found[16]], [False, True, False])
        self.assertEqual(found[17], [Frame("??", "", 0)])

    def test_sources_of_the_kernel_are_not_ours(self) -> None:
        text = "0x0000000000000001\na\n/kernel/source/rust/bindings/x.rs:1\n"
        self.assertEqual(walk_frames.parse(text)[1][0].file, "")

    def test_short_names(self) -> None:
        for name, wanted in (("<a::b::Type<c::D>>::f::<u8, {closure#0}>", "Type::f"),
                             ("<a::T as b::C<d::E>>::g", "T::g"), ("a::b::c", "b::c"), ("helper", "helper")):
            self.assertEqual(walk.short(name), wanted)


SOURCE = """\
fn outer(x: u8) -> u8 {
    let y = value(x);
    forward(y)
}
fn value(x: u8) -> u8 {
    x
}
fn forward(x: u8) -> u8 {
    work(x)
}
fn work(x: u8) -> u8 {
    let y = x;
    y
}
"""
HELPERS = "void one(int a)\n{\n\tf(a);\n}\n\nint *two(int a)\n{\n\tf(a);\n\treturn 0;\n}\n"


class Hops(unittest.TestCase):
    """What counts as a hop."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name)
        files = {"proto/a.rs": SOURCE, "bindings/sync/b.rs": SOURCE, "bindings/h.c": HELPERS,
                 **{f"proto/{number}.c": "" for number in range(4)}}
        for name, text in files.items():
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (self.checkout / name).write_text(text)

    def walk(self, *frames: tuple[int, Frame]) -> walk_hops.Walk:
        """A walk of functions at these depths, up to the post, on the client."""
        functions = Functions(KALLSYMS, walk_hops.MARKS)
        known: dict[int, list[Frame]] = {}
        chain: list[Frame] = []
        for number, (depth, frame) in enumerate(frames):
            chain = [*chain[:depth], frame]
            known[number] = list(chain)
        request = calls([step(0xc0001000, CALL, 1, 9), step(0x80001000, ON, 1, 3)], functions)
        return walk_hops.walks(request, functions, BASES, {"rnbd_client": known}, self.checkout)[0]

    def test_values_are_no_hops_and_forwarding_is(self) -> None:
        found = self.walk((0, Frame("outer", "proto/a.rs", 2)), (1, Frame("value", "proto/a.rs", 6)),
                          (1, Frame("forward", "proto/a.rs", 9)), (2, Frame("work", "proto/a.rs", 12)))
        self.assertEqual([hop.name for hop in found.hops], ["outer", "forward", "work"])
        self.assertEqual((found.files, found.entered, found.of("bindings")), (1, 4, 0))

    def test_each_counts_once(self) -> None:
        found = self.walk((0, Frame("outer", "proto/a.rs", 2)), (1, Frame("work", "proto/a.rs", 12)),
                          (0, Frame("work::<u8>", "proto/a.rs", 13)))
        self.assertEqual([hop.name for hop in found.hops], ["outer", "work"])

    def test_primitives_are_no_hops(self) -> None:
        found = self.walk((0, Frame("outer", "proto/a.rs", 2)), (1, Frame("work", "bindings/sync/b.rs", 12)))
        self.assertEqual([hop.name for hop in found.hops], ["outer"])

    def test_helpers_in_c(self) -> None:
        for name, is_value in (("one", True), ("two", False), ("three", False)):
            self.assertEqual(walk_hops.place(Frame(name, "bindings/h.c", 3), self.checkout)[2], is_value, name)

    def test_ways(self) -> None:
        functions = Functions(KALLSYMS, walk_hops.MARKS)
        frames = {module: {offset: [Frame(f"{module}{offset & ~0xff:x}", f"proto/{offset >> 8:x}.c", 1)]
                           for offset in range(0x400)} for module in BASES}
        found = walk_hops.walks(calls(REQUEST, functions), functions, BASES, frames, self.checkout)
        self.assertEqual([[hop.name for hop in one.hops] for one in found], [
            ["rnbd_client0", "rnbd_client100"], ["rtrs_core0", "rtrs_server0"], ["rtrs_server100"], ["rnbd_client200"]])


if __name__ == "__main__":
    unittest.main()

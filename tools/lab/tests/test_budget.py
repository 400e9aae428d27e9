# SPDX-License-Identifier: GPL-2.0
"""The budget of a request: its file, what exceeds it, and which function has grown."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from lab import budget
from lab import budget_file
from lab.budget_file import CALLS
from lab.budget_file import Cost
from lab.budget_file import INSTRUCTIONS
from lab.budget_file import LOCKED
from lab.budget_file import LOCKS
from lab.budget_file import MESSAGES
from lab.budget_file import OWN
from lab.budget_file import PACKETS
from lab.budget_file import WAKE_UPS
from lab.vm_count import KERNEL
from lab.vm_count import Place
from lab.vm_count import Spent
from lab.vm_count import USER

SEND, ANSWER = "rtrs_client: <a::Session<'_>>::send", "rtrs_server: b::answer"
READ, WRITE = "read 4 KiB, depth 1", "write 4 KiB, depth 1"


def cost(own: float = 300.0, send: float = 200.0, **counts: float) -> Cost:
    """What a request takes."""
    found = {MESSAGES: 2.0, PACKETS: 4.0, OWN: own, LOCKED: 6.0, WAKE_UPS: 8.0} | counts
    return Cost(found, {INSTRUCTIONS: {SEND: send, ANSWER: own - send}, LOCKS: {SEND: 4.0, ANSWER: 2.0},
                        CALLS: {SEND: 1.0, ANSWER: 1.0}})


class File(unittest.TestCase):
    """What is written is read."""

    def test_costs_are_written_and_read(self) -> None:
        costs = {READ: cost(), WRITE: cost(own=310.5, send=210.5)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / budget_file.FILE
            path.parent.mkdir(parents=True)
            path.write_text(budget_file.text(costs))
            self.assertEqual(budget_file.read(Path(folder)), costs)

    def test_a_row_without_a_figure_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / budget_file.FILE
            path.parent.mkdir(parents=True)
            path.write_text(budget_file.text({READ: cost()}).replace("[4.00]", "[]"))
            with self.assertRaisesRegex(RuntimeError, PACKETS):
                budget_file.read(Path(folder))

    def test_no_file_is_an_error(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(RuntimeError, "budget --write"):
            budget_file.read(Path(folder))

    def test_functions_that_take_next_to_nothing_are_left_out(self) -> None:
        one = cost()
        one.functions[CALLS]["rnbd_client: opened"] = 0.001
        self.assertNotIn("opened", budget_file.text({READ: one}))


class Comparison(unittest.TestCase):
    """What is more than 3 % above the file is an error."""

    def test_within_the_budget(self) -> None:
        self.assertEqual(budget_file.errors({READ: cost()}, {READ: cost(own=309.0)}), [])

    def test_the_function_that_grew_is_named(self) -> None:
        found = cost(own=330.0, send=230.0)
        lines = budget_file.errors({READ: cost()}, {READ: found})
        self.assertIn("330.00 own instructions, +10.0%", lines[0])
        self.assertIn(READ, lines[0])
        self.assertEqual(lines[1:], [f"    {INSTRUCTIONS}: {SEND}: 200.00, now 230.00"])

    def test_a_new_function_is_named(self) -> None:
        found = cost(**{LOCKED: 7.0})
        found.functions[LOCKS]["rtrs_client: new"] = 1.0
        self.assertIn("rtrs_client: new: 0.00, now 1.00", budget_file.errors({READ: cost()}, {READ: found})[1])

    def test_each_count_is_held_to(self) -> None:
        for count in budget_file.COUNTS:
            found = cost()
            found.counts[count] *= 1.1
            self.assertIn(count, budget_file.errors({READ: cost()}, {READ: found})[0])

    def test_a_count_that_no_function_explains_says_so(self) -> None:
        lines = budget_file.errors({READ: cost()}, {READ: cost(**{WAKE_UPS: 9.0})})
        self.assertIn("none of these modules", lines[1])

    def test_other_operations_are_an_error(self) -> None:
        self.assertIn("other operations", budget_file.errors({READ: cost()}, {WRITE: cost()})[0])

    def test_what_only_one_of_two_measurements_exceeds_is_none(self) -> None:
        once, again = cost(**{WAKE_UPS: 9.0}), cost(**{PACKETS: 5.0})
        self.assertEqual(budget_file.errors({READ: cost()}, {READ: budget_file.lesser(once, again)}), [])

    def test_what_became_less_is_told(self) -> None:
        self.assertEqual(budget_file.lower({READ: cost()}, {READ: cost()}), [])
        (line,) = budget_file.lower({READ: cost()}, {READ: cost(own=200.0, send=100.0)})
        self.assertIn("200.00 own instructions, 300.00", line)


class Measurement(unittest.TestCase):
    """What was counted becomes the cost of a request."""

    def test_a_request_is_what_many_take_more_than_one(self) -> None:
        operation = budget.OPERATIONS[0]
        start = {Place("rtrs_client", "_send"): Spent(1000, 5, 10), Place(KERNEL, budget.WAKES): Spent(90, 30)}
        many = {Place("rtrs_client", "_send"): Spent(5000, 15, 50), Place(KERNEL, budget.WAKES): Spent(400, 110),
                Place(KERNEL, "rust_helper_lock"): Spent(20, 10, 10), Place(USER, ""): Spent(9999, 0),
                Place("rdma_rxe", "rxe_post_send"): Spent(300, 20, 7), Place(KERNEL, "schedule"): Spent(500, 10, 3)}
        names = {"_send": "send"}
        found = budget.cost_of(operation, budget.run_of(11, 60, many, names), budget.run_of(1, 20, start, names))
        self.assertEqual(found.counts, {PACKETS: 4.0, MESSAGES: 2.0, OWN: 402.0, LOCKED: 5.0, WAKE_UPS: 8.0})
        self.assertEqual(found.functions[INSTRUCTIONS], {"rtrs_client: send": 400.0, "kernel: rust_helper_lock": 2.0})
        self.assertEqual(found.functions[CALLS]["rdma_rxe: rxe_post_send"], 2.0)

    def test_operations_have_different_names(self) -> None:
        names = [operation.name for operation in budget.OPERATIONS]
        self.assertEqual(len(set(names)), 8)
        self.assertIn("write 64 KiB, depth 16", names)


if __name__ == "__main__":
    unittest.main()

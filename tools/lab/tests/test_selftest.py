# SPDX-License-Identifier: GPL-2.0
"""Choosing selftests, KTAP output, and the kernel messages that fail a test."""

import contextlib
import io
import struct
import unittest
from collections.abc import Callable
from unittest import mock

from lab import paths
from lab import selftest_pool
from lab import summary
from lab import vm_kernel
from lab.selftest import choose
from lab.selftest import fit
from lab.selftest_case import Case
from lab.selftest_case import load_subjects
from lab.selftest_case import Subject
from lab.selftest_case import Test
from lab.selftest_runner import Attempt
from lab.selftest_runner import Outcome
from lab.selftest_runner import Runner
from lab.vm import MACHINES
from lab.vm_node import CommandFailed
from lab.vm_trouble import stood_still
from lab.vm_trouble import TROUBLE
from lab.vm_trouble import troubled


def subject(name: str, *cases: str) -> Subject:
    return Subject(name, "one", "", [Case(case, lambda test: None, "") for case in cases])


class Choosing(unittest.TestCase):
    def test_names_are_files_or_file_and_test_with_wildcards(self) -> None:
        subjects = [subject("map", "one", "two"), subject("data", "one")]
        self.assertEqual([len(cases) for _, cases in choose(subjects, [])], [2, 1])
        self.assertEqual([(found.name, [case.name for case in cases])
                          for found, cases in choose(subjects, ["map.t*"])], [("map", ["two"])])
        self.assertEqual(len(choose(subjects, ["*.one"])), 2)
        self.assertEqual(choose(subjects, ["nothing"]), [])

    def test_a_kernel_has_its_cases_and_some_are_quick(self) -> None:
        every = [Subject("map", "one", "", [
            Case("both", lambda test: None, "", quick=("stock", "debug")),
            Case("long", lambda test: None, "", quick=()),
            Case("traced", lambda test: None, "", kernels=("stock",)),
        ]), Subject("kunit", "one", "", [Case("suites", lambda test: None, "", kernels=("debug",), quick=("debug",))])]

        def names(kernel: str, quick: bool) -> list[str]:
            return [case.name for found in fit(every, kernel, quick) for case in found.cases]

        self.assertEqual(names("stock", quick=False), ["both", "long", "traced"])
        self.assertEqual(names("stock", quick=True), ["both", "traced"])
        self.assertEqual(names("debug", quick=False), ["both", "long", "suites"])
        self.assertEqual(names("debug", quick=True), ["both", "suites"])

    def test_every_selftest_file_says_what_it_tests(self) -> None:
        for found in load_subjects(paths.CHECKOUT / "selftests"):
            self.assertTrue(found.summary, found.name)
            self.assertIn(found.topology, MACHINES)
            for case in found.cases:
                self.assertTrue(case.summary, f"{found.name}.{case.name}")


class Report(unittest.TestCase):
    def run_with(self, outcomes: list[Outcome], jobs: int = 1, subjects: int = 1, flavour: str = "stock",
                 quick: bool = False) -> tuple[bool, list[str]]:
        chosen = []
        for number in range(subjects):
            found = subject(f"map{number}", *(f"t{index}" for index in range(len(outcomes))))
            chosen.append((found, found.cases))
        output = io.StringIO()
        with (mock.patch.object(Runner, "run_case", side_effect=outcomes * subjects),
              mock.patch.object(Runner, "_look_for_leaks", return_value=Outcome("ok", [])),
              contextlib.redirect_stdout(output)):
            good = selftest_pool.run(mock.Mock(flavour=flavour), "ours", chosen, jobs, quick)
        return good, output.getvalue().splitlines()

    def test_ends_with_one_line_of_counts(self) -> None:
        good, lines = self.run_with([Outcome("ok", []), Outcome("not ok", ["why\nand how"]),
                                     Outcome("skip", [], "SKIP no disk")])
        self.assertFalse(good)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 1 skipped")
        self.assertEqual(sum(" passed, " in line for line in lines), 1)
        self.assertIn("    # and how", lines)
        self.assertEqual(summary.failures("selftests", "\n".join(lines)),
                         ["# FAILED map0.t1:", "# FAILED   why", "# FAILED   and how"])
        self.assertIn("    ok 3 t2 # SKIP no disk", lines)
        self.assertIn("not ok 1 map0", lines)

    def test_all_passed(self) -> None:
        good, lines = self.run_with([Outcome("ok", [])])
        self.assertTrue(good)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 0 skipped")

    def test_side_by_side_each_subject_reports_in_one_piece(self) -> None:
        good, lines = self.run_with([Outcome("ok", [])] * 3, jobs=2, subjects=5)
        self.assertTrue(good)
        self.assertEqual(lines[-1], "15 passed, 0 failed, 0 skipped")
        ends = [index for index, line in enumerate(lines) if line.startswith("ok ")]
        self.assertEqual([lines[index].split()[1] for index in ends], ["1", "2", "3", "4", "5"])
        begins = [index for index, line in enumerate(lines) if "# Subtest:" in line]
        for begin, end in zip(begins, ends, strict=True):
            self.assertEqual(lines[begin].split()[-1], lines[end].split()[-1])

    def test_a_worker_that_dies_is_a_failure(self) -> None:
        with mock.patch.object(Runner, "run_subject", side_effect=ValueError), mock.patch("threading.excepthook"):
            good, lines = self.run_with([Outcome("ok", [])])
        self.assertFalse(good)
        self.assertEqual(lines[-1], "0 passed, 1 failed, 0 skipped")

    def test_the_debug_kernel_is_asked_for_leaks(self) -> None:
        _, lines = self.run_with([Outcome("ok", [])], subjects=3, flavour="debug")
        self.assertEqual(sum("memory_leaks" in line for line in lines), 3)
        _, lines = self.run_with([Outcome("ok", [])], subjects=3, flavour="debug", quick=True)
        self.assertEqual(sum("memory_leaks" in line for line in lines), 1)


class Machines(unittest.TestCase):
    def test_a_machine_that_does_not_come_up_fails_the_case(self) -> None:
        found = subject("map", "one")
        runner = Runner(mock.Mock(flavour="stock"), "ours", lambda text: None)
        with mock.patch.object(Runner, "lab", side_effect=CommandFailed("server: timed out")):
            outcome = runner.run_case(found, found.cases[0])
        self.assertEqual((outcome.verdict, outcome.notes),
                         ("not ok", ["machines did not boot: server: timed out"]))


    def try_case(self, *attempts: Attempt, quick: bool = True) -> tuple[Outcome, Runner]:
        found = subject("map", "one")
        runner = Runner(mock.Mock(flavour="stock"), "ours", lambda text: None, quick)
        with mock.patch.object(Runner, "_attempt", side_effect=attempts):
            return runner.run_case(found, found.cases[0]), runner

    def test_what_fails_is_tried_again_in_the_quick_run_and_that_is_said(self) -> None:
        outcome, runner = self.try_case(Attempt(["late"]), Attempt([]))
        self.assertEqual((outcome.verdict, runner.second_tries), ("ok", ["map.one:\n  late"]))
        outcome, runner = self.try_case(Attempt(["late"]), Attempt(["late again"]))
        self.assertEqual((outcome.verdict, outcome.notes, runner.second_tries), ("not ok", ["late again"], []))
        outcome, runner = self.try_case(Attempt(["late"]), quick=False)
        self.assertEqual((outcome.verdict, runner.second_tries), ("not ok", []))

    def test_what_a_kernel_reported_is_not_tried_again(self) -> None:
        outcome, runner = self.try_case(Attempt(["BUG"], final=True))
        self.assertEqual((outcome.verdict, runner.second_tries), ("not ok", []))

    def test_wrong_data_is_no_matter_of_time(self) -> None:
        def case_of(check: Callable[[int, None, str], None]) -> Case:
            return Case("one", lambda test: check(1, None, "first wrong byte"), "")

        for check, final in ((Test.equal, False), (Test.intact, True)):
            node = mock.Mock(slow=1.0, known_reports=[])
            node.end_jobs.return_value = node.call_within.return_value = []
            node.dmesg_check.return_value = []
            node.log_since.return_value = []
            runner = Runner(mock.Mock(flavour="stock"), "ours", lambda text: None)
            found = case_of(check)
            with mock.patch.object(Runner, "lab", return_value=mock.Mock(nodes=[node])):
                attempt = runner._attempt(subject("map", "one"), found)
            self.assertEqual((len(attempt.notes), attempt.final), (2, final))


class Expectations(unittest.TestCase):
    def test_errno(self) -> None:
        with Test.expect_errno(2):
            raise OSError(2, "no such file")
        with self.assertRaises(AssertionError), Test.expect_errno(2):
            pass
        with self.assertRaises(AssertionError), Test.expect_errno(2):
            raise OSError(5, "io")


class Trouble(unittest.TestCase):
    def test_kernel_messages(self) -> None:
        for line in ("WARNING: CPU: 0 PID: 1 at fs/x.c:1", "BUG: KASAN: slab-use-after-free",
                     "refcount_t: underflow; use-after-free.", "INFO: task fio:1 blocked for more",
                     "INFO: possible circular locking dependency detected", "Call Trace:",
                     "Oops: general protection fault", "rust_kernel: panicked at x.rs",
                     "watchdog: BUG: soft lockup - CPU#0 stuck"):
            self.assertIsNotNone(TROUBLE.search(line), line)
        for line in ("rnbd_client: map_device: unknown option", "I/O error, dev rnbd0, sector 0",
                     "rtrs_core: loading out-of-tree module taints kernel."):
            self.assertIsNone(TROUBLE.search(line), line)

    def test_a_machine_that_stood_still(self) -> None:
        stall = ["rcu: INFO: rcu_preempt self-detected stall on CPU",
                 "rcu: \t(t=6055 jiffies g=1289 q=4 ncpus=2)",
                 "rcu: rcu_preempt kthread starved for 6052 jiffies! g1289 f0x0 ->state=R ->cpu=0",
                 "rcu: RCU grace-period kthread stack dump:", "Call Trace:", " <TASK>"]
        self.assertTrue(troubled(stall)[0])
        self.assertTrue(stood_still(stall))
        # Its thread ran: one CPU does not come to an end.
        self.assertFalse(stood_still(stall[:2]))
        self.assertFalse(stood_still([*stall, "BUG: KASAN: slab-use-after-free"]))

    RACE = ["------------[ cut here ]------------",
            "WARNING: drivers/infiniband/sw/rxe/rxe_task.c:289 at rxe_sched_task+0x9c/0xb0 "
            "[rdma_rxe], CPU#0: kworker/u8:1/34", "Call Trace:", " <TASK>",
            "---[ end trace 0000000000000000 ]---"]

    def test_a_known_report_of_another_driver_is_no_failure(self) -> None:
        lines = ["before", *self.RACE, "after"]
        trouble, known = troubled(lines + lines)
        self.assertEqual(trouble, [])
        self.assertEqual(len(known), 2)

    def test_only_the_c_client_may_warn_on_unload(self) -> None:
        warning = [line.replace("drivers/infiniband/sw/rxe/rxe_task.c:289 at rxe_sched_task+0x9c/0xb0 ",
                                "rnbd/rnbd-clt.c:1789 at rnbd_client_exit+0x11f/0xbb0 ") for line in self.RACE]
        self.assertEqual(troubled(warning)[0], [])
        self.assertTrue(troubled([line.replace("rnbd-clt.c", "device.rs") for line in warning])[0])

    def test_what_comes_with_a_known_report_is_a_failure(self) -> None:
        other = "BUG: KASAN: slab-use-after-free in rxe_sched_task"
        for lines in ([*self.RACE[:3], other, *self.RACE[3:]], [*self.RACE, other],
                      self.RACE[:-1], [line.replace("rxe_task", "rxe_pool") for line in self.RACE]):
            trouble, _ = troubled(lines)
            self.assertTrue(trouble, lines)

    def test_allocations_that_shall_fail(self) -> None:
        failed = ["python3: vmalloc error: size 4096, vm_struct allocation failed, mode:0xdc0",
                  "CPU: 0 UID: 0 PID: 1 Comm: python3", "Call Trace:", " <TASK>",
                  " vzalloc_noprof+0x7e/0x90", " </TASK>"]
        self.assertTrue(troubled(failed)[0])
        self.assertEqual(troubled(failed * 2, allocations_fail=True)[0], [])
        # The debug kernel's stacks name what else lies on them.
        deep = [*failed[:4], *([" ? lock_is_held_type+0x73/0xf0"] * 100), *failed[4:]]
        self.assertEqual(troubled(deep, allocations_fail=True)[0], [])
        other = "BUG: KASAN: slab-use-after-free"
        self.assertIn(other, troubled([*failed, other], allocations_fail=True)[0])
        # An end of the stack is expected, but what comes without one is looked at.
        self.assertTrue(troubled([*failed[:3], other], allocations_fail=True)[0])


class KernelImage(unittest.TestCase):
    def test_payload_of_a_boot_image(self) -> None:
        image = bytearray(0x400)
        image[0x1F1] = 1
        image[0x202:0x206] = b"HdrS"
        struct.pack_into("<II", image, 0x248, 16, 5)
        image += bytes(16) + b"hello" + b"more"
        self.assertEqual(vm_kernel.payload(bytes(image)), b"hello")
        self.assertEqual(vm_kernel.payload(b"short"), b"")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: GPL-2.0
"""The KUnit suites that are built into a test build of the modules."""

from __future__ import annotations

import re

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import rnbd

TOPOLOGY = "one"

RESULTS = "/sys/kernel/debug/kunit"
RESULT = re.compile(r"^ {4}(?P<not>not )?ok \d+ (?P<name>\S+)(?: # SKIP (?P<why>.*))?$",
                    re.MULTILINE)


# Those of `bindings`; what is above it is tested on the host and by the other subjects.
SUITES = {"rnbd_c_caller", "rnbd_chunk", "rnbd_crypto", "rnbd_gate", "rnbd_log", "rnbd_noted_slot", "rnbd_params",
          "rnbd_rcu", "rnbd_rdma_batch", "rnbd_rdma_completion", "rnbd_rdma_connection",
          "rnbd_rdma_memory", "rnbd_rdma_receive",
          "rnbd_request_table", "rnbd_scatterlist", "rnbd_socket_address", "rnbd_state_cell", "rnbd_static_key",
          "rnbd_sysfs",
          "rnbd_wait", "rnbd_workqueue"}


@case(timeout=120, kernels=("debug",), quick=("debug",), module_sets=("ours",))
def test_suites(t: Test) -> None:
    """Every case of every suite passes, none is skipped, and each module brought its suites."""
    rnbd.use_set(t.client, "kunit")
    t.defer(rnbd.use_set, t.client, t.modules)
    before = set(t.client.listdir(RESULTS))
    rnbd.load(t)
    suites = sorted(set(t.client.listdir(RESULTS)) - before)
    t.equal(suites, sorted(SUITES), "suites")
    wrong = []
    passed = 0
    for suite in suites:
        text = t.client.read(f"{RESULTS}/{suite}/results")
        results = list(RESULT.finditer(text))
        t.check(results, f"{suite} has no results:\n{text}")
        for result in results:
            if result["not"] or result["why"]:
                wrong.append(f"{suite}.{result['name']}")
            else:
                passed += 1
        if any(name.startswith(f"{suite}.") for name in wrong):
            wrong.append(text)
    t.check(not wrong, "failed or skipped: " + "\n".join(wrong))
    t.say(f"{passed} cases of {len(suites)} suites passed")

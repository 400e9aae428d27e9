# SPDX-License-Identifier: GPL-2.0
"""Users of our transport that are written in C: the kernel's rnbd-client and rnbd-server, and some that do wrong.

The kernel's rnbd-client and rnbd-server are unchanged. They run on rtrs_client_c and rtrs_server_c, with each other,
and with our ends and C's.
"""

from __future__ import annotations

import errno

from lab import c_users
from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm import wait_until
from lab.vm_node import Node
from lib import disks
from lib import rnbd
from lib.interplay import exercise
from lib.interplay import polled
from lib.interplay import server_ends_first
from lib.interplay import use
from lib.rnbd import Device
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"
PARAMETERS = "/sys/module/{}/parameters"
# Cases whose modules write lists by hand: the debug kernel sees a write beyond the end of a list.
WRITES_LISTS = ("lengths",)


@case(timeout=300, module_sets=("ours",))
def test_rnbd_with_our_server(t: Test) -> None:
    """C's rnbd-client over our transport with our server: data, all operations, polling, the end of the server."""
    use(t, c_users.MODULES, "ours", "Y")
    exercise(t)
    polled(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_rnbd_with_the_c_server(t: Test) -> None:
    """The same with C's server, which invalidates always."""
    use(t, c_users.MODULES, "c", "Y")
    exercise(t)
    polled(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_rnbd_with_trusting_servers(t: Test) -> None:
    """The same with both servers, which invalidate nothing."""
    for server in ("ours", "c"):
        use(t, c_users.MODULES, server, "N")
        exercise(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_rnbd_server_with_our_client(t: Test) -> None:
    """C's rnbd-server over our transport with our client."""
    use(t, "ours", c_users.MODULES, "Y")
    exercise(t)
    polled(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_rnbd_server_with_the_c_client(t: Test) -> None:
    """The same with C's client."""
    use(t, "c", c_users.MODULES, "Y")
    exercise(t)
    polled(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_rnbd_at_both_ends(t: Test) -> None:
    """C's rnbd-client and rnbd-server, both over our transport."""
    use(t, c_users.MODULES, c_users.MODULES, "Y")
    exercise(t)
    polled(t)
    server_ends_first(t)


@case(timeout=300, module_sets=("ours",), quick=())
def test_rnbd_server_that_trusts(t: Test) -> None:
    """C's rnbd-server over our transport, which invalidates nothing, with all clients."""
    for client in ("ours", "c", c_users.MODULES):
        use(t, client, c_users.MODULES, "N")
        exercise(t)


def on_both_links(t: Test, client: str, server: str) -> Device:
    """A device of such a client with a path over each link."""
    use(t, client, server, "Y")
    device = rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{address}" for address in t.server.addresses])
    rnbd.configure(t, reconnect_delay_ms=1000)
    return device


def lose_paths(t: Test, client: str, server: str) -> None:
    """Under IO each path is lost in turn and comes back; then both are lost, and all devices are opened again."""
    device = on_both_links(t, client, server)
    # When the session is back they are opened at once, by requests of the service connection.
    others = [rnbd.map_device(t, path) for path in (disks.WITHOUT_DISCARD, disks.LARGE_BLOCKS)]
    stream = Stream(t, device)
    for link in (0, 1, 0):
        path = rnbd.path_over(t, link)
        t.client.write(f"{path}/disconnect", "1")
        stream.go_on()
        rnbd.reconnect(t, path)
        t.client.wait_for(f"{path}/state", matches="^connected", timeout=40)
        stream.go_on()
    t.say(f"each path was lost and came back: {verified(stream.stop())}")
    for link in (0, 1):
        t.client.write(f"{rnbd.path_over(t, link)}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    for link in (0, 1):
        rnbd.reconnect(t, rnbd.path_over(t, link))
    for mapped in (device, *others):
        t.client.wait_for(f"{mapped.sysfs}/state", matches="open", timeout=40)
        rnbd.works(t, mapped)
        mapped.unmap()
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)


@case(timeout=300, module_sets=("ours",), quick=())
def test_failover_with_our_server(t: Test) -> None:
    """C's rnbd-client loses paths of our transport under IO, with our server."""
    lose_paths(t, c_users.MODULES, "ours")


@case(timeout=300, module_sets=("ours",), quick=())
def test_failover_with_the_c_server(t: Test) -> None:
    """The same with C's server."""
    lose_paths(t, c_users.MODULES, "c")


@case(timeout=300, module_sets=("ours",), quick=())
def test_failover_to_the_c_rnbd_server(t: Test) -> None:
    """C's rnbd-client and rnbd-server over our transport lose paths under IO."""
    lose_paths(t, c_users.MODULES, c_users.MODULES)


@case(timeout=300, module_sets=("ours",), quick=())
def test_failover_of_our_client_to_the_c_rnbd_server(t: Test) -> None:
    """The same with our client. C's over C's transport fails requests when one of two paths goes."""
    lose_paths(t, "ours", c_users.MODULES)


@case(timeout=300, module_sets=("ours",))
def test_unload(t: Test) -> None:
    """Modules in use stay, C's rnbd-client unmaps what is mapped when it is unloaded, and all can be loaded again."""
    for _ in range(2):
        use(t, c_users.MODULES, "ours", "Y")
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
        rnbd.works(t, device)
        for name in ("rtrs_client_c", "rtrs_client"):
            with t.expect_errno(errno.EAGAIN):
                t.client.module_unload(name)
        t.client.module_unload("rnbd_client", "rtrs_client_c", "rtrs_client", "rtrs_core")
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)


@case(timeout=300, module_sets=("ours",))
def test_unload_the_server(t: Test) -> None:
    """Modules in use stay, C's rnbd-server closes its sessions when it is unloaded, and all can be loaded again."""
    for _ in range(2):
        use(t, "ours", c_users.MODULES, "Y")
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
        rnbd.works(t, device)
        for name in ("rtrs_server_c", "rtrs_server"):
            with t.expect_errno(errno.EAGAIN):
                t.server.module_unload(name)
        t.server.module_unload("rnbd_server", "rtrs_server_c", "rtrs_server")
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=40)
        device.unmap()


@case(module_sets=("ours",))
def test_tracepoints_of_the_server(t: Test) -> None:
    """The tracepoints of C's rnbd-server, which look into what it has of an operation."""
    use(t, "ours", c_users.MODULES, "Y")
    device = rnbd.map_device(t, disks.PLAIN)
    tracing = "/sys/kernel/tracing"
    t.server.run(f"mountpoint -q {tracing} || mount -t tracefs tracefs {tracing}; echo >{tracing}/trace")
    t.server.write(f"{tracing}/events/rnbd_srv/enable", "1")
    t.defer(t.server.write, f"{tracing}/events/rnbd_srv/enable", "0")
    rnbd.works(t, device)
    seen = t.server.read(f"{tracing}/trace", timeout=60)
    for direction in ("READ", "WRITE"):
        t.check(f"process_rdma: I/O req: sess: sess, type: {direction}," in seen, f"no {direction} in {seen}")


@case(module_sets=("ours",))
def test_names_of_c_modules_are_taken(t: Test) -> None:
    """The functions have the names of C's, whose modules have the names of ours: one or the other is loaded."""
    use(t, c_users.MODULES, "ours", "Y")
    symbols = t.client.read("/proc/kallsyms", timeout=60).split("\n")
    owners = {line.split()[2]: line.split()[3] for line in symbols if len(line.split()) == 4}
    for name in ("rtrs_clt_open", "rtrs_clt_request", "sockaddr_to_str"):
        t.equal(owners.get(name), "[rtrs_client_c]", f"the module of {name}")
    t.equal(owners.get("rnbd_queue_rq"), "[rnbd_client]", "the module of a function of C's rnbd-client")


def run(node: Node, module: str, what: str) -> None:
    """Have a module run one of its cases."""
    folder = PARAMETERS.format(module)
    try:
        node.write(f"{folder}/run", what)
    except OSError as error:
        said = node.read(f"{folder}/failed")
        raise AssertionError(f"{what}: {said or errno.errorcode.get(error.errno or 0)}") from None


def quick_kernels(name: str) -> tuple[str, ...]:
    """The kernels on which `make test` runs a case of a module that calls us."""
    return ("stock", "debug") if name in WRITES_LISTS else ("stock",)


def caller(name: str, what: str) -> None:
    """A test that has the module rtrs_caller run one of its cases."""

    def test(t: Test) -> None:
        use(t, c_users.MODULES, "ours", "Y")
        t.client.modules_load("rtrs_caller")
        t.defer(t.client.module_unload, "rtrs_caller")
        run(t.client, "rtrs_caller", f"{name} ip:{t.server.address}")
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/caller", gone=True)

    test.__doc__ = f"A caller in C: {what}."
    globals()[f"test_caller_{name}"] = case(module_sets=("ours",), quick=quick_kernels(name))(test)


caller("messages", "requests by either kind of connection, and what the server offers")
caller("waiting", "permits that are waited for")
caller("close_waits", "closing waits until all permits are given back")
caller("addresses", "addresses to text and back")
caller("double_put", "a permit that is given back twice, or is none, changes nothing")
caller("permit_of_another", "a permit of another session is refused, and stays out in its own")
caller("busy", "a permit whose request is in flight cannot be used or given back")
caller("lengths", "wrong lengths, lists and callbacks are refused, and the permit is as good as before")
caller("closed", "a session that is closed is named again")
caller("opening", "sessions that cannot be opened")


GROUP_CALLER, KV_SERVER = "rtrs_group_caller", "rtrs_kv_server"


def with_groups(t: Test) -> str:
    """Have the module rtrs_group_caller on the client and the sample's server; what its cases are told of servers."""
    for node in (t.client, t.server):
        rnbd.use_set(node, c_users.MODULES)
        t.defer(rnbd.use_set, node, t.modules)
        rnbd.load_exactly(node, {})
        t.defer(node.modules_unload_all)
    # A case has up to five sessions at a time.
    t.server.modules_load(KV_SERVER, rtrs_server=f"sess_queue_depth=64 ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}")
    t.client.modules_load(GROUP_CALLER, rtrs_client=f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}")
    return " ".join(f"ip:{address}" for address in t.server.addresses[:2])


def group_caller(name: str, what: str) -> None:
    """A test that has the module rtrs_group_caller run one of its cases."""

    def test(t: Test) -> None:
        run(t.client, GROUP_CALLER, f"{name} {with_groups(t)}")
        t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions that are left")
        t.client.module_unload(GROUP_CALLER, "rtrs_group_c", "rtrs_client_c", "rtrs_group", "rtrs_client")

    test.__doc__ = f"A user of groups in C: {what}."
    globals()[f"test_group_{name}"] = case(module_sets=("ours",), quick=quick_kernels(name))(test)


group_caller("data", "writes of all kinds of length to both members, and reads from each")
group_caller("states", "a member is left out, has exactly the writes on its list that it has missed, and catches up")
group_caller("each", "a write with a message for each member")
group_caller("policies", "reads go to the members by the policy, and not to those that are excepted")
group_caller("close_waits", "closing waits until all permits are given back")
group_caller("double_put", "a permit that is given back twice, or is none, changes nothing")
group_caller("foreign", "permits of another group, and members that there are not, are refused")
group_caller("busy", "a permit whose request is in flight cannot be used or given back")
group_caller("lengths", "wrong lengths, lists and callbacks are refused, and the permit is as good as before")
group_caller("closed", "a group that is closed is named again")
group_caller("opening", "groups that cannot be made leave the sessions as they were; members are no sessions any more")


@case(timeout=300, module_sets=("ours",))
def test_group_loses_a_member(t: Test) -> None:
    """A user of groups in C: a member whose path is lost is reported once, with exactly the writes that it has not
    confirmed; it joins again when the path is back."""
    addresses = with_groups(t)
    folder = PARAMETERS.format(GROUP_CALLER)
    job = t.client.start_job(f"echo lose {addresses} >{folder}/run", timeout=120)
    paths = f"{rnbd.CLIENT_SESSIONS}/group-1/paths"
    wait_until(lambda: bool(t.client.listdir(paths)), 60 * t.client.slow, "a path of the second member")
    path = rnbd.client_path(t, "group-1")
    # Some writes have been confirmed by it.
    t.client.wait_for(f"{path}/stats/rdma", matches=r"^\d+ \d+ [1-9]\d+ ", timeout=60)
    t.client.write(f"{path}/disconnect", "1")
    rnbd.reconnect(t, path)
    result = job.wait()
    t.equal(result.rc, 0, f"the case of the module: {t.client.read(f'{folder}/failed')}")
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions that are left")


def with_server_in_c(t: Test, mode: str, names: tuple[str, ...]) -> None:
    """Cases of rtrs_srv_asker with rtrs_srv_caller, then what opens no listener, and unloading."""
    for node in (t.client, t.server):
        rnbd.use_set(node, c_users.MODULES)
        t.defer(rnbd.use_set, node, t.modules)
        rnbd.load_exactly(node, {})
    parameters = f"{rnbd.fewer_buffers(t)}always_invalidate={mode} ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}"
    t.server.modules_load("rtrs_srv_caller", rtrs_server=parameters)
    t.client.modules_load("rtrs_srv_asker", rtrs_client=f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}")
    folder = PARAMETERS.format("rtrs_srv_caller")
    for number, name in enumerate(names, 1):
        run(t.client, "rtrs_srv_asker", f"{name} ip:{t.server.address}")
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/caller", gone=True)
        t.equal(t.server.read(f"{folder}/failed").strip(), "", f"{name}: what the server saw")
        for what in ("connected", "disconnected"):
            t.equal(t.server.read(f"{folder}/{what}").strip(), str(number), f"{name}: sessions seen {what}")
    run(t.server, "rtrs_srv_caller", "opening")
    for node in (t.client, t.server):
        node.modules_unload_all()


@case(module_sets=("ours",))
def test_server_caller(t: Test) -> None:
    """A server in C: messages and data, wrong responses, clients that it refuses, and callbacks that sleep."""
    with_server_in_c(t, "Y", ("data", "wrong", "refused", "sleep"))


@case(module_sets=("ours",), quick=())
def test_server_caller_that_trusts(t: Test) -> None:
    """The same, of which nothing is invalidated."""
    with_server_in_c(t, "N", ("data", "wrong", "sleep"))

# SPDX-License-Identifier: GPL-2.0
"""Groups: a write goes to two servers at once, and one that fails is known by what it has missed."""

from __future__ import annotations

import errno
from collections.abc import Callable

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import cable
from lib import guest_kv_group
from lib import rnbd

TOPOLOGY = "three"
MEMORY_MIB = 512
GROUP, SERVER = "rtrs_kv_group", "rtrs_kv_server"
FOLDER = guest_kv_group.FOLDER
PAGE = 4096
# What sends to soft-RoCE's device; what would map data for it, copy it once more, and register it.
SENDING = "rdma_rxe:rxe_post_send"
NOT_CALLED = ("ib_core:ib_dma_virt_map_sg", "rtrs_core:rnbd_helper_sg_copy_to_buffer", "rdma_rxe:rxe_reg_fast_mr")


def servers(t: Test) -> list[Node]:
    """The machines that are members of the group, by the numbers of the members."""
    return t.nodes[1:]


def load_server(t: Test, node: Node, rtrs_server: str = "") -> None:
    """Have the server's half of the sample on a machine."""
    text = f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS} {rtrs_server or rnbd.fewer_buffers(t)}".rstrip()
    node.modules_load(SERVER, rtrs_server=text)


def load_group(t: Test) -> None:
    """Have the group's half on the client."""
    addresses = ",".join(f"ip:{node.address}" for node in servers(t))
    t.client.modules_load(GROUP, rtrs_client=f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS} connect_timeout_ms=120000",
                          **{GROUP: f"servers={addresses}"})
    for member in range(len(servers(t))):
        for name, value in {"hb_interval_ms": 200, "hb_missed_max": 5, "reconnect_delay_ms": 1000}.items():
            t.client.write(f"{rnbd.CLIENT_SESSIONS}/kv-group-{member}/{name}", str(value))


def load(t: Test, *rtrs_servers: str) -> None:
    """Have all of it, with these parameters of the transport by server; unloaded when the test is over."""
    for node in t.nodes:
        node.modules_unload_all()
        t.defer(node.modules_unload_all)
    for number, node in enumerate(servers(t)):
        load_server(t, node, rtrs_servers[number] if rtrs_servers else "")
    load_group(t)


def put(t: Test, seed: int, length: int = 1000, count: int = 1) -> None:
    """Write so many values, of which the last one is that of the seed."""
    t.client.call(guest_kv_group.put, length=length, seed=seed, count=count)


def members(t: Test) -> list[str]:
    """The members' lines, without their numbers."""
    lines = t.client.read(f"{FOLDER}/members").splitlines()
    return [line.partition(" ")[2].strip() for line in lines]


def has(t: Test, member: int, seed: int, length: int, when: str) -> None:
    """A member has the pattern of this seed: reads go to it, as long as it is in sync."""
    t.client.write(f"{FOLDER}/read_policy", str(member))
    wrong = t.client.call(guest_kv_group.difference, length=length, seed=seed)
    t.intact(wrong, "", f"value of member {member}, {length} bytes, {when}")


def all_have(t: Test, seed: int, length: int, when: str) -> None:
    """Every member has the pattern of this seed."""
    for member in range(len(servers(t))):
        has(t, member, seed, length, when)


def path(t: Test, member: int) -> str:
    """The folder of the path of a member's session."""
    paths = f"{rnbd.CLIENT_SESSIONS}/kv-group-{member}/paths"
    return f"{paths}/{t.client.listdir(paths)[0]}"


def writes(t: Test, member: int) -> int:
    """How many writes a member's path has sent."""
    return int(t.client.read(f"{path(t, member)}/stats/rdma").split()[2])


def add_path(t: Test, member: int) -> None:
    """Give a member's session one more path, by IPv6."""
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/kv-group-{member}/add_path", f"ip:{servers(t)[member].address6}")


def is_back(t: Test, member: int) -> None:
    """Wait until a member's path is up."""
    t.client.wait_for(f"{path(t, member)}/state", matches="^connected", timeout=60)


def is_lost(t: Test, member: int) -> None:
    """Wait until a member's path is down."""
    t.client.wait_for(f"{path(t, member)}/state", matches="disconnected", timeout=60)


def repair(t: Test, member: int) -> None:
    """A member joins again, and is brought what it has missed."""
    t.client.write(f"{FOLDER}/rejoin", str(member))
    t.client.write(f"{FOLDER}/repair", str(member))


def cut(t: Test, member: int) -> None:
    """Drop everything between the client and a member."""
    cable.change(t, servers(t)[member], [0], "loss 100%", "loss 0%")
    cable.change(t, t.client, [member], "loss 100%", "loss 0%")


def mend(t: Test, member: int) -> None:
    """Let that link carry again."""
    cable.have(servers(t)[member], [0], "loss 0%")
    cable.have(t.client, [member], "loss 0%")


@case(quick=(), module_sets=("ours",))
def test_all_members_get_a_write(t: Test) -> None:
    """A value that is put is got from each server, whatever its length; each gets one request for it."""
    load(t)
    t.equal(members(t), ["in-sync", "in-sync"], "members")
    lengths = (1, PAGE - 1, PAGE)
    before = [writes(t, member) for member in (0, 1)]
    for seed, length in enumerate(lengths):
        put(t, seed, length)
        all_have(t, seed, length, "after it was put")
    after = [writes(t, member) for member in (0, 1)]
    t.equal([after[0] - before[0], after[1] - before[1]], [len(lengths)] * 2, "writes sent to each member")
    t.equal(members(t), ["in-sync", "in-sync"], "members afterwards")


@case(quick=(), module_sets=("ours",))
def test_reads_go_by_the_policy(t: Test) -> None:
    """Reads go to the members in turn, to the fastest one, or to the one that is named, as `read_policy` says."""
    load(t)
    put(t, 1)

    def reads(policy: str, count: int) -> list[int]:
        t.client.write(f"{FOLDER}/read_policy", policy)
        paths = [f"{path(t, member)}/stats/rdma" for member in (0, 1)]
        before = [int(t.client.read(name).split()[0]) for name in paths]
        for _ in range(count):
            t.intact(t.client.call(guest_kv_group.difference, length=1000, seed=1), "", "value")
        return [int(t.client.read(name).split()[0]) - old for name, old in zip(paths, before, strict=True)]

    # A read of the file is two requests: one with the value, one that finds its end.
    in_turn = reads("round-robin", 6)
    t.equal(in_turn[0], in_turn[1], f"reads of both members in turn, {in_turn}")
    for member in (0, 1):
        t.equal(reads(str(member), 3)[1 - member], 0, f"reads of the other member than {member}")
    fastest = reads("least-latency", 6)
    t.check(max(fastest) > 0, f"reads of the fastest member: {fastest}")
    for wrong in ("2000", "fast"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{FOLDER}/read_policy", wrong)


@case(quick=(), module_sets=("ours",))
def test_members_with_different_limits(t: Test) -> None:
    """The group's limits are the least of its members': queue depth, and size of a request."""
    load(t, "sess_queue_depth=8", "sess_queue_depth=64 max_chunk_size=65536")
    limits = t.client.read(f"{FOLDER}/limits").split()
    # One of the chunks is for service requests.
    t.equal(int(limits[0]), 7, f"tags of the group, {limits}")
    t.check(0 < int(limits[2]) < 65536, f"bytes of a request, {limits}")
    put(t, 20, PAGE, count=20)
    all_have(t, 20, PAGE, "after more writes than tags")


@case(timeout=300, module_sets=("ours",), quick=())
def test_link_of_a_member_is_cut(t: Test) -> None:
    """A member without a link has exactly the writes on its list that it has not confirmed; the other goes on; when
    the link is mended and the list is worked off, both have the same value."""
    cable.prepare(t)
    load(t)
    put(t, 10, count=5)
    t.equal(members(t), ["in-sync", "in-sync"], "members")
    cut(t, 1)
    # The first one waits for the lost member until that is noticed; the others are not sent to it.
    put(t, 20, count=4)
    t.equal(members(t), ["in-sync", "behind 6-9"], "members when the link is cut")
    has(t, 0, 20, 1000, "when the link of the other member is cut")
    # A read does not go to a member that is behind, even if it is named.
    has(t, 1, 20, 1000, "read of the other one in its place")
    is_lost(t, 1)
    with t.expect_errno(errno.ECONNABORTED):
        t.client.write(f"{FOLDER}/rejoin", "1")
    mend(t, 1)
    is_back(t, 1)
    put(t, 30)
    t.equal(members(t), ["in-sync", "behind 6-10"], "members when the link is mended")
    t.client.write(f"{FOLDER}/rejoin", "1")
    put(t, 31)
    t.equal(members(t), ["in-sync", "catching-up 6-10"], "members after one more write")
    t.client.write(f"{FOLDER}/repair", "1")
    t.equal(members(t), ["in-sync", "in-sync"], "members after the repair")
    all_have(t, 31, 1000, "after the repair")
    put(t, 40)
    all_have(t, 40, 1000, "after one more write")


@case(timeout=600, module_sets=("ours",), quick=())
def test_write_fails_over(t: Test) -> None:
    """A path of a member is lost while a write is in flight on it: the member's other path takes the write over, the
    group is not told, and both members have the value. The data is on the group's page, which both paths have."""
    cable.prepare(t)
    load(t)
    folders = [path(t, 0)]
    add_path(t, 0)
    paths = f"{rnbd.CLIENT_SESSIONS}/kv-group-0/paths"
    folders += [f"{paths}/{name}" for name in t.client.listdir(paths) if f"{paths}/{name}" != folders[0]]
    t.equal(len(folders), 2, f"paths of a member: {folders}")

    def connected(folder: str) -> None:
        t.client.wait_for(f"{folder}/state", matches="^connected", timeout=60)

    def taken_over() -> int:
        """Writes that a path has taken over from one that failed; the sixth number."""
        return sum(int(t.client.read(f"{folder}/stats/rdma").split()[5]) for folder in folders)

    # Slow enough that a write is in flight at any time.
    cable.change(t, t.client, [0], "delay 50ms", "delay 0ms")
    count, seed, lost = 20, 0, 0
    wanted = t.rounds(1, 5)
    while taken_over() < wanted:
        t.check(lost < 20 * wanted, f"a path was lost {lost} times under writes, {taken_over()} writes were taken over")
        for folder in folders:
            connected(folder)
        seed += count
        putting = t.client.start_call(120, guest_kv_group.put, length=PAGE, seed=seed, count=count)
        t.client.wait_for(f"{folders[lost % 2]}/stats/rdma", matches=r"^\d+ \d+ \d+ \d+ [1-9]", timeout=30)
        t.client.write(f"{folders[lost % 2]}/disconnect", "1")
        putting.wait()
        rnbd.reconnect(t, folders[lost % 2])
        lost += 1
        t.equal(members(t), ["in-sync", "in-sync"], f"members after a path was lost {lost} times")
        all_have(t, seed, PAGE, f"after a path was lost {lost} times")
    t.say(f"{taken_over()} writes were taken over, a path was lost {lost} times")


@case(quick=(), timeout=300, module_sets=("ours",))
def test_server_of_a_member_is_unloaded(t: Test) -> None:
    """A member whose server is unloaded, and loaded again without its values, joins again and gets what it lacks."""
    load(t)
    put(t, 1, PAGE, count=3)
    node = servers(t)[0]
    node.module_unload(SERVER)
    is_lost(t, 0)
    put(t, 10, PAGE, count=2)
    t.equal(members(t), ["behind 4-5", "in-sync"], "members without a server")
    has(t, 0, 10, PAGE, "read of the other one in its place")
    load_server(t, node)
    is_back(t, 0)
    repair(t, 0)
    t.equal(members(t), ["in-sync", "in-sync"], "members after the repair")
    all_have(t, 10, PAGE, "after the repair")


@case(quick=(), module_sets=("ours",))
def test_all_members_are_lost(t: Test) -> None:
    """Without any member a write fails, and is on no list unless it was sent; a state that does not allow a change
    says so."""
    load(t)
    put(t, 1)
    for wrong, number in (("0", errno.EINVAL), ("2", errno.ENODEV), ("x", errno.EINVAL)):
        with t.expect_errno(number):
            t.client.write(f"{FOLDER}/rejoin", wrong)
    for member, node in enumerate(servers(t)):
        node.module_unload(SERVER)
        is_lost(t, member)
    with t.expect_errno(errno.ECONNABORTED):
        put(t, 2)
    with t.expect_errno(errno.ECONNABORTED):
        t.client.read(f"{FOLDER}/value")
    # No path is up, so it was not sent: no server can have it.
    t.equal(members(t), ["in-sync", "in-sync"], "members of which none has the write")
    for member, node in enumerate(servers(t)):
        load_server(t, node)
        is_back(t, member)
    put(t, 3)
    all_have(t, 3, 1000, "when the servers are back")


@case(kernels=("stock",), module_sets=("ours",), quick=())
def test_data_is_mapped_once(t: Test) -> None:
    """The page of a tag is mapped once for each path of the members, also of a path that comes up later: a write is not
    mapped, not registered, and not copied once more by the transport."""
    load(t)
    t.client.module_unload(GROUP)
    address = servers(t)[0].address
    t.client.modules_load(GROUP, **{GROUP: f"servers=ip:{address},ip:{address}"})
    puts = 50

    def nothing() -> None:
        """The paths are as they are."""

    def lose_path() -> None:
        """A path goes, and comes up again."""
        rnbd.reconnect(t, path(t, 0))
        is_back(t, 0)

    def one_more() -> None:
        """A member gets a second path."""
        add_path(t, 0)

    befores: dict[str, Callable[[], None]] = {"paths that were up when the group was made": nothing,
                                              "a path that came up later": lose_path,
                                              "two paths of a member": one_more}
    for when, before in befores.items():
        before()
        for length in (64, PAGE):
            calls = t.client.call(guest_kv_group.calls_of_put, length=length, count=puts, functions=[
                SENDING, *NOT_CALLED])
            sent = calls.pop(SENDING)
            t.check(sent >= 2 * puts, f"sends of {puts} writes to two members: {sent}, {when}")
            t.equal(calls, dict.fromkeys(NOT_CALLED, 0), f"calls for {puts} writes of {length} bytes, {when}")
    t.equal(members(t), ["in-sync", "in-sync"], "members afterwards")

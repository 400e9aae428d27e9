# SPDX-License-Identifier: GPL-2.0
"""What a virtual machine boots: root image and initramfs of the stock kernel."""

import shutil
from pathlib import Path

from . import cache
from . import cpio
from . import debian
from . import kernel
from . import kmods
from . import run
from .steps import Work

IMAGE_SIZE = "2G"
# Inserted by the initramfs, in an order that depmod gives.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4", "9pnet_virtio", "9p")
GUEST_MODULES = (
    "kernel/drivers/infiniband/core/*", "kernel/drivers/infiniband/sw/rxe/*", "kernel/drivers/infiniband/ulp/*",
    "kernel/drivers/nvme/*", "kernel/drivers/virtio/*", "kernel/drivers/md/dm-*", "kernel/drivers/md/raid1.*",
    "kernel/drivers/block/virtio_blk.*", "kernel/drivers/block/loop.*", "kernel/drivers/block/brd.*",
    "kernel/drivers/block/null_blk/*", "kernel/drivers/block/zram/*", "kernel/drivers/scsi/scsi_mod.*",
    "kernel/drivers/scsi/sd_mod.*", "kernel/drivers/scsi/scsi_debug.*", "kernel/drivers/scsi/virtio_scsi.*",
    "kernel/drivers/net/virtio_net.*", "kernel/drivers/net/dummy.*", "kernel/drivers/net/veth.*",
    "kernel/drivers/net/bonding/*", "kernel/drivers/char/hw_random/virtio-rng.*", "kernel/net/9p/*", "kernel/fs/9p/*",
    "kernel/net/sched/sch_netem.*", "kernel/net/sched/sch_tbf.*", "kernel/net/sched/sch_ingress.*",
    "kernel/net/sched/cls_u32.*", "kernel/net/sched/act_gact.*", "kernel/net/netfilter/*", "kernel/net/ipv4/*",
    "kernel/net/ipv6/*", "kernel/fs/ext4/*", "kernel/fs/xfs/*", "kernel/fs/btrfs/*", "kernel/fs/configfs/*",
    "kernel/fs/overlayfs/*", "kernel/crypto/*", "kernel/lib/*", "kernel/arch/*/crypto/*",
)  # fmt: skip

INIT = """#!/bin/busybox sh
# The least that reaches the root image; the guest's own /host/init does the rest.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
while read -r module; do
	/bin/busybox insmod "/modules/$module" || echo "initramfs: insmod $module failed"
done < /modules/order
tries=0
until [ -b /dev/vda ] || [ $tries -ge 100 ]; do
	/bin/busybox sleep 0.1
	tries=$((tries + 1))
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root || echo "initramfs: no root file system on /dev/vda"
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /root/host ||
	echo "initramfs: no 9p share named host"
for tree in proc sys dev; do
	/bin/busybox mount -o move "/$tree" "/root/$tree"
done
exec /bin/busybox switch_root /root /host/init "$@"
"""


def boot(name: str = kernel.STOCK) -> cache.Artifact:
    """Folder with root.img and initramfs.cpio for a stock kernel."""
    return cache.artifact(
        "boot",
        stock=kernel.stock(name).key,
        guest=debian.guest(kernel.machine(name)).key,
        modules=[BOOT_MODULES, GUEST_MODULES],
        init=INIT,
        size=IMAGE_SIZE,
        recipe=1,
    )


def initramfs(busybox: bytes, modules: Path, order: list[str]) -> bytes:
    """An archive with busybox and the modules `order` (paths below `modules`)."""
    entries = [cpio.directory(name) for name in ("bin", "dev", "modules", "proc", "root", "sys")]
    entries += [cpio.device("dev/console", 5, 1), cpio.file("bin/busybox", busybox, 0o755)]
    entries.append(cpio.file("init", INIT.encode(), 0o755))
    names = [f"{kmods.stem(path)}.ko" for path in order]
    entries.append(cpio.file("modules/order", "".join(f"{name}\n" for name in names).encode()))
    for name, path in zip(names, order, strict=True):
        entries.append(cpio.file(f"modules/{name}", kmods.unpacked(modules / path)))
    return cpio.archive(entries)


def make_root_image(tree: Path, modules: Path, image: Path, log: Path, features: str = "^has_journal") -> None:
    """Makes an ext4 image of `tree`, with `modules` as its /lib/modules.

    Machines open it with snapshot=on, so it needs no journal; of a machine that keeps what it writes, `features` say
    otherwise.
    """
    binds = [
        run.Bind(tree, "/mnt/guest"),
        run.Bind(modules, "/mnt/guest/usr/lib/modules"),
        run.Bind(image.parent, "/mnt/image"),
    ]
    argv = ["mkfs.ext4", "-q", "-F", "-m", "0", "-O", features, "-E", "lazy_itable_init=1", "-L", "guest"]
    argv += ["-d", "/mnt/guest", f"/mnt/image/{image.name}", IMAGE_SIZE]
    run.chroot(debian.buildroot().path / "root", argv, binds, log)


def depmod(modules: Path, release: str, log: Path) -> None:
    """Runs depmod over `modules`, which is a tree like /lib/modules."""
    binds = [run.Bind(modules, "/mnt/tree/lib/modules")]
    run.chroot(debian.buildroot().path / "root", ["depmod", "-b", "/mnt/tree", release], binds, log)


def guest_modules(work: Work, name: str = kernel.STOCK) -> Path:
    """Makes a tree like /lib/modules with the modules that machines have, and one with all, `every`, beside it."""
    release = kernel.chosen(name).release
    # Tables of all modules first: they say what the chosen ones need.
    every = work.folder / "every"
    every.mkdir()
    run.call(["cp", "-al", str(kernel.stock(name).path / "modules"), str(every / release)], work.log)
    depmod(every, release, work.log)
    table = kmods.parse_dep((every / release / "modules.dep").read_text())

    modules = work.folder / "modules"
    kmods.copy_unpacked(every / release, modules / release, kmods.select(table, GUEST_MODULES))
    for table_file in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(every / release / table_file, modules / release / table_file)
    depmod(modules, release, work.log)
    return modules


def make_boot(work: Work, name: str = kernel.STOCK) -> None:
    release = kernel.chosen(name).release
    modules = guest_modules(work, name)
    every = work.folder / "every"
    table = kmods.parse_dep((every / release / "modules.dep").read_text())
    compiled_in = kmods.builtin((every / release / "modules.builtin").read_text())
    guest = debian.guest(kernel.machine(name)).path / "root"
    busybox = (guest / "usr/bin/busybox").read_bytes()
    order = kmods.load_order(table, compiled_in, BOOT_MODULES)
    (work.folder / "initramfs.cpio").write_bytes(initramfs(busybox, every / release, order))
    make_root_image(guest, modules, work.folder / "root.img", work.log)
    cache.remove_tree(every)
    cache.remove_tree(modules)

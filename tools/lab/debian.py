# SPDX-License-Identifier: GPL-2.0
"""Root trees of Debian: the base, the build root, the guest."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import arch
from . import cache
from . import mirror
from . import run
from .steps import Work


@dataclass(frozen=True)
class Suite:
    """A release of Debian by its code name, and the suites of the archive that its machines install from."""

    name: str
    archives: tuple[str, ...]


TRIXIE = Suite("trixie", ("trixie", "trixie-backports"))
SID = Suite("sid", ("sid",))
SUITES = {suite.name: suite for suite in (TRIXIE, SID)}
# A mirror may be a snapshot. Its package lists of sid then count as expired, and apt has to take them.
OLD_LISTS = ("-o", "Acquire::Check-Valid-Until=false")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# The compilers are those that Debian built the stock kernel with: Rust metadata
# is tied to the exact compiler, so nothing here may come from another suite.
TOOLCHAIN = ("gcc-14", "rustc", "bindgen", "clang-19", "pahole")
BUILD_PACKAGES = (
    "gcc-14", "gcc", "libc6-dev", "make", "rustc", "rust-src", "rustfmt", "rust-clippy", "cargo", "bindgen",
    "clang-19", "llvm-19", "lld-19", "libclang-19-dev", "pahole", "flex", "bison", "bc", "libelf-dev", "libssl-dev",
    "libdw-dev", "xz-utils", "cpio", "kmod", "python3", "rsync", "perl", "gawk", "git", "ca-certificates",
    "busybox-static", "e2fsprogs", "xfsprogs", "qemu-system-x86", "shellcheck",
)  # fmt: skip
# What a kernel of another release and its modules are built with, beside the C compiler that the kernel names.
# Programs are built, and machines run, from Debian 13 everywhere.
KERNEL_BUILD_PACKAGES = (
    "libc6-dev", "make", "rustc", "rust-src", "rustfmt", "bindgen", "libclang-dev", "pahole", "flex", "bison", "bc",
    "libelf-dev", "libssl-dev", "libdw-dev", "xz-utils", "cpio", "kmod", "python3", "rsync", "perl", "gawk",
    "ca-certificates",
)  # fmt: skip
# What a build root for another architecture has beside that.
CROSS_PACKAGES = {"arm64": (
    "gcc-14-aarch64-linux-gnu", "binutils-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-system-arm",
)}
# Packages of the other architecture itself, of which that build root has the files.
CROSS_LIBRARIES = ("libstd-rust-dev",)
GUEST_PACKAGES = (
    "python3", "fio", "rdma-core", "ibverbs-providers", "ibverbs-utils", "perftest", "iproute2", "ethtool",
    "lvm2",
    "nvme-cli", "xfsprogs", "e2fsprogs", "util-linux", "util-linux-extra", "kmod", "udev", "procps", "busybox-static",
    "mdadm",
)  # fmt: skip


def install(tree: Path, packages: tuple[str, ...], archives: str, log: Path) -> None:
    """Installs packages in a root tree; what was downloaded survives an interrupted run.

    apt locks the folder `archives` and does not wait for it. So trees that share it are installed one at a time, and
    trees that are made at the same time have folders of their own.
    """
    kept = cache.root() / "apt" / archives
    (kept / "partial").mkdir(parents=True, exist_ok=True)
    binds = [run.Bind(kept, "/var/cache/apt/archives")]
    policy = tree / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    apt = ["apt-get", "-q", *mirror.apt_options()]
    run.chroot(tree, [*apt, "update"], log=log)
    options = ["-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-unsafe-io"]
    options += ["-o", "Acquire::Retries=3", "-o", "APT::Keep-Downloaded-Packages=true"]
    with cache.lock(f"apt-{archives}"):
        run.chroot(tree, [*apt, "install", *options, *packages], binds, log)


def installed(tree: Path) -> dict[str, str]:
    """The packages in a root tree and their versions, from dpkg's own record."""
    versions: dict[str, str] = {}
    name = ""
    for line in (tree / "var/lib/dpkg/status").read_text(errors="replace").splitlines():
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith("Version: "):
            versions[name] = line[9:]
    return versions


def installed_versions(tree: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of `packages` in a root tree."""
    return {name: version for name, version in installed(tree).items() if name in packages}


def base(suite: Suite = TRIXIE) -> cache.Artifact:
    return cache.artifact("base", suite=suite.name, recipe=1)


def buildroot(machine: arch.Arch = arch.AMD64) -> cache.Artifact:
    """The tree with the compilers, and for another architecture than the host's with cross compilers, too."""
    native = cache.artifact("buildroot", base=base().key, packages=BUILD_PACKAGES, recipe=1)
    if machine is arch.AMD64:
        return native
    return cache.artifact(f"buildroot-{machine.name}", native=native.key, packages=CROSS_PACKAGES[machine.name],
                          libraries=CROSS_LIBRARIES, recipe=1)


def guest(machine: arch.Arch = arch.AMD64) -> cache.Artifact:
    """The tree of the virtual machines' root."""
    native = cache.artifact("guest", base=base().key, packages=GUEST_PACKAGES, recipe=1)
    if machine is arch.AMD64:
        return native
    return cache.artifact(f"guest-{machine.name}", native=native.key, recipe=1)


def kernel_buildroot(suite: Suite, compiler: str) -> cache.Artifact:
    """The tree with what kernels of another release than Debian 13, and their modules, are built with."""
    return cache.artifact(f"buildroot-{suite.name}", base=base(suite).key, packages=(compiler, *KERNEL_BUILD_PACKAGES),
                          recipe=1)


def sources(suites: Iterable[str]) -> str:
    """The lines of apt's list of sources for some suites."""
    archive = mirror.mirror()
    return "".join(f"deb {archive} {suite} main\n" for suite in suites)


def make_base(work: Work, suite: Suite = TRIXIE) -> None:
    """Bootstraps the smallest system, with the suites that the other trees need."""
    tree = work.folder / "root"
    archive = mirror.mirror()
    include = ["--include=ca-certificates"] if archive.startswith("https:") else []
    keyring = [f"--keyring={KEYRING}"] if KEYRING.is_file() else []
    run.call(["debootstrap", "--variant=minbase", *include, *keyring, suite.name, str(tree), archive], work.log)
    (tree / "etc/apt/sources.list").write_text(sources(suite.archives))
    if suite is not TRIXIE:
        (tree / "etc/apt/apt.conf.d/old-lists").write_text('Acquire::Check-Valid-Until "false";\n')
    (tree / "etc/dpkg/dpkg.cfg.d/small").write_text(
        "path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n"
    )
    run.chroot(tree, ["apt-get", "-q", *mirror.apt_options(), "update"], log=work.log)


def copy_base(work: Work, suite: Suite = TRIXIE) -> Path:
    tree = work.folder / "root"
    run.call(["cp", "-a", str(base(suite).path / "root"), str(tree)], work.log)
    return tree


def make_buildroot(work: Work) -> None:
    tree = copy_base(work)
    install(tree, BUILD_PACKAGES, "build", work.log)
    work.facts["toolchain"] = installed_versions(tree, TOOLCHAIN)


def make_kernel_buildroot(work: Work, suite: Suite, compiler: str) -> None:
    tree = copy_base(work, suite)
    install(tree, (compiler, *KERNEL_BUILD_PACKAGES), f"build-{suite.name}", work.log)
    work.facts["toolchain"] = installed_versions(tree, (compiler, "rustc", "bindgen", "pahole"))


GUEST_INIT = """#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# First program of a kernel that mounts its root by itself; the stock kernel's
# initramfs does the same. What comes next is the runner's, on its 9p share.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host
exec /host/init "$@"
"""


def make_guest(work: Work) -> None:
    """The tree of the virtual machines' root image, without kernel modules."""
    tree = copy_base(work)
    install(tree, GUEST_PACKAGES, "guest", work.log)
    for folder in ("host", "mnt", "usr/lib/modules"):
        (tree / folder).mkdir(exist_ok=True)
    init = tree / "usr/sbin/labinit"
    init.write_text(GUEST_INIT)
    init.chmod(0o755)
    for waste in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/lib/apt/lists"):
        cache.remove_tree(tree / waste)
    (tree / "var/lib/apt/lists/partial").mkdir(parents=True)
    (tree / "etc/hostname").write_text("guest\n")

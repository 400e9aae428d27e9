# SPDX-License-Identifier: GPL-2.0
"""The trees that packages are built in and installed on.

`pkgbuild` has the build dependencies of debian/control and nothing more, so a
forgotten one shows. `machine` is what an administrator has before installing
the packages: Debian with systemd, the stock kernel from backports with its
headers and source, and what the packages depend on.
"""

import re
from pathlib import Path

from . import cache
from . import debian
from . import kernel
from . import run
from .arch import AMD64
from .arch import Arch
from .steps import Work

CONTROL = Path(__file__).resolve().parents[2] / "debian/control"
PKGBUILD_PACKAGES = ("build-essential", "lintian")
MACHINE_PACKAGES = (
    "systemd-sysv", "udev", "dbus", "iproute2", "rdma-core", "kmod", "e2fsprogs", "python3", "procps", "man-db",
    "lvm2", "mdadm", "util-linux-extra", "cryptsetup-bin",
)  # fmt: skip
INITRAMFS_PACKAGES = ("initramfs-tools",)
MACHINE_IMAGE_SIZE = "6G"
# rnbd-csi needs nothing that these machines lack.
_OWN = ("rnbd-dkms", "rnbdctl")
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")


def control_field(text: str, stanza: str, field: str) -> list[str]:
    """The names of the packages in `field` of the stanza that begins with the line `stanza`.

    Of alternatives the first is taken; substitution variables are left out.
    """
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line for line in paragraph.splitlines() if not line.startswith("#")]
        if not lines or lines[0].strip() != stanza:
            continue
        joined = re.sub(r"\n[ \t]+", " ", "\n".join(lines))
        for line in joined.splitlines():
            if line.lower().startswith(f"{field.lower()}:"):
                entries = line.split(":", 1)[1].split(",")
                found = [_NAME.match(entry.strip()) for entry in entries]
                return [match[0] for match in found if match is not None]
    return []


def build_dependencies() -> tuple[str, ...]:
    text = CONTROL.read_text()
    names = [name.replace("debhelper-compat", "debhelper")
             for name in control_field(text, "Source: rnbd", "Build-Depends")]
    return tuple(dict.fromkeys([*PKGBUILD_PACKAGES, *names]))


def dependencies() -> tuple[str, ...]:
    """What the packages need of Debian itself."""
    text = CONTROL.read_text()
    names = []
    for package in _OWN:
        for field in ("Depends", "Recommends"):
            names += control_field(text, f"Package: {package}", field)
    # Which kernel it is, is decided elsewhere.
    return tuple(name for name in dict.fromkeys(names) if name not in _OWN and not name.startswith("linux-"))


def kernel_packages() -> tuple[str, ...]:
    choice = kernel.chosen()
    return tuple(f"{package}={choice.version}" for package in choice.packages)


def _pkgbuild_packages(built_for: Arch) -> tuple[str, ...]:
    if built_for is AMD64:
        return build_dependencies()
    cross = (f"gcc-{built_for.triplet}", f"libc6-dev:{built_for.name}", f"libstd-rust-dev:{built_for.name}")
    return (*build_dependencies(), *cross)


def pkgbuild(built_for: Arch = AMD64) -> cache.Artifact:
    return cache.artifact("pkgbuild" if built_for is AMD64 else f"pkgbuild-{built_for.name}", base=debian.base().key,
                          packages=_pkgbuild_packages(built_for), recipe=1)


def make_pkgbuild(work: Work, built_for: Arch = AMD64) -> None:
    tree = debian.copy_base(work)
    if built_for is not AMD64:
        run.chroot(tree, ["dpkg", "--add-architecture", built_for.name], log=work.log)
    # The trees for both architectures may be made at the same time.
    archives = "build" if built_for is AMD64 else f"build-{built_for.name}"
    debian.install(tree, _pkgbuild_packages(built_for), archives, work.log)


def _machine_packages(own_initramfs: bool) -> tuple[str, ...]:
    return (*MACHINE_PACKAGES, *dependencies(), *kernel_packages(), *(INITRAMFS_PACKAGES if own_initramfs else ()))


def machine(own_initramfs: bool = False) -> cache.Artifact:
    """The machine; with ``own_initramfs`` it has initramfs-tools and an initial RAM disk, which machines of the lab do
    without."""
    return cache.artifact("machine-initramfs" if own_initramfs else "machine", base=debian.base().key,
                          packages=_machine_packages(own_initramfs), size=MACHINE_IMAGE_SIZE,
                          recipe=2 if own_initramfs else 1)


def make_machine(work: Work, own_initramfs: bool = False) -> None:
    """An image of the machine's root file system."""
    tree = debian.copy_base(work)
    # A machine of a user has man pages; the packages' own are looked for.
    (tree / "etc/dpkg/dpkg.cfg.d/small").unlink()
    debian.install(tree, _machine_packages(own_initramfs), "build", work.log)
    if own_initramfs:
        release = kernel.chosen().release
        # `update-initramfs -u' makes the initial RAM disk again only of a kernel that is there.
        (tree / f"boot/vmlinuz-{release}").touch()
        run.chroot(tree, ["update-initramfs", "-c", "-k", release], log=work.log)
    (tree / "usr/sbin/policy-rc.d").unlink()
    (tree / "etc/hostname").write_text("machine\n")
    (tree / "etc/machine-id").write_text("uninitialized\n")
    image = work.folder / "root.img"
    binds = [run.Bind(tree, "/mnt/tree"), run.Bind(work.folder, "/mnt/image")]
    argv = ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1", "-L", "root"]
    argv += ["-d", "/mnt/tree", f"/mnt/image/{image.name}", MACHINE_IMAGE_SIZE]
    run.chroot(debian.buildroot().path / "root", argv, binds, work.log)
    cache.remove_tree(tree)

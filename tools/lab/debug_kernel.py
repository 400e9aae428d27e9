# SPDX-License-Identifier: GPL-2.0
"""The debug kernel: KASAN, lockdep, KUnit and the like, from the stock kernel's source."""

import re
import shutil
from pathlib import Path

from . import cache
from . import debian
from . import image
from . import kernel
from . import run
from .steps import Work

FRAGMENT = Path(__file__).with_name("configs") / "debug.config"
DEBUG_INSIDE = "/kernel/debug"
# KASAN and Rust together exist only in a kernel built by Clang.
MAKE_OPTIONS = ("LLVM=-19",)

_SET = re.compile(r"(CONFIG_\w+)=(.+)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")


def options(text: str) -> dict[str, str]:
    """Reads a kernel configuration; what is switched off has the value `n`."""
    found = {}
    for line in text.splitlines():
        if match := _SET.fullmatch(line.strip()):
            found[match[1]] = match[2]
        elif match := _UNSET.fullmatch(line.strip()):
            found[match[1]] = "n"
    return found


def lost(wanted: dict[str, str], final: dict[str, str]) -> list[str]:
    """The options of `wanted` that `final` does not have with the same value."""
    return [f"{name}={value}" for name, value in wanted.items() if final.get(name, "n") != value]


def debug() -> cache.Artifact:
    return cache.artifact(
        "debug",
        version=kernel.chosen().version,
        toolchain=debian.buildroot().stamp()["toolchain"],
        fragment=options(FRAGMENT.read_text()),
        recipe=1,
    )


def boot() -> cache.Artifact:
    """Folder with root.img for the debug kernel, which needs no initramfs."""
    return cache.artifact("boot-debug", debug=debug().key, guest=debian.guest().key, size=image.IMAGE_SIZE, recipe=1)


def binds(tree: Path) -> list[run.Bind]:
    return [kernel.source_bind(), run.Bind(tree, DEBUG_INSIDE)]


def make_debug(work: Work) -> None:
    """Builds the kernel; an interrupted build goes on where it was."""
    tree = work.folder / "tree"
    tree.mkdir(exist_ok=True)
    root = debian.buildroot().path / "root"
    make = ["nice", "-n", "19", "make", "-s", "-C", kernel.SOURCE_INSIDE, f"O={DEBUG_INSIDE}", *MAKE_OPTIONS]
    shutil.copy(FRAGMENT, tree / "fragment.config")
    run.chroot(root, [*make, "tinyconfig"], binds(tree), work.log)
    merge = [f"{kernel.SOURCE_INSIDE}/scripts/kconfig/merge_config.sh", "-m", ".config", "fragment.config"]
    run.chroot(root, merge, binds(tree), work.log, cwd=DEBUG_INSIDE)
    run.chroot(root, [*make, "olddefconfig"], binds(tree), work.log)
    missing = lost(options(FRAGMENT.read_text()), options((tree / ".config").read_text()))
    if missing:
        raise RuntimeError(f"the debug kernel's configuration lost {', '.join(missing)}")
    run.chroot(root, [*make, "-j2", "bzImage", "modules"], binds(tree), work.log)
    run.chroot(root, [*make, "INSTALL_MOD_PATH=install", "modules_install"], binds(tree), work.log)
    release = (tree / "include/config/kernel.release").read_text().strip()
    shutil.copy(tree / "arch/x86/boot/bzImage", work.folder / "vmlinuz")
    modules = tree / "install/lib/modules"
    (modules / release / "build").unlink(missing_ok=True)
    shutil.move(modules, work.folder / "modules")
    work.facts["release"] = release
    work.facts["source"] = kernel.source().path.name


def make_boot(work: Work) -> None:
    image.make_root_image(
        debian.guest().path / "root", debug().path / "modules", work.folder / "root.img", work.log
    )

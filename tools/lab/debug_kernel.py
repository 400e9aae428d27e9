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
from .arch import AMD64
from .arch import Arch
from .steps import Work

CONFIGS = Path(__file__).with_name("configs")
DEBUG_INSIDE = "/kernel/debug"
# KASAN and Rust together exist only in a kernel built by Clang.
_COMPILER = "LLVM=-19"

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


def fragment(machine: Arch) -> str:
    """What the kernel's configuration must have."""
    return "".join((CONFIGS / f"{name}.config").read_text() for name in ("debug", f"debug-{machine.name}"))


def make_options(machine: Arch) -> list[str]:
    """What every make in the kernel's tree must be told."""
    return [_COMPILER] if machine is AMD64 else [_COMPILER, f"ARCH={machine.make}"]


def debug(machine: Arch = AMD64) -> cache.Artifact:
    return cache.artifact(
        _name("debug", machine),
        version=kernel.chosen().version,
        toolchain=debian.buildroot(machine).stamp()["toolchain"],
        fragment=options(fragment(machine)),
        recipe=1,
    )


def boot(machine: Arch = AMD64) -> cache.Artifact:
    """Folder with root.img for the debug kernel, which needs no initramfs."""
    return cache.artifact(_name("boot-debug", machine), debug=debug(machine).key, guest=debian.guest(machine).key,
                          size=image.IMAGE_SIZE, recipe=1)


def _name(artifact: str, machine: Arch) -> str:
    return artifact if machine is AMD64 else f"{artifact}-{machine.name}"


def binds(machine: Arch = AMD64) -> list[run.Bind]:
    """The tree to build modules against, and its source, where they are inside the build root."""
    return _binds(debug(machine).path / "tree")


def _binds(tree: Path) -> list[run.Bind]:
    return [kernel.source_bind(), run.Bind(tree, DEBUG_INSIDE)]


def make_debug(work: Work, machine: Arch = AMD64) -> None:
    """Builds the kernel; an interrupted build goes on where it was."""
    tree = work.folder / "tree"
    tree.mkdir(exist_ok=True)
    root = debian.buildroot(machine).path / "root"
    make = ["make", "-s", "-C", kernel.SOURCE_INSIDE, f"O={DEBUG_INSIDE}", *make_options(machine)]
    (tree / "fragment.config").write_text(fragment(machine))
    run.chroot(root, [*make, "tinyconfig"], _binds(tree), work.log)
    merge = [f"{kernel.SOURCE_INSIDE}/scripts/kconfig/merge_config.sh", "-m", ".config", "fragment.config"]
    run.chroot(root, merge, _binds(tree), work.log, cwd=DEBUG_INSIDE)
    run.chroot(root, [*make, "olddefconfig"], _binds(tree), work.log)
    missing = lost(options(fragment(machine)), options((tree / ".config").read_text()))
    if missing:
        raise RuntimeError(f"the debug kernel's configuration lost {', '.join(missing)}")
    run.chroot(root, [*make, "-j2", machine.image, "modules"], _binds(tree), work.log)
    run.chroot(root, [*make, "INSTALL_MOD_PATH=install", "modules_install"], _binds(tree), work.log)
    release = (tree / "include/config/kernel.release").read_text().strip()
    shutil.copy(tree / f"arch/{machine.make}/boot/{machine.image}", work.folder / "vmlinuz")
    modules = tree / "install/lib/modules"
    (modules / release / "build").unlink(missing_ok=True)
    shutil.move(modules, work.folder / "modules")
    work.facts["release"] = release
    work.facts["source"] = kernel.source().path.name


def make_boot(work: Work, machine: Arch = AMD64) -> None:
    image.make_root_image(debian.guest(machine).path / "root", debug(machine).path / "modules",
                          work.folder / "root.img", work.log)

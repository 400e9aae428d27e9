# SPDX-License-Identifier: GPL-2.0
"""Making what Debian's header packages lack for Rust: a kernel's metadata.

From the kernel's source, its configuration and its compilers the `rust` part
of a kernel build is made again. What comes out is joined with the header
package's own files in a tree, /var/cache/rnbd-dkms/RELEASE/tree, that modules
are then built against; the source is not needed any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from requirements import PATH
from requirements import Kernel
from requirements import bare

CACHE = "/var/cache/rnbd-dkms"
KEY = "key.json"
# Changes whenever something below does, so that trees of older packages are made again.
RECIPE = 1
# The source unpacked without what only the kernel itself is compiled from, and the objects.
SPACE_MIB = 1500
NOT_NEEDED = (
    "Documentation/*.rst", "Documentation/*.yaml", "arch/*.dts", "arch/*.dtsi", "drivers/*.[cS]", "drivers/gpu/drm/amd/include/*",
    "fs/*.c", "net/*.c", "sound/*.c", "tools/perf/*.[ch]", "tools/testing/*.[ch]",
)  # fmt: skip
# Programs for the kernel image and for signing: nothing of them gets into the metadata.
WITHOUT = ("CONFIG_OBJTOOL=", "CONFIG_DEBUG_INFO_BTF=", "CONFIG_MODULE_SIG_FORMAT=", "CONFIG_BOOT_CONFIG=", "CONFIG_DTC=")
# What the header package's tree has, by links; `scripts' and `rust' are put together.
LINKED = (".config", ".kernelvariables", "Module.symvers", "arch", "include", "tools", "vmlinux")
_RUST_EXPORT = re.compile(r"EXPORT_SYMBOL_RUST_GPL\((\w+)\)")


class MetadataError(Exception):
    """The metadata could not be made; the text says why."""


def key(kernel: Kernel) -> dict[str, object]:
    """What the metadata of `kernel` is made from; other contents mean making it again."""
    root = kernel.root
    return {
        "recipe": RECIPE,
        "release": kernel.release,
        "source": root.package_version(kernel.source_package),
        "headers": root.package_version(kernel.headers_package),
        "rustc": root.output("rustc", "--version"),
        "bindgen": root.output("bindgen", "--version"),
        "compiler": kernel.compiler,
    }


def folder(kernel: Kernel) -> Path:
    return kernel.root.at(f"{CACHE}/{kernel.release}")


def is_current(kernel: Kernel) -> bool:
    """Whether the cached metadata is there and made from what is installed now."""
    try:
        return json.loads((folder(kernel) / KEY).read_text()) == key(kernel)
    except (OSError, ValueError):
        return False


def prune(root_cache: Path, releases: list[str]) -> list[str]:
    """Removes the metadata of kernels other than `releases`; gives their names."""
    gone = []
    if root_cache.is_dir():
        for entry in sorted(root_cache.iterdir()):
            if entry.is_dir() and not entry.is_symlink() and entry.name.removesuffix(".partial") not in releases:
                shutil.rmtree(entry)
                gone.append(entry.name)
    return gone


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(cache / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def prepare(kernel: Kernel) -> Path:
    """Makes the tree to build modules of `kernel` against, unless it is there; gives its folder.

    Raises MetadataError. Call when `kernel.problems()` is empty.
    """
    place = folder(kernel)
    with _locked(place.parent):
        if kernel.has_metadata():
            _link_own_tree(kernel, place)
        elif not is_current(kernel):
            _make(kernel, place)
    return place / "tree"


def _link_own_tree(kernel: Kernel, place: Path) -> None:
    """The build tree has all that is needed."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "tree").symlink_to(kernel.build.resolve())


def _make(kernel: Kernel, place: Path) -> None:
    partial = place.with_name(f"{place.name}.partial")
    for old in (partial, place):
        if old.exists():
            shutil.rmtree(old)
    free = shutil.disk_usage(place.parent).free >> 20
    if free < SPACE_MIB:
        raise MetadataError(f"{place.parent} has {free} MiB free, {SPACE_MIB} MiB are needed for a while")
    source, objects, tree = partial / "source", partial / "objects", partial / "tree"
    for path in (source, objects, tree):
        path.mkdir(parents=True)
    made_from = key(kernel)
    try:
        print(f"rnbd-dkms: unpacking {kernel.source_archive}", flush=True)
        _unpack(kernel.source_archive, source)
        print(f"rnbd-dkms: making the Rust metadata of kernel {kernel.release}", flush=True)
        _build(kernel, source, objects)
        check_symbols(objects / "rust", kernel.build / "Module.symvers")
        join(kernel, objects, tree, place / "tree")
        shutil.rmtree(source)
        shutil.rmtree(objects)
        (partial / KEY).write_text(json.dumps(made_from, indent=1) + "\n")
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    partial.rename(place)


def _run(argv: list[str], what: str) -> None:
    environment = {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/"}
    status = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        raise MetadataError(f"{what} failed with status {status}")


def _unpack(archive: Path, source: Path) -> None:
    top = archive.name.removesuffix(".tar.xz")
    excluded = [f"--exclude={top}/{pattern}" for pattern in NOT_NEEDED]
    argv = ["tar", "-xf", str(archive), "-I", "xz -T0", "-C", str(source), "--strip-components=1", "--anchored", *excluded]
    _run(argv, f"unpacking {archive}")
    if not (source / "rust/kernel/lib.rs").is_file():
        raise MetadataError(f"{archive} has no Rust in it")


def _build(kernel: Kernel, source: Path, objects: Path) -> None:
    use_configuration(kernel, objects)
    host = bare(kernel.compiler)
    make = ["make", "-s", "-C", str(source), f"O={objects}", f"CC={kernel.compiler}", f"HOSTCC={host}"]
    make += [f"KERNELRELEASE={kernel.release}", f"-j{os.cpu_count() or 1}", *WITHOUT, "prepare"]
    _run(make, "make prepare")


def use_configuration(kernel: Kernel, objects: Path) -> None:
    """Takes over the kernel's configuration in all its forms, so that make has no reason to make it again.

    It would become another one with programs of other versions, or without
    some that this does not need.
    """
    shutil.copytree(kernel.build / "include", objects / "include", symlinks=True)
    (objects / "include/config/auto.conf.cmd").write_text("")
    shutil.copy(kernel.config_file, objects / ".config")
    made = (objects / ".config").stat().st_mtime
    for name in ("config/auto.conf", "config/auto.conf.cmd", "generated/autoconf.h", "generated/rustc_cfg"):
        file = objects / "include" / name
        if not file.is_file():
            raise MetadataError(f"{kernel.headers_package} has no include/{name}")
        os.utime(file, (made + 1, made + 1))


def check_symbols(rust: Path, symvers: Path) -> None:
    """Refuses metadata that is not of this kernel: each Rust symbol must be one that it exports.

    Their names have a digest of the compiler and of all that they are made from.
    """
    exported = {line.split("\t")[1] for line in symvers.read_text().splitlines() if line.count("\t") >= 2}
    made: set[str] = set()
    for header in sorted(rust.glob("exports_*_generated.h")):
        made.update(_RUST_EXPORT.findall(header.read_text()))
    missing = sorted(made - exported)
    if not made or missing:
        raise MetadataError(
            f"of {len(made)} Rust symbols {len(missing)} are not in {symvers}"
            + (f", such as {missing[0]}" if missing else "")
            + ": source and headers are not of the same build"
        )


def join(kernel: Kernel, objects: Path, tree: Path, final: Path) -> None:
    """Fills `tree`, which will be at `final`: the header package's files, and the metadata."""
    headers = kernel.build.resolve()
    for name in LINKED:
        if (headers / name).exists():
            (tree / name).symlink_to(headers / name)
    (tree / "scripts").mkdir()
    for entry in sorted((headers / "scripts").iterdir()):
        (tree / "scripts" / entry.name).symlink_to(entry.resolve())
    target = objects / "scripts/target.json"
    if target.is_file():
        shutil.copy(target, tree / "scripts/target.json")
    # Of Rust, what the compiler reads: crates, procedural macros, and sources that macros include.
    (tree / "rust/kernel").mkdir(parents=True)
    for made in sorted((objects / "rust").glob("*")) + sorted((objects / "rust/kernel").glob("generated_*.rs")):
        if made.suffix in (".rmeta", ".so", ".rs"):
            shutil.copy2(made, tree / made.relative_to(objects))
    (tree / "Makefile").write_text(makefile((headers / "Makefile").read_text(), final))


def makefile(headers: str, tree: Path) -> str:
    """The header package's Makefile, with its outputs in `tree`."""
    lines = [f"KBUILD_OUTPUT={tree}" if line.startswith("KBUILD_OUTPUT=") else line for line in headers.splitlines()]
    if not any(line.startswith("KBUILD_OUTPUT=") for line in lines) or not any(line.startswith("include ") for line in lines):
        raise MetadataError("the Makefile of the header package is not one that this program knows")
    return "\n".join(lines) + "\n"

# SPDX-License-Identifier: GPL-2.0
"""`lab stack`: how much of the kernel's stack each function of the built modules takes.

A task's stack in the kernel is 16 KiB, and nothing but its end says that it is used up. Our functions share it with
those of the RDMA core, of a driver and of the block layer. So a function takes 1 KiB at most, and those that take more
are in ratchet.toml, with their bytes rounded up to 256, as a compiler adds and takes away a few.

A figure is that of the machine code: what a function pushes and what it takes from the stack pointer, with all that was
inlined into it, and without what it calls. `make test` compares those of the stock kernel's modules (`--check`). Other
kernels have other compilers and options; `lab stack --kernel NAME` prints theirs. Modules that were built with
`CLIPPY=1` are compiled in another way, and say nothing.
"""

from __future__ import annotations

import argparse
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path

from . import arch
from . import build
from . import foreign
from . import paths
from . import ratchet
from . import walk_frames

LIMIT = 1024
# Figures of the ratchet are multiples of this.
STEP = 256
RULE = f"bytes of stack frames over {LIMIT}"
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_TAKEN = {
    arch.AMD64: re.compile(r"\tsub +\$0x([0-9a-f]+),%rsp"),
    arch.ARM64: re.compile(r"\tsub\tsp, sp, #0x([0-9a-f]+)(, lsl #12)?"),
}
# What a loop takes from the stack page by page, so that each page is touched.
_PROBED = {
    arch.AMD64: re.compile(r"\tlea +-0x([0-9a-f]+)\(%rsp\),%r11"),
    arch.ARM64: re.compile(r"\tsub\tx9, sp, #0x([0-9a-f]+)(, lsl #12)?"),
}
_PUSHED = {
    arch.AMD64: re.compile(r"\tpush +%r"),
    arch.ARM64: re.compile(r"\tst[rp]\t.*\[sp, #-(\d+)\]!"),
}
_PUSHED_BYTES = 8
# The body of a closure that something else calls.
_CALLED_CLOSURE = re.compile(r"^<(.*?) as core::ops::function::Fn(?:Once|Mut)?<.*>>::call(?:_once|_mut)?$")


def machine(module: Path) -> arch.Arch:
    """Which machine a module is for. Raises RuntimeError if that is none of ours."""
    with open(module, "rb") as file:
        head = file.read(20)
    number = struct.unpack_from("<H", head, 18)[0] if head[:6] == b"\x7fELF\x02\x01" and len(head) == 20 else None
    for name, known in foreign.ELF_MACHINES.items():
        if number == known:
            return arch.ALL[name]
    raise RuntimeError(f"{module} is no module for {' or '.join(arch.ALL)}")


def functions(disassembly: str) -> Iterator[tuple[str, list[str]]]:
    """The functions in what `objdump -d -C` prints, each with its instructions."""
    name = ""
    lines: list[str] = []
    for line in disassembly.splitlines():
        begins = _FUNCTION.match(line)
        if begins:
            if name:
                yield name, lines
            name, lines = begins[1], []
        else:
            lines.append(line)
    if name:
        yield name, lines


def frame(instructions: list[str], built_for: arch.Arch) -> int:
    """The bytes of the stack that a function with these instructions takes."""
    pushed = taken = probed = 0
    for line in instructions:
        found = _TAKEN[built_for].search(line)
        if found:
            taken += _bytes(found)
        elif found := _PROBED[built_for].search(line):
            probed = max(probed, _bytes(found))
        # Behind the first one that takes from the stack pointer it is an argument of a call.
        elif not taken and (found := _PUSHED[built_for].search(line)):
            pushed += int(found[1]) if built_for is arch.ARM64 else _PUSHED_BYTES
    return pushed + max(taken, probed)


def _bytes(found: re.Match[str]) -> int:
    shifted = found.re.groups > 1 and found[2]
    return int(found[1], 16) << (12 if shifted else 0)


def name_of(function: str) -> str:
    """The name of a function, without what is said of a closure besides where it is."""
    closure = _CALLED_CLOSURE.match(function)
    return closure[1] if closure else function


def frames(disassembly: str, built_for: arch.Arch) -> dict[str, int]:
    """The frame of each function; of several of one name the largest."""
    found: dict[str, int] = {}
    for function, instructions in functions(disassembly):
        name = name_of(function)
        found[name] = max(found.get(name, 0), frame(instructions, built_for))
    return found


def of_module(module: Path) -> dict[str, int]:
    """The frames of a built module's functions."""
    built_for = machine(module)
    argv = [*walk_frames.tool("objdump", built_for), "-d", "-C", "--no-show-raw-insn", str(module)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    found = frames(done.stdout, built_for)
    if not any(found.values()):
        raise RuntimeError(f"{module}: nothing in it takes any of the stack, so it was not understood")
    return found


def of_folder(folder: Path) -> dict[str, int]:
    """The frames of all modules in a folder, by module and function."""
    modules = sorted(folder.glob("*.ko"))
    if not modules:
        raise RuntimeError(f"{folder}: no modules")
    return {f"{module.stem}: {function}": taken for module in modules for function, taken in of_module(module).items()}


def offences(found: Mapping[str, int]) -> dict[str, ratchet.Found]:
    """The functions beyond the limit, with rounded figures."""
    return {key: ratchet.Found(-(-taken // STEP) * STEP, [f"takes {taken} bytes"])
            for key, taken in found.items() if taken > LIMIT}


def check(checkout: Path, folder: Path, lower: bool = False) -> list[str]:
    """What is wrong with the stock kernel's modules in `folder`; empty if nothing is."""
    allowed = ratchet.Ratchet(checkout)
    errors = allowed.compare(RULE, offences(of_folder(folder)), lower)
    if lower:
        allowed.write()
    return errors


def largest(found: Mapping[str, int], count: int) -> list[str]:
    """Lines that show the largest frames."""
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [f"{taken:6} {key}" for key, taken in ordered[:count]]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command `lab stack`."""
    command = commands.add_parser("stack", help="print, or check, how much of the stack functions take",
                                  description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--modules-dir", metavar="DIR", help="built modules (default: build them)")
    command.add_argument("--kernel", default="stock", metavar="NAME", help="build for this kernel (default: stock)")
    command.add_argument("--count", type=int, default=20, metavar="N", help="print the N largest (default: 20)")
    command.add_argument("--check", action="store_true", help="only compare with ratchet.toml, as `make test` does")
    command.add_argument("--lower", action="store_true", help="take what became better out of ratchet.toml")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    folder = Path(options.modules_dir) if options.modules_dir else build.modules(options.kernel)
    if options.check or options.lower:
        errors = check(paths.CHECKOUT, folder, options.lower)
        for line in errors:
            print(line, file=sys.stderr)
        return 1 if errors else 0
    print("\n".join(largest(of_folder(folder), options.count)))
    return 0

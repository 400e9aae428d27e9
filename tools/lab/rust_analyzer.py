# SPDX-License-Identifier: GPL-2.0
"""rust-project.json for editors: the kernel's own, in terms of the host.

The kernel's generator knows neither that our crates use each other nor that
it ran in a build root whose paths mean nothing to an editor.
"""

import json
import re
from pathlib import Path
from typing import Any

from . import build
from . import kernel
from . import paths

_DEPS = re.compile(r"^deps-(\w+)\s*:=\s*(.*)$", re.MULTILINE)


def crate_deps(kbuild: str) -> dict[str, list[str]]:
    """Reads the `deps-CRATE := CRATE...` lines of Kbuild."""
    return {name: needs.split() for name, needs in _DEPS.findall(kbuild)}


def add_deps(crates: list[dict[str, Any]], deps: dict[str, list[str]]) -> None:
    """Lets our crates see each other, in place."""
    index = {str(crate["display_name"]): number for number, crate in enumerate(crates)}
    for name, needs in deps.items():
        if name in index:
            have = crates[index[name]]["deps"]
            have += [{"crate": index[need], "name": need} for need in needs if need in index]


def translate(value: object, prefixes: dict[str, str]) -> object:
    """`value` with every text that is a path below a key of `prefixes` moved to the host's place."""
    if isinstance(value, dict):
        return {name: translate(part, prefixes) for name, part in value.items()}
    if isinstance(value, list):
        return [translate(part, prefixes) for part in value]
    if isinstance(value, str):
        for inside, outside in prefixes.items():
            if value == inside or value.startswith(inside + "/"):
                return outside + value[len(inside) :]
    return value


def write() -> Path:
    """Writes rust-project.json into the checkout, from a finished build for the stock kernel."""
    out = build.modules("stock")
    build.make(build.stock_tree(), out, ["rust-analyzer"])
    made = out / "rust-project.json"
    project = json.loads(made.read_text())
    add_deps(project["crates"], crate_deps((paths.CHECKOUT / "Kbuild").read_text()))
    for crate in project["crates"]:
        if crate["display_name"] == "kernel_ext":
            crate["env"]["RNBD_BINDINGS"] = str(out / "bindings/bindings_generated.rs")
            crate["source"] = {
                "include_dirs": [str(paths.CHECKOUT / "bindings"), str(out / "bindings")],
                "exclude_dirs": [],
            }
    prefixes = {
        kernel.SOURCE_INSIDE: str(kernel.source().path / "linux"),
        kernel.STOCK_INSIDE: str(kernel.kdir().path / "tree"),
        "/usr": str(paths.build_root() / "usr"),
    }
    # A checkout below /usr is the host's already.
    prefixes = {str(paths.CHECKOUT): str(paths.CHECKOUT), **prefixes}
    target = paths.CHECKOUT / "rust-project.json"
    target.write_text(json.dumps(translate(project, prefixes), indent=1) + "\n")
    made.unlink()
    return target

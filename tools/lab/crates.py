# SPDX-License-Identifier: GPL-2.0
"""What the programs are made of: where crates come from, and which must not be among them.

The part of `cargo deny` that needs neither a database nor the crates themselves: known defects are not looked up, and
licences only by names that are known. `lab licences` asks cargo for the licences of all crates.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"

# Not maintained any more, or in the standard library by now.
BANNED = frozenset({"ansi_term", "atty", "failure", "serde_yaml", "structopt",
                    "term_size", "yaml-rust"})
# Under Apache-2.0 alone, which must not be linked with GPL-2.0 (version 2 only): what programs with gRPC often have.
APACHE_ONLY = frozenset({"opentelemetry", "prost", "prost-derive", "prost-types", "sync_wrapper"})


def locked(text: str, name: str) -> list[str]:
    """What is wrong with the crates of a Cargo.lock."""
    problems = []
    for package in tomllib.loads(text).get("package", []):
        crate = f"{package['name']} {package['version']}"
        source = package.get("source")
        # A crate of the checkout.
        if source is None:
            continue
        if source != REGISTRY:
            problems.append(f"{name}: {crate} comes from {source}")
        elif "checksum" not in package:
            problems.append(f"{name}: {crate} has no checksum")
        if package["name"] in BANNED:
            problems.append(f"{name}: {crate} is banned by tools/lab/crates.py")
        if package["name"] in APACHE_ONLY:
            problems.append(f"{name}: {crate} is under Apache-2.0 alone, which does not go with GPL-2.0")
    return problems


def check(checkout: Path) -> list[str]:
    """What is wrong with the crates of a checkout."""
    problems = []
    for path in sorted(checkout.rglob("Cargo.lock")):
        parts = path.relative_to(checkout).parts
        if "target" not in parts and parts[0] not in ("build", "debian"):
            problems += locked(path.read_text(), "/".join(parts))
    return problems

# SPDX-License-Identifier: GPL-2.0
"""Checks that need no virtual machine: formatting, lints, host tests."""

import argparse
import sys
import tomllib
import unittest
from pathlib import Path
from typing import Any

from . import build
from . import cache
from . import compile_fail
from . import crates
from . import documents
from . import house
from . import kernel
from . import layers
from . import licences
from . import links
from . import paths
from . import prose
from . import python_tools
from . import rust_source
from . import spelling
from . import terms
from .run import CommandFailed

_NOT_OURS = ("build", "target", ".git")


def sources(pattern: str) -> list[str]:
    """The files of the checkout that match, without what was built."""
    found = []
    for path in sorted(paths.CHECKOUT.rglob(pattern)):
        if path.relative_to(paths.CHECKOUT).parts[0] not in _NOT_OURS and "target" not in path.parts:
            found.append(str(path))
    return found


def host_crates() -> list[Path]:
    """The crates that are (also) ordinary cargo crates; fuzz targets need a compiler of their own."""
    return [Path(path) for path in sources("Cargo.toml") if "fuzz" not in Path(path).parts]


def feature_sets(manifest: dict[str, Any]) -> list[str]:
    """The features with which other programs may take a library, beside all of them: none, and each alone."""
    if "lib" not in manifest:
        return []
    features = [name for name in manifest.get("features", {}) if name != "default"]
    return ["", *features] if features else []


def shell_scripts() -> list[str]:
    """Every shell script: by its name, or by its first line."""
    scripts = set(sources("*.sh"))
    for name in sources("*"):
        path = Path(name)
        if not path.suffix and path.is_file():
            with open(path, "rb") as file:
                first = file.readline(64)
            if first.startswith(b"#!") and first.split()[-1].rsplit(b"/", 1)[-1] == b"sh":
                scripts.add(name)
    return sorted(scripts)


def fmt(check: bool) -> None:
    """Formats all Rust files as the kernel's are, or only says which are not."""
    argv = ["rustfmt", "--edition", "2021", "--config-path", f"{kernel.SOURCE_INSIDE}/.rustfmt.toml"]
    argv += ["--check"] if check else []
    build.inside([*argv, *sources("*.rs")], (kernel.source_bind(),))


def lint() -> None:
    """Crates' origins and licences, house rules, ruff, mypy, clippy of modules and host crates, what must not compile.

    Spelling, terms, links and shell scripts, too. Warnings are errors.
    """
    problems = layers.check(paths.CHECKOUT, list(rust_source.CRATES), verbose=False, lower=False)
    if problems:
        raise CommandFailed("\n".join(["imports do not keep to the layers:", *problems]))
    problems = crates.check(paths.CHECKOUT)
    if problems:
        raise CommandFailed("\n".join(["crates that must not be used:", *problems]))
    problems = licences.check()
    if problems:
        raise CommandFailed("\n".join(["licences of crates:", *problems]))
    problems = house.check(paths.CHECKOUT)
    if problems:
        raise CommandFailed("\n".join(["sources do not keep to the limits:", *problems]))
    texts = prose.read(paths.CHECKOUT)
    problems = [*spelling.check(paths.CHECKOUT, texts), *terms.check(paths.CHECKOUT, texts)]
    if problems:
        raise CommandFailed("\n".join(["words of documents, comments and help texts:", *problems]))
    problems = links.check(paths.CHECKOUT, texts, documents.documents())
    if problems:
        raise CommandFailed("\n".join(["links that lead nowhere:", *problems]))
    python_tools.check()
    compile_fail.check(build.modules("stock", clippy=True))
    for manifest in host_crates():
        argv = ["cargo", "clippy", "-q", "--locked", "--all-targets", "--manifest-path", str(manifest)]
        build.inside([*argv, "--", "-Dwarnings"])
    for manifest in host_crates():
        for features in feature_sets(tomllib.loads(manifest.read_text())):
            argv = ["cargo", "clippy", "-q", "--locked", "--lib", "--no-default-features", "--features", features]
            build.inside([*argv, "--manifest-path", str(manifest), "--", "-Dwarnings"])
    scripts = shell_scripts()
    if scripts:
        build.inside(["shellcheck", *scripts])


def host_test() -> None:
    """The tests that run on the host: cargo's and those of these tools."""
    # The tests of all checkouts run programs from the same folder.
    with cache.lock("host-test"):
        for manifest in host_crates():
            build.inside(["cargo", "test", "--locked", "--manifest-path", str(manifest)])
    suite = unittest.defaultTestLoader.discover(str(Path(__file__).with_name("tests")),
                                                top_level_dir=str(Path(__file__).parents[1]))
    if not unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(suite).wasSuccessful():
        raise CommandFailed("a test of the tools failed")


def _fmt(options: argparse.Namespace) -> int:
    fmt(options.check)
    return 0


def _lint(_options: argparse.Namespace) -> int:
    lint()
    return 0


def _host_test(_options: argparse.Namespace) -> int:
    host_test()
    return 0


def add_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands `lab fmt`, `lab lint` and `lab host-test`."""
    command = commands.add_parser("fmt", help="format the Rust sources")
    command.add_argument("--check", action="store_true", help="change nothing, fail if something is not formatted")
    command.set_defaults(run=_fmt)
    command = commands.add_parser("lint", help="layers, limits, spelling, terms, links, ruff, mypy, clippy, shellcheck")
    command.set_defaults(run=_lint)
    command = commands.add_parser("host-test", help="run the tests that need no kernel")
    command.set_defaults(run=_host_test)

# SPDX-License-Identifier: GPL-2.0
"""Checks of the Python sources: ruff and mypy, in a root tree that also has what spelling.py and json_schema.py use.

Debian has mypy, hunspell and jsonschema. ruff is the wheel that pip's own configuration leads to, held to a version and
to its digests. What both ask for is in pyproject.toml.
"""

from . import cache
from . import debian
from . import paths
from . import run
from .steps import Work

SOURCES = ("tools/lab", "selftests")
PACKAGES = ("hunspell", "hunspell-en-gb", "mypy", "python3-jsonschema", "python3-pip")
RUFF = """ruff==0.17.6 \\
    --hash=sha256:aa3b08254a732acba246891089a152c47c5733dc36b8ecb76ce8602f8326e5e4 \\
    --hash=sha256:435241c61af5909a022f76219d3d1bf24730dc1bf0acabb5ddf4b569ab3cbb30
"""  # x86-64, ARM64
# Below the cache root: what mypy found out about each file, for all checkouts.
MYPY_CACHE = "mypy"


def tree() -> cache.Artifact:
    """The root tree with the programs."""
    return cache.artifact("python-tools", base=debian.base().key, packages=PACKAGES, ruff=RUFF, recipe=1)


def make_tree(work: Work) -> None:
    root = debian.copy_base(work)
    debian.install(root, PACKAGES, "python-tools", work.log)
    (root / "root/ruff.txt").write_text(RUFF)
    # The tree is of these programs alone, so pip may write where Debian's own packages are.
    run.chroot(root, ["pip", "install", "-q", "--break-system-packages", "--no-cache-dir", "--root-user-action=ignore",
                      "--only-binary=:all:", "--no-deps", "--require-hashes", "-r", "/root/ruff.txt"], log=work.log)


def check() -> None:
    """Fails with what ruff or mypy say about the sources."""
    found = cache.root() / MYPY_CACHE
    found.mkdir(parents=True, exist_ok=True)
    binds = [run.Bind(paths.CHECKOUT, str(paths.CHECKOUT), readonly=True), run.Bind(found, "/root/mypy")]
    where = str(paths.CHECKOUT)
    with cache.lock("mypy"):
        for argv in (["ruff", "check", "-q", "--no-cache", *SOURCES], ["mypy", "--cache-dir", "/root/mypy"]):
            run.chroot(tree().path / "root", argv, binds, cwd=where)

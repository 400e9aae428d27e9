# SPDX-License-Identifier: GPL-2.0
"""The machines' ingredients, from what the set-up made."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .vm import Platform

CHECKOUT = Path(__file__).resolve().parents[2]


def platform(kernel: str, modules: dict[str, Path]) -> Platform:
    """Ingredients for a kernel (``stock``, ``debug``) and module folders by set name."""
    override = os.environ.get("LAB_PLATFORM")
    if override:
        table = json.loads(Path(override).read_text(encoding="utf-8"))
        return Platform(qemu=table["qemu"], kernel=Path(table["kernel"]),
                        initrd=Path(table["initrd"]), root_image=Path(table["root_image"]),
                        selftests=CHECKOUT / "selftests", modules=modules, flavour=kernel)
    from . import paths

    made = paths.artifacts(kernel)
    return Platform(qemu=made.qemu, kernel=made.kernel, initrd=made.initrd,
                    root_image=made.root_image, selftests=CHECKOUT / "selftests",
                    modules=modules, flavour=kernel)


def module_folders(kernel: str, ours: Path | None = None) -> dict[str, Path]:
    """The folders of the module sets ``ours`` and ``c`` for a kernel."""
    from . import paths  # pylint: disable=import-outside-toplevel

    made = paths.artifacts(kernel)
    return {"ours": ours or made.modules_ours, "c": made.modules_c}

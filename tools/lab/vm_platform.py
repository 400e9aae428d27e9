# SPDX-License-Identifier: GPL-2.0
"""The machines' ingredients, from what the set-up made."""

from __future__ import annotations

from pathlib import Path

from . import loadable
from . import paths
from . import vm_plugin
from .arch import AMD64
from .vm import Platform
from .vm_kernel import quick_to_boot


def platform(kernel: str, modules: dict[str, Path]) -> Platform:
    """Ingredients for a kernel and module folders by set name; machines get the modules as `loadable` says."""
    made = paths.artifacts(kernel)
    missing = made.missing()
    if missing:
        raise RuntimeError(f"not set up yet (no {', '.join(missing)}); run `make setup'")
    return Platform(qemu=made.qemu, kernel=quick_to_boot(made.vmlinuz), initrd=made.initramfs,
                    root_image=made.root_image, selftests=paths.CHECKOUT / "selftests",
                    modules={name: loadable.folder(kernel, folder) for name, folder in modules.items()},
                    arch=made.arch,
                    flavour="debug" if paths.is_debug(kernel) else "stock",
                    thorough=kernel == paths.STOCK,
                    yield_plugin=vm_plugin.compiled("vm_yield") if made.arch is AMD64 else None)


def module_folders(kernel: str, ours: Path | None = None) -> dict[str, Path]:
    """The folders of the module sets ``ours`` and ``c`` for a kernel."""
    made = paths.artifacts(kernel)
    return {"ours": ours or made.modules_ours, "c": made.c_modules_dir}

# SPDX-License-Identifier: GPL-2.0
"""Where everything is that a virtual machine or a build needs."""

from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

from . import debian
from . import image
from . import kernel

CHECKOUT = Path(__file__).resolve().parents[2]
KERNELS = ("stock", "debug")


@dataclass(frozen=True)
class Artifacts:
    """Paths of one kernel's artefacts, on the host; what is missing is named by `missing`."""

    name: str
    release: str
    vmlinuz: Path
    initramfs: Path | None
    root_image: Path
    kdir: Path
    modules_ours: Path
    c_modules_dir: Path
    qemu: list[str]

    def missing(self) -> list[str]:
        """The names of the artefacts that have not been made yet."""
        fields = {name: getattr(self, name) for name in ("vmlinuz", "initramfs", "root_image", "kdir")}
        return [name for name, path in fields.items() if path is not None and not path.exists()]

    def json(self) -> dict[str, object]:
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return plain | {"missing": self.missing()}


def build_root() -> Path:
    return debian.buildroot().path / "root"


def qemu() -> list[str]:
    """How to run the build root's QEMU on the host, with the host's own paths."""
    root = build_root()
    return [
        str(root / "lib64/ld-linux-x86-64.so.2"), "--library-path", str(root / "usr/lib/x86_64-linux-gnu"),
        str(root / "usr/bin/qemu-system-x86_64"), "-L", str(root / "usr/share/qemu"),
        "-L", str(root / "usr/share/seabios"),
    ]  # fmt: skip


def modules_dir(name: str, checkout: Path = CHECKOUT) -> Path:
    """Where `lab build` puts this checkout's modules for the kernel `name`."""
    return checkout / "build" / name


def artifacts(kernel_name: str = "stock") -> Artifacts:
    """The artefacts of the kernel `stock` or `debug`.

    Raises RuntimeError before the set-up has got far enough to know them.
    """
    if kernel_name not in KERNELS:
        raise ValueError(f"no kernel is called {kernel_name!r}, only {', '.join(KERNELS)}")
    # Here, because the C modules' build looks up paths itself.
    from . import c_modules
    from . import debug_kernel

    try:
        if kernel_name == "debug":
            made = debug_kernel.debug().path
            release = str(debug_kernel.debug().stamp()["release"]) if made.is_dir() else ""
            kdir = made / "tree"
            boot = debug_kernel.boot().path
        else:
            made = kernel.stock().path
            release = kernel.chosen().release
            kdir = kernel.kdir().path / "tree"
            boot = image.boot().path
        c_folder = c_modules.folder(kernel_name)
    except FileNotFoundError as error:
        raise RuntimeError(f"not set up yet ({error.filename} is missing); run `make setup'") from error
    return Artifacts(
        name=kernel_name,
        release=release,
        vmlinuz=made / "vmlinuz",
        initramfs=boot / "initramfs.cpio" if kernel_name == "stock" else None,
        root_image=boot / "root.img",
        kdir=kdir,
        modules_ours=modules_dir(kernel_name),
        c_modules_dir=c_folder,
        qemu=qemu(),
    )

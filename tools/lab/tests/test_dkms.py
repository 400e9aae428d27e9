# SPDX-License-Identifier: GPL-2.0
"""The helper of the DKMS build, on file trees made up here."""

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path
from unittest import mock

_FOLDER = Path(__file__).resolve().parents[3] / "packaging/dkms"
sys.path.insert(0, str(_FOLDER))

import metadata  # noqa: E402
import requirements  # noqa: E402

RELEASE = "7.3.4+deb13-amd64"
VERSION = "7.3.4-1~bpo13+1"
RUSTC = "rustc 1.85.1 (4eb161250 2025-03-15) (built from a source tarball)"
CONFIG = f"""# made up
CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"
CONFIG_RUSTC_VERSION_TEXT="{RUSTC}"
CONFIG_BINDGEN_VERSION_TEXT="bindgen 0.71.1"
CONFIG_RUST=y
CONFIG_INFINIBAND_ADDR_TRANS=y
CONFIG_BLK_DEV=y
# CONFIG_OTHER is not set
"""
PROGRAMS = ("bc", "make", "tar", "xz", "rustc", "bindgen", "x86_64-linux-gnu-gcc-14")


def program() -> object:
    """The program itself, which has no .py in its name."""
    loader = SourceFileLoader("rnbd_dkms", str(_FOLDER / "rnbd-dkms"))
    spec = importlib.util.spec_from_loader("rnbd_dkms", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


class FakeRoot(requirements.Root):
    """A system with everything, of which tests take things away."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.programs = {name: f"/usr/bin/{name}" for name in PROGRAMS}
        self.answers = {"rustc --version": RUSTC, "bindgen --version": "bindgen 0.71.1",
                        "rustc --print sysroot": "/usr"}
        self.versions = {f"linux-headers-{RELEASE}": VERSION, "linux-source-7.3": VERSION}
        headers = self.at(f"/usr/src/linux-headers-{RELEASE}")
        common = "/usr/src/linux-headers-7.3.4+deb13-common/Makefile"
        for file, text in {
            headers / ".config": CONFIG,
            headers / "Makefile": f"KBUILD_OUTPUT=/usr/src/linux-headers-{RELEASE}\ninclude {common}\n",
            headers / "Module.symvers": ("0x1\t_RNvX\tvmlinux\tEXPORT_SYMBOL_GPL\t\n"
                                         "0x2\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n"),
            headers / "include/config/auto.conf": "CONFIG_RUST=y\n",
            headers / "include/generated/autoconf.h": "",
            headers / "include/generated/rustc_cfg": "",
            headers / "scripts/Makefile.build": "",
            headers / "scripts/mod/modpost": "",
            headers / "arch/x86/module.lds": "",
            self.at("/usr/src/linux-source-7.3.tar.xz"): "",
            self.at("/usr/lib/rustlib/src/rust/library/core/src/lib.rs"): "",
        }.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        build = self.at(f"/lib/modules/{RELEASE}/build")
        build.parent.mkdir(parents=True)
        build.symlink_to(headers)

    def which(self, program: str) -> str | None:
        return self.programs.get(program)

    def output(self, *argv: str) -> str:
        return self.answers.get(" ".join([Path(argv[0]).name, *argv[1:]]), "")

    def package_version(self, package: str) -> str:
        return self.versions.get(package, "")


class Requirements(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.root = FakeRoot(Path(self.folder))

    def problems(self, release: str = RELEASE) -> list[str]:
        return [str(problem) for problem in requirements.Kernel(release, self.root).problems()]

    def configure(self, old: str, new: str) -> None:
        file = self.root.at(f"/usr/src/linux-headers-{RELEASE}/.config")
        file.write_text(file.read_text().replace(old, new))

    def assert_one(self, text: str, remedy: str) -> None:
        found = self.problems()
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])
        self.assertIn(remedy, found[0].split("remedy: ")[1])

    def test_nothing_is_missing(self) -> None:
        self.assertEqual(self.problems(), [])

    def test_headers(self) -> None:
        found = self.problems("7.3.9+deb13-amd64")
        self.assertEqual(len(found), 1)
        self.assertIn("headers of kernel 7.3.9+deb13-amd64 are not installed", found[0])
        self.assertIn("apt install linux-headers-7.3.9+deb13-amd64", found[0])

    def test_a_kernel_without_rust(self) -> None:
        self.configure("CONFIG_RUST=y", "# CONFIG_RUST is not set")
        self.assert_one("built without CONFIG_RUST", "apt install -t trixie-backports linux-image-amd64")

    def test_a_kernel_without_rdma(self) -> None:
        self.configure("CONFIG_INFINIBAND_ADDR_TRANS=y", "")
        self.assert_one("the cloud flavour has none", "linux-image-amd64")

    def test_an_old_kernel(self) -> None:
        old = self.root.at("/lib/modules/6.12.9-amd64/build")
        old.mkdir(parents=True)
        (old / ".config").write_text(CONFIG)
        found = self.problems("6.12.9-amd64")
        self.assertEqual(len(found), 1)
        self.assertIn("too old, the modules need 7.2", found[0])

    def test_a_newer_kernel(self) -> None:
        new = self.root.at("/lib/modules/7.9.1+deb13-arm64/build")
        new.mkdir(parents=True)
        (new / ".config").write_text(CONFIG)
        self.root.answers["dpkg --print-architecture"] = "arm64"
        found = self.problems("7.9.1+deb13-arm64")
        self.assertEqual(len(found), 1)
        self.assertIn("newer than these modules, which are made for 7.2 to 7.3", found[0])
        self.assertIn("until then boot an older kernel", found[0])

    def test_dkms_is_told_the_same_kernels(self) -> None:
        conf = (_FOLDER / "dkms.conf").read_text()
        oldest, newest = requirements.supported()[0], requirements.supported()[-1]
        self.assertIn(f'BUILD_EXCLUSIVE_KERNEL_MIN="{oldest[0]}.{oldest[1]}"\n', conf)
        self.assertIn(f'BUILD_EXCLUSIVE_KERNEL_MAX="{newest[0]}.{newest[1]}.999"\n', conf)

    def test_modules_are_found_whatever_put_them_there(self) -> None:
        kernel = requirements.Kernel(RELEASE, self.root)
        self.assertEqual(kernel.missing(), list(requirements.MODULES))
        for name in ("updates/dkms/rnbd_client.ko.xz", "updates/rtrs_core.ko", "kernel/drivers/rnbd_server.ko"):
            file = self.root.at(f"/lib/modules/{RELEASE}/{name}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        self.assertEqual(kernel.missing(), ["rtrs_client", "rtrs_server", "rnbd_server", "rtrs_client_c",
                                            "rtrs_server_c", "rtrs_group", "rtrs_group_c", "rtrs_test",
                                            "rtrs_test_client", "rtrs_test_server"])

    def test_the_newest_kernel_boots_next(self) -> None:
        self.assertEqual(requirements.next_to_boot(self.root), "")
        self.root.at("/boot").mkdir()
        for release in ("7.3.4+deb13-amd64", "7.3.10+deb13-amd64", "7.2.12+deb13-amd64", "6.12.117+deb13-amd64"):
            self.root.at(f"/boot/vmlinuz-{release}").write_text("")
            self.root.at(f"/lib/modules/{release}").mkdir(exist_ok=True)
        # Neither a copy nor a folder that a removed kernel left boots.
        self.root.at("/boot/vmlinuz-7.9.1+deb13-amd64.old").write_text("")
        self.root.at("/lib/modules/7.9.2+deb13-amd64").mkdir()
        self.assertEqual(requirements.next_to_boot(self.root), "7.3.10+deb13-amd64")

    def test_releases_are_in_the_order_of_their_numbers(self) -> None:
        releases = ["7.3.10+deb13-amd64", "7.4.1-amd64", "7.3.4+deb13-amd64", "7.3-amd64", "6.12.117+deb13-amd64"]
        expected = ["6.12.117+deb13-amd64", "7.3-amd64", "7.3.4+deb13-amd64", "7.3.10+deb13-amd64", "7.4.1-amd64"]
        self.assertEqual(sorted(releases, key=requirements.order), expected)

    def test_source(self) -> None:
        self.root.at("/usr/src/linux-source-7.3.tar.xz").unlink()
        self.assert_one("source of kernel", f"apt install linux-source-7.3={VERSION}")

    def test_source_of_another_version(self) -> None:
        self.root.versions["linux-source-7.3"] = "7.3.5-1~bpo13+1"
        self.assert_one("linux-source-7.3 is version 7.3.5-1~bpo13+1, "
                        f"but linux-headers-{RELEASE} is version {VERSION}", VERSION)

    def test_each_program(self) -> None:
        packages = {"xz": "xz-utils", "x86_64-linux-gnu-gcc-14": "gcc-14"}
        for name in PROGRAMS:
            with self.subTest(name):
                kept = self.root.programs.pop(name)
                self.assert_one(f"{name}", f"apt install {packages.get(name, name)}")
                self.root.programs[name] = kept

    def test_another_rustc(self) -> None:
        self.root.answers["rustc --version"] = "rustc 1.90.0 (1159e78c4 2025-09-14)"
        self.assert_one("/usr/bin/rustc is `rustc 1.90.0 (1159e78c4 2025-09-14)', "
                        f"but kernel {RELEASE} was built with `{RUSTC}'", "rustc")

    def test_another_bindgen(self) -> None:
        self.root.answers["bindgen --version"] = "bindgen 0.72.0"
        self.assert_one("was built with `bindgen 0.71.1'", "bindgen")

    def test_rust_src(self) -> None:
        self.root.at("/usr/lib/rustlib/src/rust/library/core/src/lib.rs").unlink()
        self.assert_one("Rust's core library", "apt install rust-src")

    def test_everything_is_said_at_once(self) -> None:
        del self.root.programs["bindgen"]
        self.root.at("/usr/src/linux-source-7.3.tar.xz").unlink()
        self.assertEqual(len(self.problems()), 2)

    def test_a_tree_with_metadata_needs_no_source(self) -> None:
        made = self.root.at(f"/usr/src/linux-headers-{RELEASE}/rust/libkernel.rmeta")
        made.parent.mkdir()
        made.write_text("")
        self.root.at("/usr/src/linux-source-7.3.tar.xz").unlink()
        del self.root.programs["bc"]
        self.assertEqual(self.problems(), [])

    def test_installed(self) -> None:
        self.assertEqual(requirements.installed(self.root), [RELEASE])


class Metadata(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.root = FakeRoot(self.folder)
        self.kernel = requirements.Kernel(RELEASE, self.root)

    def objects(self) -> Path:
        """What a build leaves."""
        objects = self.folder / "objects"
        for name in ("rust/libcore.rmeta", "rust/libmacros.so", "rust/core.o", "rust/kernel/generated_a.rs",
                     "scripts/target.json"):
            (objects / name).parent.mkdir(parents=True, exist_ok=True)
            (objects / name).write_text(name)
        (objects / "rust/exports_core_generated.h").write_text("EXPORT_SYMBOL_RUST_GPL(_RNvX);\n")
        return objects

    def test_the_key_follows_what_is_installed(self) -> None:
        place = metadata.folder(self.kernel)
        place.mkdir(parents=True)
        self.assertFalse(metadata.is_current(self.kernel))
        (place / metadata.KEY).write_text(json.dumps(metadata.key(self.kernel)))
        self.assertTrue(metadata.is_current(self.kernel))
        self.root.versions["linux-source-7.3"] = "7.3.4-2~bpo13+1"
        self.assertFalse(metadata.is_current(self.kernel))
        self.root.versions["linux-source-7.3"] = VERSION
        self.root.answers["rustc --version"] = "rustc 1.85.2"
        self.assertFalse(metadata.is_current(self.kernel))
        (place / metadata.KEY).write_text("{broken")
        self.assertFalse(metadata.is_current(self.kernel))

    def test_prune(self) -> None:
        cache = self.folder / "cache"
        for name in (RELEASE, "7.3.1+deb13-amd64", "7.3.2+deb13-amd64.partial", f"{RELEASE}.partial"):
            (cache / name / "tree").mkdir(parents=True)
        (cache / ".lock").write_text("")
        self.assertEqual(metadata.prune(cache, [RELEASE]), ["7.3.1+deb13-amd64", "7.3.2+deb13-amd64.partial"])
        self.assertEqual(sorted(path.name for path in cache.iterdir()), [".lock", RELEASE, f"{RELEASE}.partial"])
        self.assertEqual(metadata.prune(self.folder / "none", []), [])

    def test_symbols_of_this_kernel(self) -> None:
        objects = self.objects()
        symvers = self.kernel.build / "Module.symvers"
        metadata.check_symbols(objects / "rust", symvers)
        (objects / "rust/exports_kernel_generated.h").write_text("EXPORT_SYMBOL_RUST_GPL(_RNvOther);\n")
        with self.assertRaisesRegex(metadata.MetadataError, "of 2 Rust symbols 1 are not in .*such as _RNvOther"):
            metadata.check_symbols(objects / "rust", symvers)

    def test_no_symbols_at_all_is_wrong(self) -> None:
        (self.folder / "rust").mkdir()
        with self.assertRaises(metadata.MetadataError):
            metadata.check_symbols(self.folder / "rust", self.kernel.build / "Module.symvers")

    def test_the_joined_tree(self) -> None:
        tree = self.folder / "tree"
        tree.mkdir()
        metadata.join(self.kernel, self.objects(), tree, Path("/var/cache/rnbd-dkms/x/tree"))
        self.assertEqual((tree / "Makefile").read_text().splitlines()[0], "KBUILD_OUTPUT=/var/cache/rnbd-dkms/x/tree")
        self.assertIn("linux-headers-7.3.4+deb13-common/Makefile", (tree / "Makefile").read_text())
        for name in (".config", "Module.symvers", "include/config/auto.conf", "scripts/mod/modpost",
                     "scripts/target.json", "rust/libcore.rmeta"):
            self.assertTrue((tree / name).is_file(), name)
        self.assertEqual((tree / "rust/kernel/generated_a.rs").read_text(), "rust/kernel/generated_a.rs")
        self.assertFalse((tree / "rust/core.o").exists())

    def test_an_unknown_header_package(self) -> None:
        with self.assertRaises(metadata.MetadataError):
            metadata.makefile("all:\n\ttrue\n", Path("/x"))

    def test_the_configuration_is_never_older_than_its_file(self) -> None:
        objects = self.folder / "objects"
        objects.mkdir()
        metadata.use_configuration(self.kernel, objects)
        config = (objects / ".config").stat().st_mtime
        for name in ("config/auto.conf", "config/auto.conf.cmd", "generated/autoconf.h", "generated/rustc_cfg"):
            self.assertGreater((objects / "include" / name).stat().st_mtime, config, name)

    def test_headers_without_a_configuration_for_rust(self) -> None:
        (self.kernel.build / "include/generated/rustc_cfg").unlink()
        objects = self.folder / "objects"
        objects.mkdir()
        with self.assertRaisesRegex(metadata.MetadataError, "rustc_cfg"):
            metadata.use_configuration(self.kernel, objects)

    def test_a_tree_with_metadata_is_used_as_it_is(self) -> None:
        (self.kernel.build / "rust").mkdir()
        (self.kernel.build / "rust/libkernel.rmeta").write_text("")
        tree = metadata.prepare(self.kernel)
        self.assertEqual(tree.resolve(), self.kernel.build.resolve())
        self.assertEqual(metadata.prepare(self.kernel), tree)

    def test_too_little_space_changes_nothing(self) -> None:
        with (
            mock.patch("shutil.disk_usage", return_value=mock.Mock(free=1 << 20)),
            self.assertRaisesRegex(metadata.MetadataError, "1 MiB free, 1500 MiB are needed"),
        ):
            metadata.prepare(self.kernel)
        self.assertFalse(metadata.folder(self.kernel).exists())

    def test_a_failed_build_leaves_nothing(self) -> None:
        with (
            mock.patch("metadata._unpack", side_effect=metadata.MetadataError("no")),
            contextlib.redirect_stdout(io.StringIO()),
            self.assertRaises(metadata.MetadataError),
        ):
            metadata.prepare(self.kernel)
        self.assertEqual([path.name for path in metadata.folder(self.kernel).parent.iterdir()], [".lock"])


class Program(unittest.TestCase):
    def test_a_kernel_that_cannot_be_built_for_is_skipped(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            root = FakeRoot(Path(folder))
            del root.programs["bindgen"]
            kernel = requirements.Kernel(RELEASE, root)
            module = program()
            with mock.patch.object(requirements, "Kernel", return_value=kernel):
                status = module.prepare(mock.Mock(release=RELEASE, build=None))  # type: ignore[attr-defined]
        self.assertEqual(status, 77)
        self.assertIn(f"no modules can be built for kernel {RELEASE}", said.getvalue())
        self.assertIn("remedy: apt install bindgen", said.getvalue())

    def warning(self, built_for: list[str], problems: list[str]) -> str:
        """What is said when 7.9.1 is the newest kernel in /boot and 7.3.4 runs."""
        module = program()

        def kernel(release: str) -> mock.Mock:
            texts = [mock.Mock(text=text) for text in problems]
            return mock.Mock(release=release, missing=lambda: [] if release in built_for else ["rnbd_client"],
                             problems=lambda: texts)

        with (
            mock.patch.object(requirements, "Kernel", kernel),
            mock.patch.object(requirements, "next_to_boot", return_value="7.9.1"),
            mock.patch.object(requirements, "installed", return_value=["7.2.1", "7.3.4", "7.9.1"]),
            mock.patch("platform.release", return_value="7.3.4"),
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            self.assertEqual(module.warn(mock.Mock()), 0)  # type: ignore[attr-defined]
        return said.getvalue()

    def test_a_warning_before_a_kernel_boots_without_modules(self) -> None:
        said = self.warning(["7.2.1", "7.3.4"], ["kernel 7.9.1 is newer"])
        self.assertIn("kernel 7.9.1, the newest, has no RNBD modules: kernel 7.9.1 is newer.", said)
        self.assertIn("To go on with kernel 7.3.4", said)
        self.assertIn("apt-mark manual linux-image-7.3.4 linux-headers-7.3.4", said)

    def test_what_runs_is_not_recommended_without_modules(self) -> None:
        self.assertIn("To go on with kernel 7.2.1", self.warning(["7.2.1"], []))
        self.assertNotIn("To go on", self.warning([], []))

    def test_no_warning_if_the_modules_are_there(self) -> None:
        self.assertEqual(self.warning(["7.9.1"], []), "")

    def test_state_of_dkms(self) -> None:
        module = program()
        for text, state in (
            (f"rnbd/0.1.0, {RELEASE}, x86_64: installed\n", "installed"),
            ("rnbd/0.1.0: added\n", "added"),
            ("", ""),
        ):
            with mock.patch("subprocess.run", return_value=mock.Mock(stdout=text)):
                self.assertEqual(module.dkms_state("0.1.0", RELEASE), state)  # type: ignore[attr-defined]


if __name__ == "__main__":
    unittest.main()

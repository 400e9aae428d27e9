# SPDX-License-Identifier: GPL-2.0
"""Choosing kernels of the archive, and checking the debug kernel's configuration."""

import itertools
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

from lab import archive
from lab import debug_kernel
from lab import kernel_choice
from lab.arch import AMD64
from lab.arch import ARM64
from lab.archive import Package
from lab.debian import SID
from lab.debian import TRIXIE
from lab.kernel_choice import Wanted


def of(release: str, version: str, series: str, kinds: tuple[str, ...] = ("binary", "modules")) -> list[Package]:
    names = [f"linux-headers-{release}", f"linux-source-{series}", *(f"linux-{kind}-{release}" for kind in kinds)]
    depends = "linux-kbuild-7, gcc-14-for-host, pahole"
    return [Package(name, version, depends if "headers" in name else "") for name in names]


OLD = of("7.3.2+deb13-amd64", "7.3.2-1~bpo13+1", "7.3")
NEW = of("7.3.10+deb13-amd64", "7.3.10-1~bpo13+1", "7.3")
NEXT = of("7.4.1+deb13-amd64", "7.4.1-1~bpo13+1", "7.4", ("image",))
BEFORE = of("7.2.9+deb13-amd64", "7.2.9-1~bpo13+1", "7.2", ("image",))
ON_ARM = of("7.3.2+deb13-arm64", "7.3.2-1~bpo13+1", "7.3")


class Candidates(unittest.TestCase):
    def releases(self, *packages: list[Package]) -> list[str]:
        return [choice.release for choice in kernel_choice.candidates(itertools.chain(*packages), AMD64)]

    def test_newest_comes_first_and_numbers_are_not_compared_as_text(self) -> None:
        order = ["7.4.1+deb13-amd64", "7.3.10+deb13-amd64", "7.3.2+deb13-amd64", "7.2.9+deb13-amd64"]
        self.assertEqual(self.releases(OLD, NEXT, NEW, BEFORE), order)

    def test_the_newest_of_a_series_is_taken(self) -> None:
        found = kernel_choice.candidates(itertools.chain(OLD, NEXT, NEW), AMD64)
        choice = kernel_choice.newest(found, ["7.2", "7.3"])
        assert choice is not None
        self.assertEqual(choice.release, "7.3.10+deb13-amd64")
        self.assertIsNone(kernel_choice.newest(found, ["7.2"]))

    def test_headers_name_the_compiler(self) -> None:
        old = of("7.3.2+deb14-amd64", "7.3.2-1", "7.3")
        (choice,) = kernel_choice.candidates([replace(each, depends=each.depends.replace("14", "16")) for each in old],
                                             AMD64)
        self.assertEqual(choice.compiler, "gcc-16")
        self.assertEqual(self.releases([replace(package, depends="") for package in NEW], OLD), ["7.3.2+deb13-amd64"])

    def test_other_flavours_are_ignored(self) -> None:
        rt = of("7.3.4+deb13-rt-amd64", "7.3.4-1", "7.3")
        cloud = of("7.3.4+deb13-cloud-amd64", "7.3.4-1", "7.3")
        self.assertEqual(self.releases(rt, cloud), [])

    def test_each_architecture_has_its_own(self) -> None:
        (choice,) = kernel_choice.candidates(itertools.chain(ON_ARM, OLD), ARM64)
        self.assertEqual((choice.release, choice.arch), ("7.3.2+deb13-arm64", "arm64"))
        self.assertEqual(self.releases(ON_ARM, OLD), ["7.3.2+deb13-amd64"])

    def test_source_and_image_must_be_of_the_same_version(self) -> None:
        headers = [package for package in NEW if "headers" in package.name]
        self.assertEqual(self.releases(headers, OLD), ["7.3.2+deb13-amd64"])

    def test_an_image_that_only_depends_on_a_binary_is_not_downloaded(self) -> None:
        both = of("7.3.4+deb13-amd64", "7.3.4-1", "7.3", ("binary", "image", "modules"))
        (choice,) = kernel_choice.candidates(both, AMD64)
        self.assertNotIn("linux-image-7.3.4+deb13-amd64", choice.packages)
        self.assertIn("linux-modules-7.3.4+deb13-amd64", choice.packages)

    def test_package_lists_are_read(self) -> None:
        text = "Package: a\nDescription: x\nVersion: 1-1\nDepends: c, d\n\nPackage: e\n\nPackage: b\nVersion: 2\n"
        self.assertEqual(list(archive.parse_packages(text)), [Package("a", "1-1", "c, d"), Package("b", "2")])


class Names(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        series = Path(folder.name) / "KERNELS"
        series.write_text("# a remark\n7.10\n7.2\n7.9\n")
        patch = mock.patch.object(kernel_choice, "KERNELS", series)
        patch.start()
        self.addCleanup(patch.stop)

    def test_series_are_in_the_order_of_their_numbers(self) -> None:
        self.assertEqual(kernel_choice.supported(), ["7.2", "7.9", "7.10"])

    def test_a_name_means_a_series_and_an_architecture(self) -> None:
        for name, meant in {"stock": ("7.10", AMD64), "7.10": ("7.10", AMD64), "7.2": ("7.2", AMD64),
                            "arm64": ("7.10", ARM64), "stock-arm64": ("7.10", ARM64), "amd64": ("7.10", AMD64),
                            "7.2-arm64": ("7.2", ARM64), "7.2-amd64": ("7.2", AMD64)}.items():
            with self.subTest(name):
                self.assertEqual(kernel_choice.wanted(name), Wanted(TRIXIE, meant[1], meant[0]))
        self.assertEqual(kernel_choice.wanted("sid"), Wanted(SID, AMD64))

    def test_the_shortest_name_means_the_same(self) -> None:
        for name in ("stock", "arm64", "7.2", "7.2-arm64", "sid"):
            with self.subTest(name):
                self.assertEqual(kernel_choice.name_of(kernel_choice.wanted(name)), name)

    def test_all_that_the_modules_are_made_for_are_named(self) -> None:
        self.assertEqual(kernel_choice.every(), ["stock", "7.9", "7.2", "arm64", "7.9-arm64", "7.2-arm64", "sid"])

    def test_what_is_no_name_is_refused_with_what_is(self) -> None:
        for name in ("", "7", "debug", "7.2arm64", "7.2-", "arm64-7.2", "riscv64", "sid-arm64", "sid-"):
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, "a series such as `7.2'.*arm64.*sid"):
                kernel_choice.wanted(name)


class DebugConfiguration(unittest.TestCase):
    def test_options_that_disappeared_are_named(self) -> None:
        wanted = debug_kernel.options("CONFIG_KASAN=y\n# CONFIG_SLUB_TINY is not set\nCONFIG_X=m\n# a remark\n")
        final = debug_kernel.options("CONFIG_SLUB_TINY=y\nCONFIG_X=m\n")
        self.assertEqual(debug_kernel.lost(wanted, final), ["CONFIG_KASAN=y", "CONFIG_SLUB_TINY=n"])

    def test_an_option_that_is_absent_counts_as_off(self) -> None:
        self.assertEqual(debug_kernel.lost(debug_kernel.options("# CONFIG_SLUB_TINY is not set"), {}), [])

    def test_the_fragment_asks_for_every_detector(self) -> None:
        wanted = debug_kernel.options(debug_kernel.fragment(AMD64))
        for name in ("KASAN", "PROVE_LOCKING", "DEBUG_ATOMIC_SLEEP", "DEBUG_KMEMLEAK", "FAILSLAB", "KUNIT", "RUST"):
            self.assertEqual(wanted.get(f"CONFIG_{name}"), "y", name)

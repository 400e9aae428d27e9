# SPDX-License-Identifier: GPL-2.0
"""Imports that go up, or in a circle, are found however they are written."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from lab import layers
from lab import ratchet
from lab import rust_imports
from lab import rust_source

PICTURE = """# Design

## Layers

Words.

```text
rtrs_group_c  uses rtrs_group rtrs_client_c rtrs_client rtrs_core kernel_ext proto
    all         rtrs_group_c
rtrs_client_c  uses rtrs_client rtrs_core kernel_ext proto
    all         rtrs_client_c
rtrs_server_c  uses rtrs_server rtrs_core kernel_ext proto
    all         rtrs_server_c
rtrs_kv_group  uses rtrs_group rtrs_client rtrs_core kernel_ext proto
    all         rtrs_kv_group
rtrs_group  uses rtrs_client rtrs_core kernel_ext proto
    all         rtrs_group
rtrs_test_client  uses rtrs_test rtrs_client rtrs_core kernel_ext proto
    all         rtrs_test_client
rtrs_test_server  uses rtrs_test rtrs_server rtrs_core kernel_ext proto
    all         rtrs_test_server
rtrs_test  uses rtrs_core kernel_ext proto
    all         rtrs_test
rtrs_kv_client  uses rtrs_client rtrs_core kernel_ext proto
    all         rtrs_kv_client
rtrs_kv_server  uses rtrs_server rtrs_core kernel_ext proto
    all         rtrs_kv_server
rnbd_client  uses rtrs_client rtrs_core kernel_ext proto
    all         rnbd_client
rnbd_server  uses rtrs_server rtrs_core kernel_ext proto
    all         rnbd_server
rtrs_client  uses rtrs_core kernel_ext proto
    top         rtrs_client api
    middle      path path/
                other
    bottom      base
rtrs_server  uses rtrs_core kernel_ext proto
    all         rtrs_server
rtrs_core  uses kernel_ext proto
    all         rtrs_core
kernel_ext  uses proto
    all         kernel_ext
proto  uses
    all         proto
```
"""
ROOT = "mod api;\nmod base;\nmod other;\nmod path;\npub use crate::{api::Session, path::Path};\n"


class Tree(unittest.TestCase):
    """A checkout in a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout = Path(folder.name)
        self.write(str(layers.DOCUMENT), PICTURE)
        for crate, place in rust_source.CRATES.items():
            self.write(f"{place}/{crate}.rs", "")
        self.write("rtrs_client/rtrs_client.rs", ROOT)
        for name in ("api", "base", "other", "path/io"):
            self.write(f"rtrs_client/{name}.rs", "")
        self.write("rtrs_client/path.rs", "mod io;\npub struct Path;\n")
        self.write("rtrs_client/api.rs", "pub struct Session;\n")

    def write(self, name: str, text: str) -> None:
        """Writes a file of the checkout."""
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self) -> list[str]:
        """What is wrong."""
        return layers.check(self.checkout, list(rust_source.CRATES), verbose=False, lower=False)

    def imports(self) -> set[tuple[str, str]]:
        """The imports between files of the client."""
        found = rust_imports.Source("rtrs_client", self.checkout).imports()
        return {(one.file, one.target) for one in found
                if one.crate == "rtrs_client" and one.file not in (one.target, "rtrs_client")}


class Imports(Tree):
    """What the reader of imports understands."""

    def imports_of(self, text: str) -> set[str]:
        """What path/io.rs imports."""
        self.write("rtrs_client/path/io.rs", text)
        return {target for file, target in self.imports() if file == "path/io"}

    def test_trees(self) -> None:
        text = "use crate::{\n    api::{\n        Session,\n        self as session, //\n    },\n    base::*, //\n};\n"
        self.assertEqual(self.imports_of(text), {"api", "base"})

    def test_relative(self) -> None:
        self.assertEqual(self.imports_of("use super::Path;"), {"path"})
        self.assertEqual(self.imports_of("use super::super::api::Session;"), {"api"})
        self.assertEqual(self.imports_of("mod inner { use super::super::super::base::X; }"), {"base"})
        self.assertEqual(self.imports_of("mod inner { fn f() { super::g() } } fn g() {}"), set())
        self.assertEqual(self.imports_of("mod inner { }\nuse super::Path;"), {"path"})

    def test_paths_in_code(self) -> None:
        self.assertEqual(self.imports_of("fn f() { crate::other::g(1); }"), {"other"})
        self.assertEqual(self.imports_of("fn f() -> Vec<crate::api::Session> { x::<super::Path>() }"), {"path", "api"})
        self.assertEqual(self.imports_of("macro_rules! m { () => { $crate::other::g() }; }"), {"other"})
        self.assertEqual(self.imports_of("use crate::other; fn f() { other::g() }"), {"other"})

    def test_reexported_names_lead_to_their_file(self) -> None:
        self.assertEqual(self.imports_of("use crate::Session;"), {"api"})
        self.write("rtrs_client/rtrs_client.rs", ROOT.replace("pub use crate::{api::Session", "pub use crate::{api::*"))
        self.assertEqual(self.imports_of("use crate::Session;"), {"api"})

    def test_macros_are_found_at_the_root(self) -> None:
        self.write("rtrs_client/base.rs", "#[macro_export]\nmacro_rules! say { () => {}; }\n")
        self.assertEqual(self.imports_of("fn f() { crate::say!(); }"), {"base"})

    def test_what_is_no_import(self) -> None:
        for text in ("// use crate::api;", "/* /* use */ use crate::api; */", 'const A: &str = "use crate::api;";',
                     'const A: &str = r#"" use crate::api;"#;', "fn f<'a>() -> impl Sized + use<'a> {}",
                     "const A: char = '\"'; // crate::api::X\nconst B: char = '\"';", "pub(in crate::path) fn f() {}",
                     "fn f() { core::mem::take(x); Vec::new(); self.api::<u8>() }"):
            self.assertEqual(self.imports_of(text), set(), text)

    def test_files_by_attribute(self) -> None:
        self.write("rtrs_client/base.rs", '#[cfg(X)]\n#[path = "odd/place.rs"]\nmod tests;\n')
        self.write("rtrs_client/odd/place.rs", "use super::X;\nuse crate::api::Session;\n")
        self.assertEqual({target for file, target in self.imports() if file == "odd/place"}, {"base", "api"})


class Layers(Tree):
    """What the check says."""

    def test_good(self) -> None:
        self.write("rtrs_client/api.rs", "use proto::X; use crate::{path::Path, base};\npub struct Session;")
        self.write("rtrs_client/path.rs", "mod io;\npub struct Path; use crate::{base::Y, other::Z};")
        self.assertEqual(self.check(), [])

    def test_up(self) -> None:
        self.write("rtrs_client/base.rs", "\nuse crate::path::Path;")
        text = "\n".join(self.check())
        self.assertIn("rtrs_client: 1 upward imports, 0 allowed", text)
        self.assertIn("rtrs_client/base.rs:2: bottom imports path.rs of middle", text)

    def test_up_between_crates(self) -> None:
        self.write("proto/proto.rs", "use kernel_ext::X;")
        self.assertEqual(self.check(), ["proto/proto.rs:1: proto may not use kernel_ext"])
        self.write("proto/proto.rs", "")
        self.write("rtrs_client/base.rs", "fn f() { rtrs_server::g(); }")
        self.assertEqual(self.check(), ["rtrs_client/base.rs:1: rtrs_client may not use rtrs_server"])

    def test_up_in_the_picture(self) -> None:
        self.write(str(layers.DOCUMENT), PICTURE.replace("proto  uses", "proto  uses kernel_ext"))
        self.assertIn("proto uses kernel_ext, which is not below it", "\n".join(self.check()))

    def test_circle(self) -> None:
        self.write("rtrs_client/path.rs", "mod io;\nuse io::X;\npub struct Path;")
        self.write("rtrs_client/path/io.rs", "use crate::other::Y;")
        self.assertEqual(self.check(), [])
        self.write("rtrs_client/other.rs", "use crate::path::Path;")
        self.assertIn("in a circle: other, path, path/io", "\n".join(self.check()))

    def test_files_and_picture_agree(self) -> None:
        self.write("rtrs_client/new.rs", "")
        self.write("rtrs_client/base.rs", "mod lost;")
        text = "\n".join(self.check())
        self.assertIn("rtrs_client/new.rs: in no layer", text)
        self.assertIn("rtrs_client/new.rs: no `mod` leads to it", text)
        self.write(str(layers.DOCUMENT), PICTURE.replace("base", "base base gone gone/"))
        text = "\n".join(self.check())
        for part in ("rtrs_client has no gone", "rtrs_client has no gone/", "base of rtrs_client is there twice"):
            self.assertIn(part, text)

    def test_picture_is_read_strictly(self) -> None:
        for text in (PICTURE.replace("## Layers", "## Others"), PICTURE.replace("```text", "```rust"),
                     PICTURE.replace("proto  uses\n", "protocol  uses\n"),
                     PICTURE.replace("proto  uses\n    all         proto\n", "")):
            with self.assertRaises(ValueError):
                layers.picture(text)

    def test_ratchet(self) -> None:
        self.write("rtrs_client/base.rs", "use crate::path::Path;\nuse crate::api::Session;")
        self.write(str(ratchet.FILE), '["upward imports"]\n"rtrs_client" = 3\n')
        self.assertIn("2 upward imports, fewer than the 3", "\n".join(self.check()))
        self.assertEqual(layers.check(self.checkout, list(rust_source.CRATES), verbose=False, lower=True), [])
        self.assertEqual(self.check(), [])
        self.assertIn('"rtrs_client" = 2', (self.checkout / ratchet.FILE).read_text())
        self.write("rtrs_client/other.rs", "use crate::api::Session;")
        self.assertIn("3 upward imports, 2 allowed", "\n".join(
            layers.check(self.checkout, list(rust_source.CRATES), verbose=False, lower=True)))
        for name in ("base", "other"):
            self.write(f"rtrs_client/{name}.rs", "")
        layers.check(self.checkout, list(rust_source.CRATES), verbose=False, lower=True)
        self.assertEqual(self.check(), [])
        self.assertNotIn("rtrs_client", (self.checkout / ratchet.FILE).read_text())


if __name__ == "__main__":
    unittest.main()

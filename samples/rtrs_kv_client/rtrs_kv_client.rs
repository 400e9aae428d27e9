// SPDX-License-Identifier: GPL-2.0

//! Values by key on another machine: how `rtrs_client` is used (`Documentation/rtrs-api.md`).
//!
//! Each key of `keys` has a file, `/sys/class/rtrs-kv/KEY/value`, for the value on the server.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, unsafe_code)]

use kernel::str::{BStr, CString};
use kernel::sync::Arc;
use kernel_ext::device::class::{Class, ClassDevice};
use kernel_ext::module_param::ParameterString;
use kernel_ext::prelude::*;
use kernel_ext::sysfs::{Attribute, BinaryAttribute};
use rtrs_client::{OpenParams, PathAddress, SyncSession};

kernel_ext::module_parameter! {
    static SERVER: ParameterString = ParameterString::new(c"");
    name: "server",
    description: "Address of the server, such as ip:192.0.2.10",
}

kernel_ext::module_parameter! {
    static KEYS: ParameterString = ParameterString::new(c"colour");
    name: "keys",
    description: "Keys, with commas between them (default: colour)",
}

module! {
    type: KvClient,
    name: "rtrs_kv_client",
    authors: ["The RNBD in Rust developers"],
    description: "Values by key on another machine: a sample for rtrs_client",
    license: "GPL",
}

/// The module: a folder for each key. Dropping the last folder closes the session.
struct KvClient(#[expect(dead_code)] KVec<ClassDevice<Key>>);

impl kernel::Module for KvClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let path = PathAddress::parse(SERVER.get().as_bytes()).map_err(|_| EINVAL)?;
        let session = SyncSession::open(&OpenParams::new(c"kv", &[path], 1235))?;
        let (class, mut folders) = (Class::new(c"rtrs-kv")?, KVec::new());
        for name in KEYS.get().as_bytes().split(|byte| *byte == b',') {
            let name = CString::try_from_fmt(fmt!("{}", BStr::from_bytes(name)))?;
            let session = session.clone();
            let key = Arc::new(Key { session, name }, GFP_KERNEL)?;
            let folder = class.device(&key.name, &[CLEAR], key.clone())?;
            folder.add_file(&VALUE)?;
            folders.push(folder, GFP_KERNEL)?;
        }
        Ok(Self(folders))
    }
}

/// Writing to this file makes the value empty.
const CLEAR: Attribute<Key> =
    Attribute::new(c"clear", 0o200, None, Some(|key, _, _| key.put(0, &[])));

/// The value. It is read and written by pages. For each page the whole value is fetched or sent.
static VALUE: BinaryAttribute<Key> = BinaryAttribute::new(
    c"value",
    |key, at, out| {
        out.write_bytes(key.get()?.get(at as usize..).unwrap_or(&[]));
        Ok(())
    },
    |key, _, at, bytes| key.put(at, bytes),
);

struct Key {
    session: Arc<SyncSession>,
    name: CString,
}

impl Key {
    /// Fetches the value. A response is the length of the value, and the value.
    fn get(&self) -> Result<KVVec<u8>> {
        let mut response = KVVec::from_elem(0, self.session.max_io_size() as usize, GFP_KERNEL)?;
        self.session.read(self.name.to_bytes(), &mut response)?;
        let (len, bytes) = response.split_first_chunk().ok_or(EIO)?;
        let bytes = bytes.get(..u32::from_le_bytes(*len) as usize).ok_or(EIO)?;
        let mut value = KVVec::new();
        value.extend_from_slice(bytes, GFP_KERNEL)?;
        Ok(value)
    }

    /// Replaces the bytes of the value from `at` on.
    fn put(&self, at: u64, bytes: &[u8]) -> Result {
        let old = if at == 0 { KVVec::new() } else { self.get()? };
        let mut value = KVVec::new();
        value.extend_from_slice(old.get(..at as usize).ok_or(EINVAL)?, GFP_KERNEL)?;
        value.extend_from_slice(bytes, GFP_KERNEL)?;
        if value.len().checked_add(4) > Some(self.session.max_io_size() as usize) {
            return Err(EFBIG);
        }
        self.session.write(self.name.to_bytes(), &value)
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The identity of a disk here, which is that of the server's disk.

use kernel_ext::block::disk::{
    UniqueIdKind,
    UNIQUE_ID_LEN, //
};
use proto::rnbd::{
    IdKind,
    Wwid, //
};

/// The identifier in the disk's wwid, and its length in bytes. `None` if the wwid has no
/// identifier, or one of another kind.
pub(crate) fn unique_id(wwid: &Wwid, asked: UniqueIdKind) -> Option<([u8; UNIQUE_ID_LEN], usize)> {
    let id = wwid.unique_id()?;
    let kind = match id.kind {
        IdKind::Naa => UniqueIdKind::Naa,
        IdKind::Eui => UniqueIdKind::Eui,
    };
    let mut bytes = [0; UNIQUE_ID_LEN];
    let len = id.as_bytes().len();
    bytes.get_mut(..len)?.copy_from_slice(id.as_bytes());
    (kind == asked).then_some((bytes, len))
}

// SPDX-License-Identifier: GPL-2.0

//! Structures on the wire: their declaration, and how they are read and written.

pub(crate) use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

use crate::error::ProtoError;

/// Declares structures with their sizes and the offset of each field, in bytes. A structure with
/// another size or offset does not compile. Documentation/protocol.md has the same tables, and a
/// test compares the two.
macro_rules! wire_structs {
    ($(
        $(#[$doc:meta])*
        struct $type:ident: $size:literal {
            $($(#[$field_doc:meta])* $offset:literal => $field:ident: $field_type:ty,)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(
            Clone,
            Copy,
            Debug,
            zerocopy_derive::FromBytes,
            zerocopy_derive::IntoBytes,
            zerocopy_derive::Immutable,
            zerocopy_derive::KnownLayout,
        )]
        #[repr(C)]
        pub(crate) struct $type {
            $($(#[$field_doc])* pub(crate) $field: $field_type,)*
        }

        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)*
        };
    )*};
}
pub(crate) use wire_structs;

/// The structure at the front of `bytes`, and the bytes behind it. `what` names it in the error.
pub(crate) fn split<'a, T: FromBytes + KnownLayout + Immutable>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(&'a T, &'a [u8]), ProtoError> {
    T::ref_from_prefix(bytes).map_err(|_| ProtoError::TooShort {
        what,
        len: bytes.len(),
        need: size_of::<T>(),
    })
}

/// Checks the type field of a message.
pub(crate) fn check_type(what: &'static str, found: U16, expected: u16) -> Result<(), ProtoError> {
    match found.get() {
        found if found == expected => Ok(()),
        found => Err(ProtoError::BadType { what, found }),
    }
}

/// The bytes of a structure.
pub(crate) fn to_array<T: IntoBytes + Immutable, const N: usize>(value: &T) -> [u8; N] {
    const { assert!(size_of::<T>() == N) };
    let mut bytes = [0; N];
    // This cannot fail: the sizes are equal.
    let _ = value.write_to(&mut bytes);
    bytes
}

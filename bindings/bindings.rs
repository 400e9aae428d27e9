// SPDX-License-Identifier: GPL-2.0

//! Raw bindings of the RDMA headers and of the helpers of this folder.
//!
//! The kernel crate's own bindings are in scope, too, so that a type has only one definition.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub(crate) use kernel::bindings::*;
use kernel::ffi;
use pin_init::{
    MaybeZeroable,
    Zeroable, //
};

// bindgen does not derive `Zeroable` for its own type.
// SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

include!(env!("RNBD_BINDINGS"));

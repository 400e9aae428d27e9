// SPDX-License-Identifier: GPL-2.0

//! Functions that modules in C call.
//!
//! A caller in C passes pointers, and by the C header has promised what they point to. Here they
//! become types that can only be used as that header allows, so the functions themselves are safe
//! code. [`export_to_c!`](crate::export_to_c) makes the functions of a header.
//!
//! # Promises of a header to its callers
//!
//! Two promises of a header last longer than a call, and no type can express their end:
//!
//! - A callback ([`NumberCallback`], [`ValueCallback`], [`ServerCallbacks`]) is not called any more
//!   after the function of the header that ends it has returned, or after it was called once.
//! - Lent memory is not used any more after its loan has ended. The memory of a [`LentList`] is
//!   lent to the callee until its request is confirmed. [`CallbackMemory`] is lent to the caller
//!   until the caller responds.
//!
//! The crate that implements the header's functions keeps these promises, and documents where.

mod address;
mod argument;
mod callback;
mod handle;
mod handle_table;
mod memory;

pub use address::{
    Address,
    AddressPair,
    AddressPairs,
    BothEnds,
    RawAddressPair, //
};
pub use argument::{
    Call,
    FromC, //
};
pub use callback::{
    CallbackMemory,
    NumberCallback,
    Private,
    PrivateCell,
    RawNumberCallback,
    RawServerCallbacks,
    RawValueCallback,
    ServerCallbacks,
    ValueCallback, //
};
pub use handle::{
    error_pointer,
    peek,
    Handle,
    HandleList,
    Handles, //
};
pub use handle_table::HandleTable;
pub use memory::{
    Buffer,
    Bytes,
    LentList,
    Place,
    Places,
    RawVector,
    Text,
    Vectors, //
};

/// Makes functions that modules in C call. Each function converts its arguments to [`FromC`] types
/// and calls a safe function with them.
///
/// ```ignore
/// kernel_ext::export_to_c! {
///     /// C: `example_send`.
///     fn example_send(
///         target: Handle = (target: *const c_void),
///         message: Bytes<'_> = (message: *const u8, len: usize),
///     ) -> c_int = functions::send;
/// }
/// ```
///
/// The crate that uses this macro has a C header with the same functions. The header requires of
/// callers what the types require, and the crate keeps [the promises of the
/// header](crate::c_caller). A C file of the crate exports the functions, and checks that the
/// structures of C and Rust are equal.
#[macro_export]
macro_rules! export_to_c {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident(
            $($argument:ident: $type:ty = ($($raw:ident: $raw_type:ty),+ $(,)?)),+ $(,)?
        ) $(-> $result:ty)? = $function:path;
    )+) => { $(
        $(#[$attribute])*
        ///
        /// # Safety
        ///
        /// As of the C header.
        #[no_mangle]
        unsafe extern "C" fn $name($($($raw: $raw_type),+),+) $(-> $result)? {
            let call = $crate::c_caller::Call::new();
            $(
                // SAFETY: By the header of this function the caller promises the requirements of
                // the type.
                let $argument = unsafe {
                    <$type as $crate::c_caller::FromC<'_>>::from_c(($($raw,)+), &call)
                };
            )+
            $function($($argument),+)
        }
    )+ };
}

// SPDX-License-Identifier: GPL-2.0

//! Functions of ours that modules in C call.
//!
//! A caller in C hands in pointers, and has promised by a C header what they are. Here they become
//! types that can only be used as that header allows, so that the functions themselves are safe
//! code. [`export_to_c!`](crate::export_to_c) makes the functions of a header.
//!
//! # What a header promises its callers
//!
//! Two things belong to a caller in C for longer than a call, and no type can see when that ends:
//!
//! - a callback ([`NumberCallback`], [`ValueCallback`], [`ServerCallbacks`]) may be called until
//!   the function of the header that ends it has returned, or once;
//! - memory is lent: that of a [`LentList`] to us, until its request is confirmed, and
//!   [`CallbackMemory`] to the caller, until the caller responds.
//!
//! The crate that makes the header's functions keeps to these two, and says where it does.

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

/// Makes functions that modules in C call: each turns its arguments into [`FromC`] types and calls
/// a safe function with them.
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
/// The crate that uses this has a C header with the same functions, which asks of callers what the
/// types ask for, and keeps what [the header promises](crate::c_caller) them. The functions are
/// exported by a C file of the crate, which compares the structures of both, too.
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
                // SAFETY: The caller has promised it, by the header of this function.
                let $argument = unsafe {
                    <$type as $crate::c_caller::FromC<'_>>::from_c(($($raw,)+), &call)
                };
            )+
            $function($($argument),+)
        }
    )+ };
}

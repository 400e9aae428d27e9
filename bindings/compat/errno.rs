// SPDX-License-Identifier: GPL-2.0

//! Errors for which the kernel crate has names only since 7.3.

use crate::bindings;
use core::mem;
use kernel::error::Error;

/// Makes an error. `Error::from_errno()` is not a `const fn`, so constants cannot call it.
const fn new(errno: u32) -> Error {
    assert!(0 < errno && errno <= bindings::MAX_ERRNO);
    // SAFETY: Before 7.3 an `Error` has one field, a `NonZeroI32` from `-MAX_ERRNO` to -1. The
    // assertion checks that the number is in that range, `transmute()` checks that the sizes are
    // equal, and the constant below checks the representation with an error of the kernel crate.
    unsafe { mem::transmute::<i32, Error>(-(errno as i32)) }
}

const _: () = {
    // SAFETY: An integer has no invalid values, and the sizes are equal or this does not compile.
    let made = unsafe { mem::transmute::<Error, i32>(kernel::error::code::EINVAL) };
    assert!(made == -(bindings::EINVAL as i32));
};

macro_rules! errors {
    ($($name:ident: $meaning:literal,)*) => {
        $(
            #[doc = $meaning]
            pub const $name: Error = new(bindings::$name);
        )*
    };
}

errors! {
    EAFNOSUPPORT: "Address family not supported by protocol.",
    EALREADY: "Operation already in progress.",
    ECANCELED: "Operation Canceled.",
    ECOMM: "Communication error on send.",
    ECONNABORTED: "Software caused connection abort.",
    ECONNREFUSED: "Connection refused.",
    ECONNRESET: "Connection reset by peer.",
    EDEADLK: "Resource deadlock would occur.",
    EHOSTDOWN: "Host is down.",
    EHOSTUNREACH: "No route to host.",
    EILSEQ: "Illegal byte sequence.",
    EKEYREJECTED: "Key was rejected by service.",
    ELOOP: "Too many symbolic links encountered.",
    ENAMETOOLONG: "File name too long.",
    ENOKEY: "Required key not available.",
    ENOMEDIUM: "No medium found.",
    ENOTCONN: "Transport endpoint is not connected.",
    EOPNOTSUPP: "Operation not supported on transport endpoint.",
    EPROTO: "Protocol error.",
    ESHUTDOWN: "Cannot send after transport endpoint shutdown.",
}

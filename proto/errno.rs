// SPDX-License-Identifier: GPL-2.0

//! Error numbers, as the C modules return them.

/// An error number; the value is positive, as in `<errno.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl Errno {
            $(
                #[doc = $doc]
                pub const $name: Self = Self($value);
            )*

            /// The symbolic name, `"E?"` for a number that is not in this list.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => stringify!($name),)*
                    _ => "E?",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted.";
    ENOENT = 2, "No such file or directory.";
    EIO = 5, "Input/output error.";
    ENXIO = 6, "No such device or address.";
    ENOMEM = 12, "Out of memory; also the C client's error for too many paths.";
    EACCES = 13, "Permission denied; the error of an export policy.";
    EBUSY = 16, "Device or resource busy.";
    EEXIST = 17, "File exists.";
    ENODEV = 19, "No such device.";
    EINVAL = 22, "Invalid argument.";
    EFBIG = 27, "File too large.";
    ENOSPC = 28, "No space left on device.";
    EROFS = 30, "Read-only.";
    ERANGE = 34, "Result out of range.";
    ENAMETOOLONG = 36, "File name too long.";
    EBADE = 52, "Invalid exchange; to the block layer a reservation conflict.";
    EMSGSIZE = 90, "Message too long.";
    EPROTONOSUPPORT = 93, "Protocol not supported.";
    EOPNOTSUPP = 95, "Operation not supported.";
    ECONNABORTED = 103, "Connection aborted.";
    ECONNRESET = 104, "Connection reset by peer.";
    ENOTCONN = 107, "Not connected.";
    ETIMEDOUT = 110, "Connection timed out.";
    EHOSTDOWN = 112, "The server is draining; no other response of a server has this number.";
    EHOSTUNREACH = 113, "No route to host.";
    EALREADY = 114, "Operation already in progress.";
    EINPROGRESS = 115, "Operation now in progress.";
    EUCLEAN = 117, "A file of the server is damaged.";
    ENOKEY = 126, "The server asks for a proof of identity, which the client does not offer.";
    EKEYREJECTED = 129, "The proof of identity is wrong, or of a key that is not known.";
}

impl Errno {
    /// The largest error number the kernel knows (`MAX_ERRNO`).
    pub const MAX: i32 = 4095;

    /// The largest error number that user space may see. Larger numbers are signals inside the
    /// kernel, for example to restart a system call. A driver's file in sysfs that returns
    /// `EIOCBQUEUED`, which means that a write goes on, stops the machine.
    pub const USER_MAX: i32 = 511;

    /// From a kernel return value (`-4095..=-1`); `None` for any other value.
    pub const fn from_kernel(ret: i32) -> Option<Self> {
        if ret < 0 && ret >= -Self::MAX {
            Some(Self(ret.wrapping_neg()))
        } else {
            None
        }
    }

    /// From a peer's number, `-511..=-1` (see [`Self::USER_MAX`]); `None` for any other number.
    pub const fn from_peer(number: i32) -> Option<Self> {
        match Self::from_kernel(number) {
            Some(Self(number)) if number <= Self::USER_MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// The positive number.
    pub const fn get(self) -> i32 {
        self.0
    }

    /// The kernel return value, `-4095..=-1`, which `Error::from_errno` takes.
    pub const fn to_kernel(self) -> i32 {
        self.0.wrapping_neg()
    }
}

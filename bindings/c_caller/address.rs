// SPDX-License-Identifier: GPL-2.0

//! Addresses of callers in C.

use super::argument::{
    Call,
    FromC, //
};
use crate::{
    net::socket_address::SocketAddress,
    prelude::*, //
};
use core::ptr;

/// Reads an address. `EINVAL` for null, `EAFNOSUPPORT` for another family than ours.
///
/// # Safety
///
/// As of [`SocketAddress::from_sockaddr()`], if it is not null.
unsafe fn read(raw: *const u8) -> Result<SocketAddress> {
    if raw.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the function's requirement.
    unsafe { SocketAddress::from_sockaddr(raw) }
}

/// Writes an address. `EINVAL` for null.
///
/// # Safety
///
/// `to` must be null, or valid for writes of a `struct sockaddr_storage`.
unsafe fn write(to: *mut u8, address: &SocketAddress) -> Result {
    if to.is_null() {
        return Err(EINVAL);
    }
    let bytes = address.as_bytes();
    // SAFETY: By the function's requirement; that is how long the structure is.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// C: a pointer to a `struct sockaddr` of its family's length, or null.
pub struct Address<'call> {
    raw: *const u8,
    _call: &'call Call,
}

impl Address<'_> {
    /// The address. `EINVAL` for null, `EAFNOSUPPORT` for another family than ours.
    pub fn read(&self) -> Result<SocketAddress> {
        // SAFETY: The caller promises that.
        unsafe { read(self.raw) }
    }
}

impl<'call> FromC<'call> for Address<'call> {
    type Raw = (*const u8,);

    unsafe fn from_c((raw,): Self::Raw, call: &'call Call) -> Self {
        Self { raw, _call: call }
    }
}

/// A source, unless it was left out, and a destination, or why they cannot be read.
pub type BothEnds = (Option<Result<SocketAddress>>, Result<SocketAddress>);

/// C: a structure of two pointers to a `struct sockaddr_storage`, each perhaps null.
#[repr(C)]
pub struct RawAddressPair {
    source: *mut u8,
    destination: *mut u8,
}

/// A pointer to two addresses, or null.
pub struct AddressPair<'call> {
    raw: *mut RawAddressPair,
    _call: &'call Call,
}

impl AddressPair<'_> {
    /// Whether the caller has given none.
    pub fn is_null(&self) -> bool {
        self.raw.is_null()
    }

    /// Both addresses, of which the caller may leave out the first; errors of reading them.
    /// `EINVAL` for null.
    pub fn read(&self) -> Result<BothEnds> {
        // SAFETY: The caller promises that it is null or valid.
        let raw = unsafe { self.raw.as_ref() }.ok_or(EINVAL)?;
        // SAFETY: The caller promises that both are null or addresses.
        Ok(unsafe { read_both(raw) })
    }

    /// Writes both addresses to where the caller has room for them; without a source the pointer to
    /// it becomes null. `EINVAL` for null where there is an address.
    pub fn write(&self, source: Option<&SocketAddress>, destination: &SocketAddress) -> Result {
        // SAFETY: The caller promises that it is null or valid, and uses it for nothing else during
        // the call.
        let raw = unsafe { self.raw.as_mut() }.ok_or(EINVAL)?;
        match source {
            // SAFETY: The caller promises that it is null or has that room.
            Some(source) => unsafe { write(raw.source, source) }?,
            None => raw.source = ptr::null_mut(),
        }
        // SAFETY: As above.
        unsafe { write(raw.destination, destination) }
    }
}

/// # Safety
///
/// Both are null or addresses.
unsafe fn read_both(raw: &RawAddressPair) -> BothEnds {
    // SAFETY: By the function's requirement.
    unsafe {
        let source = (!raw.source.is_null()).then(|| read(raw.source));
        (source, read(raw.destination))
    }
}

impl<'call> FromC<'call> for AddressPair<'call> {
    type Raw = (*mut RawAddressPair,);

    unsafe fn from_c((raw,): Self::Raw, call: &'call Call) -> Self {
        Self { raw, _call: call }
    }
}

/// Several of them, or null.
pub struct AddressPairs<'call> {
    raw: *const RawAddressPair,
    count: usize,
    _call: &'call Call,
}

impl AddressPairs<'_> {
    /// How many there are; 0 for null.
    pub fn count(&self) -> usize {
        if self.raw.is_null() {
            0
        } else {
            self.count
        }
    }

    /// The addresses of pair `index`, as of [`AddressPair::read()`]. `EINVAL` if there is none.
    pub fn read(&self, index: usize) -> Result<BothEnds> {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: The caller promises that many pairs, of addresses or null.
        Ok(unsafe { read_both(&*self.raw.add(index)) })
    }
}

impl<'call> FromC<'call> for AddressPairs<'call> {
    type Raw = (*const RawAddressPair, usize);

    unsafe fn from_c((raw, count): Self::Raw, call: &'call Call) -> Self {
        Self {
            raw,
            count,
            _call: call,
        }
    }
}

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

/// Reads an address. `EINVAL` for null, `EAFNOSUPPORT` for a family that [`SocketAddress`] does not
/// have.
///
/// # Safety
///
/// `raw` must be null, or meet the requirement of [`SocketAddress::from_sockaddr()`].
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
    // SAFETY: By the function's requirement. `bytes` has the length of the structure.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// C: a pointer to a `struct sockaddr` of its family's length, or null.
pub struct Address<'call> {
    raw: *const u8,
    _call: &'call Call,
}

impl Address<'_> {
    /// The address. `EINVAL` for null, `EAFNOSUPPORT` for a family that [`SocketAddress`] does not
    /// have.
    pub fn read(&self) -> Result<SocketAddress> {
        // SAFETY: The caller promises that the pointer is null or points to an address of its
        // family's length.
        unsafe { read(self.raw) }
    }
}

impl<'call> FromC<'call> for Address<'call> {
    type Raw = (*const u8,);

    unsafe fn from_c((raw,): Self::Raw, call: &'call Call) -> Self {
        Self { raw, _call: call }
    }
}

/// A source, `None` if the caller left it out, and a destination. An error is that of reading the
/// address.
pub type BothEnds = (Option<Result<SocketAddress>>, Result<SocketAddress>);

/// C: a structure of two pointers to a `struct sockaddr_storage`. Each pointer may be null.
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
    /// Whether the caller passed null.
    pub fn is_null(&self) -> bool {
        self.raw.is_null()
    }

    /// Reads both addresses; the caller may leave out the source. `EINVAL` for null.
    pub fn read(&self) -> Result<BothEnds> {
        // SAFETY: The caller promises that the pointer is null or valid.
        let raw = unsafe { self.raw.as_ref() }.ok_or(EINVAL)?;
        // SAFETY: The caller promises that each pointer is null or points to an address.
        Ok(unsafe { read_both(raw) })
    }

    /// Writes both addresses to the caller's room for them. Without a source the pointer to it
    /// becomes null. `EINVAL` if a needed pointer is null.
    pub fn write(&self, source: Option<&SocketAddress>, destination: &SocketAddress) -> Result {
        // SAFETY: The caller promises that the pointer is null or valid, and does not use the
        // structure during the call.
        let raw = unsafe { self.raw.as_mut() }.ok_or(EINVAL)?;
        match source {
            // SAFETY: The caller promises that the pointer is null or has room for a `struct
            // sockaddr_storage`.
            Some(source) => unsafe { write(raw.source, source) }?,
            None => raw.source = ptr::null_mut(),
        }
        // SAFETY: As above.
        unsafe { write(raw.destination, destination) }
    }
}

/// # Safety
///
/// Each pointer is null or points to an address.
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

/// A pointer to several address pairs, or null.
pub struct AddressPairs<'call> {
    raw: *const RawAddressPair,
    count: usize,
    _call: &'call Call,
}

impl AddressPairs<'_> {
    /// The number of pairs; 0 for null.
    pub fn count(&self) -> usize {
        if self.raw.is_null() {
            0
        } else {
            self.count
        }
    }

    /// The addresses of pair `index`, as of [`AddressPair::read()`]. `EINVAL` if there is no such
    /// pair.
    pub fn read(&self, index: usize) -> Result<BothEnds> {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: The caller promises `count` pairs, in which each pointer is null or points to an
        // address.
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

// SPDX-License-Identifier: GPL-2.0

//! Memory of callers in C that functions read and write.

use super::argument::{
    Call,
    FromC, //
};
use crate::{
    prelude::*,
    rdma::Direction,
    scatterlist::ScatterTable, //
};
use core::{
    ptr,
    slice, //
};

/// A text that ends with a NUL, or null. The caller does not change the text during the call.
pub struct Text<'call>(Option<&'call CStr>);

impl<'call> Text<'call> {
    /// The text. `EINVAL` for null.
    pub fn get(&self) -> Result<&'call CStr> {
        self.0.ok_or(EINVAL)
    }
}

impl<'call> FromC<'call> for Text<'call> {
    type Raw = (*const c_char,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The pointer is not null here. The caller promises the rest, also that the memory
        // does not change.
        Self((!raw.is_null()).then(|| unsafe { CStr::from_char_ptr(raw) }))
    }
}

/// Bytes, or null. The caller does not change the bytes during the call.
pub struct Bytes<'call>(Option<&'call [u8]>);

impl<'call> Bytes<'call> {
    /// The bytes. `EINVAL` for null.
    pub fn get(&self) -> Result<&'call [u8]> {
        self.0.ok_or(EINVAL)
    }
}

impl<'call> FromC<'call> for Bytes<'call> {
    type Raw = (*const u8, usize);

    unsafe fn from_c((raw, len): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The pointer is not null here. The caller promises the rest, also that the memory
        // does not change.
        Self((!raw.is_null()).then(|| unsafe { slice::from_raw_parts(raw, len) }))
    }
}

/// Room of `len` bytes for a text with its NUL. Null has no room.
pub struct Buffer<'call> {
    to: *mut u8,
    len: usize,
    _call: &'call Call,
}

impl Buffer<'_> {
    /// Writes `text` and a NUL, cut to the room. Returns the number of bytes that were written
    /// before the NUL (C: `scnprintf`).
    pub fn write_text(&self, text: &[u8]) -> usize {
        let Some(most) = self.len.checked_sub(1).filter(|_| !self.to.is_null()) else {
            return 0;
        };
        let written = text.len().min(most);
        // SAFETY: The caller promises `len` bytes of room. `written` bytes and the NUL fit.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), self.to, written);
            self.to.add(written).write(0);
        }
        written
    }
}

impl<'call> FromC<'call> for Buffer<'call> {
    type Raw = (*mut u8, usize);

    unsafe fn from_c((to, len): Self::Raw, call: &'call Call) -> Self {
        Self {
            to,
            len,
            _call: call,
        }
    }
}

/// Room for a value, or null. `T` has the layout of the C structure.
pub struct Place<'call, T> {
    to: *mut T,
    _call: &'call Call,
}

impl<T> Place<'_, T> {
    /// Whether the caller passed null.
    pub fn is_null(&self) -> bool {
        self.to.is_null()
    }

    /// Writes `value`. `EINVAL` for null.
    pub fn write(&self, value: T) -> Result {
        if self.to.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The pointer is not null, and the caller promises room for a value.
        unsafe { self.to.write(value) };
        Ok(())
    }
}

impl<'call, T> FromC<'call> for Place<'call, T> {
    type Raw = (*mut T,);

    unsafe fn from_c((to,): Self::Raw, call: &'call Call) -> Self {
        Self { to, _call: call }
    }
}

/// Room for several values. Null has no room. `T` has the layout of the C structure.
pub struct Places<'call, T> {
    to: *mut T,
    count: u32,
    _call: &'call Call,
}

impl<T> Places<'_, T> {
    /// The number of values that fit.
    pub fn count(&self) -> usize {
        match self.to.is_null() {
            true => 0,
            false => self.count as usize,
        }
    }

    /// Writes `value` to place `index`. `EINVAL` if there is no such place.
    pub fn write(&self, index: usize, value: T) -> Result {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: The pointer is not null, and the caller promises `count` places.
        unsafe { self.to.add(index).write(value) };
        Ok(())
    }
}

impl<'call, T> FromC<'call> for Places<'call, T> {
    type Raw = (*mut T, c_uint);

    unsafe fn from_c((to, count): Self::Raw, call: &'call Call) -> Self {
        Self {
            to,
            count,
            _call: call,
        }
    }
}

/// C: `struct kvec`.
#[repr(C)]
pub struct RawVector {
    base: *const u8,
    len: usize,
}

/// A message in pieces. The caller does not change the message during the call.
pub struct Vectors<'call> {
    vectors: *const RawVector,
    count: usize,
    _call: &'call Call,
}

impl<'call> Vectors<'call> {
    /// The number of pieces; 0 for null.
    pub fn count(&self) -> usize {
        if self.vectors.is_null() {
            0
        } else {
            self.count
        }
    }

    /// The piece `index`, for pieces that are messages of their own. `EINVAL` if there is no such
    /// piece, or if its address is null though its length is not 0.
    pub fn piece(&self, index: usize) -> Result<&'call [u8]> {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: The pointer is not null, and the caller promises `count` pieces.
        let RawVector { base, len } = unsafe { &*self.vectors.add(index) };
        match len {
            0 => Ok(&[]),
            _ if base.is_null() => Err(EINVAL),
            // SAFETY: The caller promises `len` bytes, which do not change during the call.
            _ => Ok(unsafe { slice::from_raw_parts(*base, *len) }),
        }
    }

    /// Copies the whole message to `room`. `EMSGSIZE` if the message is longer, `EINVAL` if an
    /// address is null that is needed.
    pub fn gather<'room>(&self, room: &'room mut [u8]) -> Result<&'room [u8]> {
        let mut used = 0usize;
        for index in 0..self.count {
            if self.vectors.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: The caller promises `count` pieces.
            let RawVector { base, len } = unsafe { self.vectors.add(index).read() };
            let end = used.checked_add(len).ok_or(EMSGSIZE)?;
            let to = room.get_mut(used..end).ok_or(EMSGSIZE)?;
            if len != 0 && base.is_null() {
                return Err(EINVAL);
            }
            if len != 0 {
                // SAFETY: The caller promises `len` bytes. `to` has the same length, and is
                // borrowed exclusively.
                unsafe { ptr::copy_nonoverlapping(base, to.as_mut_ptr(), len) };
            }
            used = end;
        }
        room.get(..used).ok_or(EMSGSIZE)
    }
}

impl<'call> FromC<'call> for Vectors<'call> {
    type Raw = (*const RawVector, usize);

    unsafe fn from_c((vectors, count): Self::Raw, call: &'call Call) -> Self {
        Self {
            vectors,
            count,
            _call: call,
        }
    }
}

/// The first `count` entries of a list of memory (`struct scatterlist`). The list is lent for the
/// call, and its memory for as long as the header of the caller says.
pub struct LentList<'call> {
    list: *mut kernel::bindings::scatterlist,
    count: u32,
    _call: &'call Call,
}

impl LentList<'_> {
    /// The number of entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Fills `table` with the memory, for access in `direction`. Does nothing if there are no
    /// entries. Errors as of `ScatterTable::set_lent()`. Any context.
    ///
    /// After the loan has ended, the user of the table must not access the memory, neither with the
    /// CPU nor with a device, as [the header promises](super).
    pub fn lend(&self, table: &mut ScatterTable, direction: Direction) -> Result {
        if self.count == 0 {
            return Ok(());
        }
        // SAFETY: The caller promises a valid list, and that the memory stays as long as it is
        // lent. The crate of the header does not use the memory for longer.
        unsafe { table.set_lent(self.list, self.count, direction) }
    }
}

impl<'call> FromC<'call> for LentList<'call> {
    type Raw = (*mut kernel::bindings::scatterlist, c_uint);

    unsafe fn from_c((list, count): Self::Raw, call: &'call Call) -> Self {
        Self {
            list,
            count,
            _call: call,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Memory of callers in C that is read and written.

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

/// A text that ends with a NUL; perhaps null. The caller does not change it during the call.
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
        // SAFETY: It is not null then, and the caller promises the rest.
        Self((!raw.is_null()).then(|| unsafe { CStr::from_char_ptr(raw) }))
    }
}

/// Bytes, or null. The caller does not change them during the call.
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
        // SAFETY: It is not null then, and the caller promises the rest.
        Self((!raw.is_null()).then(|| unsafe { slice::from_raw_parts(raw, len) }))
    }
}

/// Room for a text of so many bytes with its NUL. Null has no room.
pub struct Buffer<'call> {
    to: *mut u8,
    len: usize,
    _call: &'call Call,
}

impl Buffer<'_> {
    /// Writes `text` and a NUL, cut to the room; returns how many bytes were written before the NUL
    /// (C: `scnprintf`).
    pub fn write_text(&self, text: &[u8]) -> usize {
        let Some(most) = self.len.checked_sub(1).filter(|_| !self.to.is_null()) else {
            return 0;
        };
        let written = text.len().min(most);
        // SAFETY: The caller promises `len` bytes of room, and that with the NUL is not more.
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

/// Room for a value, or null. `T` is as the C structure.
pub struct Place<'call, T> {
    to: *mut T,
    _call: &'call Call,
}

impl<T> Place<'_, T> {
    /// Whether the caller has given none.
    pub fn is_null(&self) -> bool {
        self.to.is_null()
    }

    /// Writes `value`. `EINVAL` for null.
    pub fn write(&self, value: T) -> Result {
        if self.to.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: It is not null, and the caller promises the rest.
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

/// Room for several values, or null, which has none. `T` is as the C structure.
pub struct Places<'call, T> {
    to: *mut T,
    count: u32,
    _call: &'call Call,
}

impl<T> Places<'_, T> {
    /// For how many there is room.
    pub fn count(&self) -> usize {
        match self.to.is_null() {
            true => 0,
            false => self.count as usize,
        }
    }

    /// Writes `value` to place `index`. `EINVAL` if there is none.
    pub fn write(&self, index: usize, value: T) -> Result {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: It is not null, and the caller promises that many places.
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

/// A message in pieces. The caller does not change it during the call.
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

    /// One piece, where the pieces are messages of their own. `EINVAL` if there is none, or for
    /// null where something is to be.
    pub fn piece(&self, index: usize) -> Result<&'call [u8]> {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: It is not null, and the caller promises that many.
        let RawVector { base, len } = unsafe { &*self.vectors.add(index) };
        match len {
            0 => Ok(&[]),
            _ if base.is_null() => Err(EINVAL),
            // SAFETY: The caller promises that many bytes, and that they stay as they are.
            _ => Ok(unsafe { slice::from_raw_parts(*base, *len) }),
        }
    }

    /// Copies the message to `room`. `EMSGSIZE` if it is longer, `EINVAL` for null where something
    /// is to be.
    pub fn gather<'room>(&self, room: &'room mut [u8]) -> Result<&'room [u8]> {
        let mut used = 0usize;
        for index in 0..self.count {
            if self.vectors.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: The caller promises that many.
            let RawVector { base, len } = unsafe { self.vectors.add(index).read() };
            let end = used.checked_add(len).ok_or(EMSGSIZE)?;
            let to = room.get_mut(used..end).ok_or(EMSGSIZE)?;
            if len != 0 && base.is_null() {
                return Err(EINVAL);
            }
            if len != 0 {
                // SAFETY: The caller promises that many bytes, and there is as much room, which is
                // borrowed here.
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

/// The first entries of a list of memory (`struct scatterlist`), which is lent as the header of the
/// caller says; the list itself for the call.
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

    /// Has `table` describe the memory, to which a device may do as `direction` says; nothing if
    /// there are no entries. Errors as of `ScatterTable::set_lent()`. Any context.
    ///
    /// The user of the table does not touch the memory, by it or by a device, after it was lent, as
    /// [the header promises](super).
    pub fn lend(&self, table: &mut ScatterTable, direction: Direction) -> Result {
        if self.count == 0 {
            return Ok(());
        }
        // SAFETY: The caller promises the list, and that the memory stays as long as it is lent;
        // the crate of the header keeps to that.
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

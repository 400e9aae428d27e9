// SPDX-License-Identifier: GPL-2.0

//! Conversion of the arguments of a call.

/// The call of a function by a caller in C. Memory of the caller is borrowed for the lifetime of
/// this value.
pub struct Call(());

impl Call {
    /// Only for [`export_to_c!`](crate::export_to_c).
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(())
    }
}

/// A type that is made of one or several arguments of a C function.
pub trait FromC<'call>: Sized {
    /// The arguments.
    type Raw;

    /// Makes a value from the arguments that a caller in C has passed. Any context.
    ///
    /// # Safety
    ///
    /// `raw` must be valid as the type describes its arguments, as long as `call` exists.
    unsafe fn from_c(raw: Self::Raw, call: &'call Call) -> Self;
}

macro_rules! plain {
    ($($type:ty),+) => { $(
        /// A number. Every value is valid.
        impl<'call> FromC<'call> for $type {
            type Raw = (Self,);

            unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
                raw
            }
        }
    )+ };
}

plain!(u8, u16, i16, u32, i32, u64, usize);

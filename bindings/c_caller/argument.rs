// SPDX-License-Identifier: GPL-2.0

//! What the arguments of a call become.

/// The call of a function by a caller in C: what is borrowed from the caller is borrowed for as
/// long as this is there.
pub struct Call(());

impl Call {
    /// For [`export_to_c!`](crate::export_to_c).
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(())
    }
}

/// What one or several arguments of a function in C become.
pub trait FromC<'call>: Sized {
    /// The arguments.
    type Raw;

    /// Makes one of what a caller in C has handed in. Any context.
    ///
    /// # Safety
    ///
    /// `raw` is as the type says that a caller hands it in, until `call` goes.
    unsafe fn from_c(raw: Self::Raw, call: &'call Call) -> Self;
}

macro_rules! plain {
    ($($type:ty),+) => { $(
        /// A number, of which any is valid.
        impl<'call> FromC<'call> for $type {
            type Raw = (Self,);

            unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
                raw
            }
        }
    )+ };
}

plain!(u8, u16, i16, u32, i32, u64, usize);

// SPDX-License-Identifier: GPL-2.0

//! Files in `/dev` with a state for each open file.
//!
//! Would extend: `rust/kernel/miscdevice.rs`, which has no data of the device, and before 7.3 does
//! not keep the module loaded while a file is open.
//!
//! C header: [`include/linux/miscdevice.h`](srctree/include/linux/miscdevice.h)

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    page::PAGE_SIZE,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
    ModuleMetadata, //
};

use crate::{
    bindings,
    compat,
    prelude::*, //
};

/// An open file of a [`MiscDevice`]. All functions run in process context, and may sleep. Tasks may
/// share a file.
pub trait OpenFile: Send + Sync + Sized + 'static {
    /// The data that all files of the device share.
    type Context: Send + Sync + 'static;
    /// The module with these functions. It stays loaded while a file is open.
    type Module: ModuleMetadata + 'static;

    /// Opens a file.
    fn open(context: &Arc<Self::Context>) -> Result<Arc<Self>>;

    /// Takes all `bytes` of one write, at most a page.
    fn write(&self, bytes: &[u8]) -> Result;

    /// Reads the next bytes, at most a page, to the beginning of `out`. Returns their number; 0 at
    /// the end.
    fn read(&self, out: &mut [u8]) -> Result<usize>;
}

/// A device in `/dev` that only root can open (mode 0600). The device exists until this value is
/// dropped.
///
/// # Invariants
///
/// `inner` came from a `KBox`, and its device is registered.
pub struct MiscDevice<F: OpenFile> {
    inner: NonNull<Inner<F>>,
}

/// # Invariants
///
/// `raw` is the first field. `context` is not changed.
#[repr(C)]
struct Inner<F: OpenFile> {
    raw: UnsafeCell<bindings::miscdevice>,
    context: Arc<F::Context>,
}

// SAFETY: The device may be registered and removed in any task, and its context is `Send` and
// `Sync`.
unsafe impl<F: OpenFile> Send for MiscDevice<F> {}
// SAFETY: The type has no methods that take `&self`.
unsafe impl<F: OpenFile> Sync for MiscDevice<F> {}

impl<F: OpenFile> MiscDevice<F> {
    /// Makes the device `name`. Sleeps. Errors of `misc_register()`: `EBUSY` if no number is free,
    /// `EEXIST` if there is a device of this name.
    pub fn new(name: &'static CStr, context: Arc<F::Context>) -> Result<Self> {
        // SAFETY: All zeroes is valid for a structure of pointers and numbers.
        let mut raw: bindings::miscdevice = unsafe { MaybeUninit::zeroed().assume_init() };
        raw.minor = bindings::MISC_DYNAMIC_MINOR as c_int;
        raw.name = name.as_char_ptr();
        raw.fops = &Functions::<F>::TABLE;
        raw.mode = 0o600;
        let inner = Inner::<F> {
            raw: UnsafeCell::new(raw),
            context,
        };
        let inner = KBox::new(inner, GFP_KERNEL)?;
        // SAFETY: The device is initialised, and is not moved until it is deregistered.
        to_result(unsafe { bindings::misc_register(inner.raw.get()) })?;
        // INVARIANT: The device is registered.
        Ok(Self {
            inner: NonNull::from(KBox::leak(inner)),
        })
    }
}

impl<F: OpenFile> Drop for MiscDevice<F> {
    /// When this returns no file can be opened any more. Open files stay open. Sleeps.
    fn drop(&mut self) {
        // SAFETY: By the type invariant the device is registered.
        unsafe { bindings::misc_deregister((*self.inner.as_ptr()).raw.get()) };
        // SAFETY: By the type invariant `inner` came from a box. Only `open` uses it, and runs
        // under the lock that the deregistration has taken.
        drop(unsafe { KBox::from_raw(self.inner.as_ptr()) });
    }
}

struct Functions<F>(PhantomData<F>);

impl<F: OpenFile> Functions<F> {
    const TABLE: bindings::file_operations = {
        // SAFETY: All zeroes is valid for a structure of pointers and numbers.
        let mut table: bindings::file_operations = unsafe { MaybeUninit::zeroed().assume_init() };
        table.owner = compat::this_module::<F::Module>();
        table.open = Some(Self::open);
        table.release = Some(Self::release);
        table.read = Some(Self::read);
        table.write = Some(Self::write);
        table.llseek = Some(bindings::noop_llseek);
        table
    };

    /// # Safety
    ///
    /// Called by the kernel for a new file, whose private data are the `raw` of an [`Inner`], under
    /// the lock of all misc devices.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: By the safety requirement. `raw` is the first field of an `Inner`, and the device
        // is registered.
        let inner = unsafe { &*(*file).private_data.cast::<Inner<F>>() };
        match F::open(&inner.context) {
            Ok(opened) => {
                // SAFETY: The file is new, and no other code uses it.
                unsafe { (*file).private_data = Arc::into_raw(opened).cast_mut().cast() };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// Called by the kernel once for a file that [`Self::open`] has opened, when the file is
    /// closed.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The pointer came from `open`, and is not used any more.
        drop(unsafe { Arc::from_raw((*file).private_data.cast::<F>().cast_const()) });
        0
    }

    /// # Safety
    ///
    /// Called by the kernel for an open file of this device, with memory of user space.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        user: *mut c_char,
        len: usize,
        _offset: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: By the safety requirement the private data are the `F` that `open` has stored
        // there.
        let opened = unsafe { &*(*file).private_data.cast::<F>() };
        let run = || {
            let mut bytes = KVec::from_elem(0u8, len.min(PAGE_SIZE), GFP_KERNEL)?;
            let count = opened.read(&mut bytes)?;
            let read = bytes.get(..count).ok_or(EIO)?;
            let user = UserSlice::new(UserPtr::from_addr(user.addr()), len);
            user.writer().write_slice(read)?;
            Ok(count)
        };
        to_count(run())
    }

    /// # Safety
    ///
    /// As [`Self::read`].
    unsafe extern "C" fn write(
        file: *mut bindings::file,
        user: *const c_char,
        len: usize,
        _offset: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: As in `read`.
        let opened = unsafe { &*(*file).private_data.cast::<F>() };
        let run = || {
            if len > PAGE_SIZE {
                return Err(EMSGSIZE);
            }
            let mut bytes = KVec::from_elem(0u8, len, GFP_KERNEL)?;
            let user = UserSlice::new(UserPtr::from_addr(user.addr()), len);
            user.reader().read_slice(&mut bytes)?;
            opened.write(&bytes)?;
            Ok(len)
        };
        to_count(run())
    }
}

/// The return value of a read or a write.
fn to_count(result: Result<usize>) -> isize {
    match result {
        // The count is at most a page.
        Ok(count) => count as isize,
        Err(error) => error.to_errno() as isize,
    }
}

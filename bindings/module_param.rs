// SPDX-License-Identifier: GPL-2.0

//! Module parameters, which are set when the module is loaded and can be read in sysfs (mode 0444).
//!
//! Would extend: `rust/kernel/module_param.rs`, whose parameters are not in sysfs and never
//! strings.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use core::{
    cell::UnsafeCell,
    fmt::Write,
    mem::needs_drop,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    page::PAGE_SIZE, //
};

use crate::{
    bindings,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    sysfs::SysfsOutput, //
};

/// A type of module parameters.
pub trait ParameterValue: Sized + Send + Sync + 'static {
    /// The name of the type for `modinfo`.
    const TYPE_NAME: &'static str;

    /// The value if the user writes only the name; `None` if a value is required.
    const IMPLIED: Option<&'static CStr> = None;

    /// Parses the text of the user, and returns the new value in place of `self`. After an error
    /// the module is not loaded. Sleeps.
    fn parse(&self, text: &CStr) -> Result<Self>;

    /// Writes the value as text, without a newline.
    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result;
}

/// Parses the text of the user; the first argument is the present value.
type Parse<T> = fn(&T, &CStr) -> Result<T>;

/// A module parameter; made by [`module_parameter!`](crate::module_parameter).
///
/// # Invariants
///
/// - `state` changes from [`UNREAD`] to [`BEING_SET`] and back, and from [`UNREAD`] to [`READ`],
///   which is final.
/// - `value` is only written by the caller that has changed `state` to [`BEING_SET`].
pub struct Parameter<T> {
    value: UnsafeCell<T>,
    state: Atomic<u32>,
    parse: Parse<T>,
}

/// There is no reference to the value.
const UNREAD: u32 = 0;
/// The value is being replaced.
const BEING_SET: u32 = 1;
/// There may be references to the value.
const READ: u32 = 2;

// SAFETY: The value is only written while `state` is `BEING_SET`, and only read while it is `READ`.
// Besides, `set_raw()` and `get_raw()` read it: the module loader sets parameters one after the
// other, and before they are in sysfs.
unsafe impl<T: ParameterValue> Sync for Parameter<T> {}

impl<T: ParameterValue> Parameter<T> {
    /// Only for [`module_parameter!`](crate::module_parameter).
    #[doc(hidden)]
    pub const fn new(default: T, parse: Parse<T>) -> Self {
        Self {
            value: UnsafeCell::new(default),
            state: Atomic::new(UNREAD),
            parse,
        }
    }

    /// The value. After this call the parameter cannot be set any more.
    pub fn get(&self) -> &T {
        if self.state.load(ordering::Acquire) != READ {
            self.set_read();
        }
        // SAFETY: `state` is `READ` for good, so the value is not written any more.
        unsafe { &*self.value.get() }
    }

    /// Changes `state` to [`READ`], so that the value is not written any more.
    #[cold]
    fn set_read(&self) {
        while self.state.load(ordering::Acquire) != READ {
            // INVARIANT: The exchange only succeeds while the value is not being written.
            if self.state.cmpxchg(UNREAD, READ, ordering::Acquire).is_err() {
                // Another task is moving a value, which takes only a short time.
                core::hint::spin_loop();
            }
        }
    }

    /// Replaces the value. `EBUSY` if the value was read before.
    fn replace(&self, value: T) -> Result<T> {
        let state = &self.state;
        if state.cmpxchg(UNREAD, BEING_SET, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: This call has changed `state` to `BEING_SET`, so no other code reads or writes
        // the value.
        let old = unsafe { self.value.get().replace(value) };
        state.store(UNREAD, ordering::Release);
        Ok(old)
    }

    /// `kernel_param_ops::set`.
    ///
    /// # Safety
    ///
    /// Called by the module loader, while it loads the module, with a string or null and with a
    /// `kernel_param` whose argument is a `Parameter<T>`.
    #[doc(hidden)]
    pub unsafe extern "C" fn set_raw(
        text: *const c_char,
        param: *const bindings::kernel_param,
    ) -> c_int {
        from_result(|| {
            let text = if text.is_null() {
                T::IMPLIED.ok_or(EINVAL)?
            } else {
                // SAFETY: By the safety requirement.
                unsafe { CStr::from_char_ptr(text) }
            };
            // SAFETY: By the safety requirement.
            let this = unsafe { &*(*param).__bindgen_anon_1.arg.cast::<Self>() };
            // SAFETY: The loader sets parameters one after the other, so the value is not being
            // written.
            let value = (this.parse)(unsafe { &*this.value.get() }, text)?;
            drop(this.replace(value)?);
            Ok(0)
        })
    }

    /// `kernel_param_ops::free`, if the type needs a drop.
    #[doc(hidden)]
    pub const FREE_RAW: Option<unsafe extern "C" fn(*mut c_void)> = if needs_drop::<T>() {
        Some(Self::free_raw)
    } else {
        None
    };

    /// # Safety
    ///
    /// Called by the module loader with a `Parameter<T>` when no code of its module runs any more.
    unsafe extern "C" fn free_raw(parameter: *mut c_void) {
        // SAFETY: By the safety requirement the value is not used any more.
        unsafe { (*parameter.cast::<Self>()).value.get().drop_in_place() };
    }

    /// `kernel_param_ops::get`.
    ///
    /// # Safety
    ///
    /// Called by sysfs with a page and with a `kernel_param` whose argument is a `Parameter<T>`.
    #[doc(hidden)]
    pub unsafe extern "C" fn get_raw(
        page: *mut c_char,
        param: *const bindings::kernel_param,
    ) -> c_int {
        let Some(page) = NonNull::new(page) else {
            return EINVAL.to_errno();
        };
        // SAFETY: By the safety requirement.
        let mut out = unsafe { SysfsOutput::new(page.cast(), SysfsOutput::PAGE) };
        // SAFETY: By the safety requirement.
        let this = unsafe { &*(*param).__bindgen_anon_1.arg.cast::<Self>() };
        // SAFETY: The value is not written once the parameter is in sysfs.
        let value = unsafe { &*this.value.get() };
        // Output never fails; it is cut off instead.
        let _ = value.show(&mut out);
        let _ = out.write_str("\n");
        out.len() as c_int
    }
}

macro_rules! impl_number {
    ($($type:ty, $name:literal, $parse:ident;)*) => {$(
        impl ParameterValue for $type {
            const TYPE_NAME: &'static str = $name;

            fn parse(&self, text: &CStr) -> Result<Self> {
                let mut value = 0;
                // SAFETY: The string is valid, and so is the pointer for the number.
                to_result(unsafe { bindings::$parse(text.as_char_ptr(), 0, &mut value) })?;
                Ok(value)
            }

            fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
                write!(out, "{self}")
            }
        }
    )*};
}

impl_number! {
    u16, "ushort", kstrtou16;
    i32, "int", kstrtoint;
    u32, "uint", kstrtouint;
}

impl ParameterValue for bool {
    const TYPE_NAME: &'static str = "bool";

    const IMPLIED: Option<&'static CStr> = Some(c"1");

    fn parse(&self, text: &CStr) -> Result<Self> {
        let mut value = false;
        // SAFETY: The string is valid, and so is the pointer for the result.
        to_result(unsafe { bindings::kstrtobool(text.as_char_ptr(), &mut value) })?;
        Ok(value)
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        out.write_str(if *self { "Y" } else { "N" })
    }
}

/// A string parameter.
pub struct ParameterString(Text);

enum Text {
    Default(&'static CStr),
    /// The bytes with a NUL at the end, and no other NUL.
    Given(KVec<u8>),
}

impl ParameterString {
    /// The longest string, in bytes: as much as sysfs shows.
    pub const MAX_LEN: usize = PAGE_SIZE - 1;

    /// The string `default`.
    pub const fn new(default: &'static CStr) -> Self {
        Self(Text::Default(default))
    }

    /// A copy of `text`. `ENOSPC` if `text` is too long, `EINVAL` if it has a NUL. Sleeps.
    pub fn copy_of(text: &[u8]) -> Result<Self> {
        if text.len() > Self::MAX_LEN {
            return Err(ENOSPC);
        }
        if text.contains(&0) {
            return Err(EINVAL);
        }
        let mut bytes = KVec::with_capacity(text.len() + 1, GFP_KERNEL)?;
        bytes.extend_from_slice(text, GFP_KERNEL)?;
        bytes.push(0, GFP_KERNEL)?;
        Ok(Self(Text::Given(bytes)))
    }

    /// The string without its NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.as_c_str().to_bytes()
    }

    /// The string.
    pub fn as_c_str(&self) -> &CStr {
        match &self.0 {
            Text::Default(text) => text,
            Text::Given(bytes) => CStr::from_bytes_with_nul(bytes).unwrap_or(c""),
        }
    }
}

impl ParameterValue for ParameterString {
    const TYPE_NAME: &'static str = "string";

    fn parse(&self, text: &CStr) -> Result<Self> {
        Self::copy_of(text.to_bytes())
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        out.write_bytes(self.as_bytes());
        Ok(())
    }
}

/// Declares module parameters.
///
/// `parse` is optional; it parses the text of the user. If it fails the module is not loaded.
/// [`Parameter::get`](crate::module_param::Parameter::get) returns the value.
///
/// # Examples
///
/// ```ignore
/// kernel_ext::module_parameter! {
///     /// Where to listen.
///     pub(crate) static PORT_NR: u16 = 1234;
///     name: "port_nr",
///     description: "The port number the server is listening on (default: 1234)",
/// }
///
/// kernel_ext::module_parameter! {
///     /// Below which folder devices may be opened.
///     pub(crate) static DEV_SEARCH_PATH: ParameterString = ParameterString::new(c"/");
///     name: "dev_search_path",
///     description: "…",
///     parse: parse_search_path,
/// }
///
/// fn parse_search_path(_default: &ParameterString, text: &CStr) -> Result<ParameterString> {
///     ParameterString::copy_of(proto::search_path::clean(text.to_bytes())?)
/// }
/// ```
#[macro_export]
macro_rules! module_parameter {
    (
        $(#[$meta:meta])*
        $vis:vis static $static:ident: $type:ty = $default:expr;
        name: $name:literal,
        description: $description:literal $(,)?
    ) => {
        $crate::module_parameter! {
            $(#[$meta])*
            $vis static $static: $type = $default;
            name: $name,
            description: $description,
            parse: <$type as $crate::module_param::ParameterValue>::parse,
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis static $static:ident: $type:ty = $default:expr;
        name: $name:literal,
        description: $description:literal,
        parse: $parse:expr $(,)?
    ) => {
        $(#[$meta])*
        $vis static $static: $crate::module_param::Parameter<$type> =
            $crate::module_param::Parameter::new($default, $parse);

        const _: () = {
            const PARM: &[&str] = &["parm=", $name, ":", $description, "\0"];
            const PARMTYPE: &[&str] = &[
                "parmtype=",
                $name,
                ":",
                <$type as $crate::module_param::ParameterValue>::TYPE_NAME,
                "\0",
            ];

            // The kernel's `module!` has the same attribute. A newer compiler sets a flag in the
            // section of a plain `#[used]`. The linker would then make a second `.modinfo`, and
            // modpost reads only one of the two sections.
            #[link_section = ".modinfo"]
            #[used(compiler)]
            static MODINFO_PARM: [u8; $crate::module_param::concat_len(PARM)] =
                $crate::module_param::concat(PARM);

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static MODINFO_PARMTYPE: [u8; $crate::module_param::concat_len(PARMTYPE)] =
                $crate::module_param::concat(PARMTYPE);

            static OPS: ::kernel::bindings::kernel_param_ops =
                ::kernel::bindings::kernel_param_ops {
                    flags: if <$type as $crate::module_param::ParameterValue>::IMPLIED.is_some() {
                        ::kernel::bindings::KERNEL_PARAM_OPS_FL_NOARG
                    } else {
                        0
                    },
                    set: Some($crate::module_param::Parameter::<$type>::set_raw),
                    get: Some($crate::module_param::Parameter::<$type>::get_raw),
                    free: $crate::module_param::Parameter::<$type>::FREE_RAW,
                };

            #[link_section = "__param"]
            #[used(compiler)]
            static PARAM: ::kernel::module_param::KernelParam =
                ::kernel::module_param::KernelParam::new(::kernel::bindings::kernel_param {
                    name: ::kernel::str::as_char_ptr_in_const_context(::kernel::c_str!($name)),
                    mod_: &raw mut ::kernel::bindings::__this_module,
                    ops: &raw const OPS,
                    perm: 0o444,
                    level: -1,
                    flags: 0,
                    __bindgen_anon_1: ::kernel::bindings::kernel_param__bindgen_ty_1 {
                        arg: (&raw const $static).cast_mut().cast(),
                    },
                });
        };
    };
}

/// The total length of `parts`.
#[doc(hidden)]
pub const fn concat_len(parts: &[&str]) -> usize {
    let mut len = 0;
    let mut i = 0;
    while i < parts.len() {
        len += parts[i].len();
        i += 1;
    }
    len
}

/// The concatenation of `parts`; `N` is its length.
#[doc(hidden)]
pub const fn concat<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut all = [0; N];
    let mut len = 0;
    let mut i = 0;
    while i < parts.len() {
        let part = parts[i].as_bytes();
        let mut j = 0;
        while j < part.len() {
            all[len] = part[j];
            len += 1;
            j += 1;
        }
        i += 1;
    }
    all
}

// SPDX-License-Identifier: GPL-2.0

//! Module parameters that are set at load and can be read in sysfs (mode 0444).
//!
//! Those of `module!` are not in sysfs, and are never strings.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use core::{
    cell::UnsafeCell,
    fmt::Write,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*, //
};

use crate::{
    bindings,
    sysfs::SysfsOutput, //
};

/// Something that can be a module parameter.
pub trait ParameterValue: Send + Sync + 'static {
    /// What `modinfo` calls the type.
    const TYPE_NAME: &'static str;

    /// What the name alone stands for; nothing if a value has to follow.
    const IMPLIED: Option<&'static CStr> = None;

    /// Takes the value that the user wrote; the module does not load if that fails.
    fn set(&mut self, text: &CStr) -> Result;

    /// Writes the value for the user, without newline.
    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result;
}

/// A module parameter; made by [`module_parameter!`](crate::module_parameter).
pub struct Parameter<T> {
    value: UnsafeCell<T>,
    set: fn(&mut T, &CStr) -> Result,
}

// SAFETY: The value is only written while the module is loaded, before any of its code runs and
// before the parameter is in sysfs; afterwards it is only read.
unsafe impl<T: ParameterValue> Sync for Parameter<T> {}

impl<T: ParameterValue> Parameter<T> {
    /// For [`module_parameter!`](crate::module_parameter) only.
    #[doc(hidden)]
    pub const fn new(default: T, set: fn(&mut T, &CStr) -> Result) -> Self {
        Self {
            value: UnsafeCell::new(default),
            set,
        }
    }

    /// The value.
    pub fn get(&self) -> &T {
        // SAFETY: Code of the module runs only after the last write.
        unsafe { &*self.value.get() }
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
            // SAFETY: The loader sets parameters one after the other, and nobody reads yet.
            (this.set)(unsafe { &mut *this.value.get() }, text)?;
            Ok(0)
        })
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
        let mut out = unsafe { SysfsOutput::new(page.cast()) };
        // SAFETY: By the safety requirement.
        let this = unsafe { &*(*param).__bindgen_anon_1.arg.cast::<Self>() };
        // Output never fails, it is cut.
        let _ = this.get().show(&mut out);
        let _ = out.write_str("\n");
        out.len() as c_int
    }
}

macro_rules! impl_number {
    ($($type:ty, $name:literal, $parse:ident;)*) => {$(
        impl ParameterValue for $type {
            const TYPE_NAME: &'static str = $name;

            fn set(&mut self, text: &CStr) -> Result {
                // SAFETY: The string and the place for the number are valid.
                to_result(unsafe { bindings::$parse(text.as_char_ptr(), 0, self) })
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

    fn set(&mut self, text: &CStr) -> Result {
        // SAFETY: The string and the place for the result are valid.
        to_result(unsafe { bindings::kstrtobool(text.as_char_ptr(), self) })
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        out.write_str(if *self { "Y" } else { "N" })
    }
}

/// A string parameter of less than `N` bytes, kept NUL-terminated.
///
/// # Invariants
///
/// `len < N`; `bytes[..len]` has no NUL, the byte after is one.
pub struct ParameterString<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> ParameterString<N> {
    /// Makes a string; does not compile (or fails at compile time) if it does not fit.
    pub const fn new(text: &str) -> Self {
        let text = text.as_bytes();
        assert!(text.len() < N);
        let mut bytes = [0; N];
        let mut i = 0;
        while i < text.len() {
            assert!(text[i] != 0);
            bytes[i] = text[i];
            i += 1;
        }
        // INVARIANT: Checked above; the rest of `bytes` is zero.
        Self {
            bytes,
            len: text.len(),
        }
    }

    /// Puts `text` in; `ENOSPC` if it is too long, `EINVAL` if there is a NUL in it.
    pub fn assign(&mut self, text: &[u8]) -> Result {
        if text.len() >= N {
            return Err(ENOSPC);
        }
        if text.contains(&0) {
            return Err(EINVAL);
        }
        self.bytes[..text.len()].copy_from_slice(text);
        // INVARIANT: It fits, and has no NUL before this one.
        self.bytes[text.len()] = 0;
        self.len = text.len();
        Ok(())
    }

    /// The string without its NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The string.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl<const N: usize> ParameterValue for ParameterString<N> {
    const TYPE_NAME: &'static str = "string";

    fn set(&mut self, text: &CStr) -> Result {
        self.assign(text.to_bytes())
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        out.write_bytes(self.as_bytes());
        Ok(())
    }
}

/// Declares module parameters.
///
/// `set` is optional; it checks, or changes, what the user wrote, and the module is not loaded if
/// it fails. [`Parameter::get`](crate::params::Parameter::get) is the value.
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
///     pub(crate) static DEV_SEARCH_PATH: ParameterString<4096> = ParameterString::new("/");
///     name: "dev_search_path",
///     description: "…",
///     set: set_search_path,
/// }
///
/// fn set_search_path(path: &mut ParameterString<4096>, text: &CStr) -> Result {
///     path.assign(proto::search_path::clean(text.to_bytes())?)
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
            set: <$type as $crate::params::ParameterValue>::set,
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis static $static:ident: $type:ty = $default:expr;
        name: $name:literal,
        description: $description:literal,
        set: $set:expr $(,)?
    ) => {
        $(#[$meta])*
        $vis static $static: $crate::params::Parameter<$type> =
            $crate::params::Parameter::new($default, $set);

        const _: () = {
            const PARM: &[&str] = &["parm=", $name, ":", $description, "\0"];
            const PARMTYPE: &[&str] = &[
                "parmtype=",
                $name,
                ":",
                <$type as $crate::params::ParameterValue>::TYPE_NAME,
                "\0",
            ];

            #[link_section = ".modinfo"]
            #[used]
            static MODINFO_PARM: [u8; $crate::params::concat_len(PARM)] =
                $crate::params::concat(PARM);

            #[link_section = ".modinfo"]
            #[used]
            static MODINFO_PARMTYPE: [u8; $crate::params::concat_len(PARMTYPE)] =
                $crate::params::concat(PARMTYPE);

            static OPS: ::kernel::bindings::kernel_param_ops =
                ::kernel::bindings::kernel_param_ops {
                    flags: if <$type as $crate::params::ParameterValue>::IMPLIED.is_some() {
                        ::kernel::bindings::KERNEL_PARAM_OPS_FL_NOARG
                    } else {
                        0
                    },
                    set: Some($crate::params::Parameter::<$type>::set_raw),
                    get: Some($crate::params::Parameter::<$type>::get_raw),
                    free: None,
                };

            #[link_section = "__param"]
            #[used]
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

/// The length of `parts` together.
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

/// `parts` together; `N` is their length.
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

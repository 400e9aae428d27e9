// SPDX-License-Identifier: GPL-2.0

//! Module parameters of both ends.

use kernel_ext::{
    module_param::ParameterValue,
    prelude::*,
    sysfs::SysfsOutput, //
};
use proto::setting::Setting;

use crate::error::from_errno;

/// A parameter that is a number with a range. Its methods may be called in any context.
pub struct Number {
    setting: Setting,
    value: i32,
}

impl Number {
    /// The default of `setting`.
    pub const fn new(setting: Setting) -> Self {
        Self {
            setting,
            value: setting.default,
        }
    }

    /// The name, the range and the default.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// The number.
    pub fn value(&self) -> i32 {
        self.value
    }
}

impl ParameterValue for Number {
    const TYPE_NAME: &'static str = "int";

    fn parse(&self, text: &CStr) -> Result<Self> {
        let value = self.setting.parse(text.to_bytes()).map_err(|error| {
            pr_err!("{}\n", error.message().as_str());
            from_errno(error.errno())
        })?;
        Ok(Self {
            setting: self.setting,
            value,
        })
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        core::fmt::Write::write_fmt(out, format_args!("{}", self.value))
    }
}

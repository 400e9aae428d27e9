// SPDX-License-Identifier: GPL-2.0

//! Module parameters.

use core::fmt::Write as _;
use kernel_ext::{
    module_param::ParameterValue,
    module_parameter,
    prelude::*,
    sysfs::SysfsOutput, //
};
use proto::rnbd::Host;

module_parameter! {
    /// The UUID by which servers know this machine. An extension.
    pub(crate) static HOST_UUID: HostUuid = HostUuid(None);
    name: "host_uuid",
    description:
        "UUID by which servers know this machine when it reserves a disk; with none they know the \
         machine by the name of its session (default: none)",
}

/// The UUID of the machine, if it was given.
pub(crate) struct HostUuid(pub(crate) Option<Host>);

impl ParameterValue for HostUuid {
    const TYPE_NAME: &'static str = "string";

    fn parse(&self, text: &CStr) -> Result<Self> {
        let word = text.to_bytes();
        let word = word.strip_suffix(b"\n").unwrap_or(word);
        if word == b"none" {
            return Ok(Self(None));
        }
        let host = Host::from_text(word).ok_or_else(|| {
            pr_err!(
                "host_uuid: {:?} is not allowed: give a UUID that uuidgen prints, or the word \
                 none\n",
                text
            );
            EINVAL
        })?;
        Ok(Self(Some(host)))
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        match &self.0 {
            Some(host) => core::write!(out, "{host}"),
            None => out.write_str("none"),
        }
    }
}

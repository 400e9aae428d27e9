// SPDX-License-Identifier: GPL-2.0

//! Module parameters.

use kernel_ext::{
    module_param::{
        ParameterString,
        ParameterValue, //
    },
    module_parameter,
    prelude::*,
    sysfs::SysfsOutput, //
};
use proto::{
    rnbd::IoMode,
    search_path,
    RTRS_PORT, //
};
use rtrs_core::error::from_errno;

module_parameter! {
    /// The port to which clients connect.
    pub(crate) static PORT_NR: u16 = RTRS_PORT;
    name: "port_nr",
    description: "Port that the server listens on (1-65535, default: 1234)",
    parse: parse_port_nr,
}

module_parameter! {
    /// The folder to which clients' device paths are relative.
    pub(crate) static DEV_SEARCH_PATH: ParameterString = ParameterString::new(c"/");
    name: "dev_search_path",
    description:
        "The folder that clients' device paths are relative to; %SESSNAME% in it stands for the \
         name of the client's session, and text behind %SESSNAME% is ignored (default: /)",
    parse: parse_dev_search_path,
}

module_parameter! {
    /// Whether clients are served without an export policy. An extension.
    pub(crate) static REQUIRE_EXPORT_POLICY: bool = false;
    name: "require_export_policy",
    description: "Listen for clients only once an export policy is loaded (default: N)",
}

module_parameter! {
    /// Whether a client's request may have a priority of the real-time class. An extension.
    pub(crate) static REALTIME_PRIORITY: bool = false;
    name: "realtime_priority",
    description:
        "Let requests of clients have IO priorities of the real-time class; with N such requests \
         get the highest priority of the best-effort class (default: N)",
}

module_parameter! {
    /// How files are read and written. An extension.
    pub(crate) static FILE_IO_MODE: Mode = Mode(IoMode::Direct);
    name: "file_io_mode",
    description:
        "How the server reads and writes files that clients map: direct, or buffered, which means \
         through the page cache (default: direct)",
}

module_parameter! {
    /// How block devices are read and written. An extension.
    pub(crate) static BLOCK_IO_MODE: Mode = Mode(IoMode::Direct);
    name: "block_io_mode",
    description:
        "How the server reads and writes block devices that clients map: direct, or buffered, \
         which means through the page cache (default: direct)",
}

module_parameter! {
    /// The folder that keeps reservations over a restart; empty: they are not kept. An extension.
    pub(crate) static STATE_DIR: ParameterString = ParameterString::new(c"");
    name: "state_dir",
    description: "The folder that keeps the persistent reservations of disks over a restart of \
        the server, a full path (default: none)",
    parse: parse_state_dir,
}

module_parameter! {
    /// Whether clients are told which disks they could open. An extension.
    pub(crate) static DISCOVERY: bool = true;
    name: "discovery",
    description:
        "List for a client, when it asks, the disks that the export policy lets it open (default: \
         Y)",
}

/// A parameter that is an IO mode.
pub(crate) struct Mode(pub(crate) IoMode);

impl ParameterValue for Mode {
    const TYPE_NAME: &'static str = "string";

    fn parse(&self, text: &CStr) -> Result<Self> {
        let word = text.to_bytes();
        let word = word.strip_suffix(b"\n").unwrap_or(word);
        IoMode::from_name(word).map(Self).ok_or_else(|| {
            pr_err!("{:?} is no IO mode: write direct or buffered\n", text);
            EINVAL
        })
    }

    fn show(&self, out: &mut SysfsOutput<'_>) -> core::fmt::Result {
        out.write_bytes(self.0.as_str().as_bytes());
        Ok(())
    }
}

fn parse_port_nr(default: &u16, text: &CStr) -> Result<u16> {
    let port = default.parse(text)?;
    if port == 0 {
        // The kernel would choose a port, which no client knows.
        pr_err!("port_nr: 0 is no port to listen on: choose 1 to 65535\n");
        return Err(EINVAL);
    }
    Ok(port)
}

fn parse_state_dir(_default: &ParameterString, text: &CStr) -> Result<ParameterString> {
    let path = text.to_bytes();
    let path = path.strip_suffix(b"\n").unwrap_or(path);
    if !path.is_empty() && !path.starts_with(b"/") {
        pr_err!(
            "state_dir: {:?} is no full path: begin it with a slash\n",
            text
        );
        return Err(EINVAL);
    }
    ParameterString::copy_of(path)
}

fn parse_dev_search_path(_default: &ParameterString, text: &CStr) -> Result<ParameterString> {
    let value = search_path::parse_param(text.to_bytes())
        .inspect_err(|error| pr_err!("dev_search_path: {}\n", error.message().as_str()))
        .map_err(|error| from_errno(error.errno()))?;
    let path = ParameterString::copy_of(value)?;
    pr_info!("dev_search_path changed to {:?}\n", path.as_c_str());
    Ok(path)
}

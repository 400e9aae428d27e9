// SPDX-License-Identifier: GPL-2.0

//! The server of a fabric's self test (`Documentation/fabric.md`), which answers
//! `rtrs_test_client`.
//!
//! The module serves every client that reaches it, and gives away only patterns. It is for the time
//! of a test: the administrator loads it before, and unloads it afterwards.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::sync::Arc;
use kernel_ext::{
    module_param::ParameterValue,
    module_parameter,
    prelude::*, //
};
use proto::fabric::{
    raw_port,
    PORT, //
};
use rtrs_server::Listener;

mod checked;
mod commands;
mod raw;

module_parameter! {
    /// The port of the transport part. The raw part listens on the next port.
    static PORT_NR: u16 = PORT;
    name: "port_nr",
    description:
        "Port of the test's transport part; the raw part listens on the next port (1-65535, \
         default: 1236)",
    parse: parse_port_nr,
}

/// Takes any port but 0, to which no client can connect.
fn parse_port_nr(default: &u16, text: &CStr) -> Result<u16> {
    match default.parse(text)? {
        0 => {
            pr_err!("port_nr: 0 is no port to listen on: choose 1 to 65535\n");
            Err(EINVAL)
        }
        port => Ok(port),
    }
}

module! {
    type: RtrsTestServer,
    name: "rtrs_test_server",
    authors: ["The RNBD in Rust developers"],
    description: "Self test of a fabric: serving end",
    license: "GPL",
}

/// The module. Dropping it closes all sessions and connections.
struct RtrsTestServer {
    _transport: Listener,
    _raw: raw::Raw,
}

impl kernel::Module for RtrsTestServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let port = *PORT_NR.get();
        let raw = raw::Raw::listen(raw_port(port))?;
        let transport = Listener::open(Arc::new(checked::Server, GFP_KERNEL)?, port)?;
        pr_info!(
            "serving tests of the fabric on ports {} and {}\n",
            port,
            raw_port(port)
        );
        Ok(Self {
            _transport: transport,
            _raw: raw,
        })
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Checks for the modules that a command needs.

use super::System;
use crate::Error;
use crate::Kind;
use crate::Result;

impl System {
    /// Whether `rnbd_client` is loaded.
    pub fn client_loaded(&self) -> bool {
        self.sys("class/rnbd-client/ctl").is_dir()
    }

    /// Whether `rnbd_server` is loaded.
    pub fn server_loaded(&self) -> bool {
        self.sys("class/rnbd-server/ctl").is_dir()
    }

    /// Fails if `rnbd_client` is not loaded; `what` cannot be done without it.
    pub fn need_client(&self, what: &str) -> Result {
        match self.client_loaded() {
            true => Ok(()),
            false => Err(missing(what, "rnbd_client")),
        }
    }

    /// Fails if `rnbd_server` is not loaded; `what` cannot be done without it.
    pub fn need_server(&self, what: &str) -> Result {
        match self.server_loaded() {
            true => Ok(()),
            false => Err(missing(what, "rnbd_server")),
        }
    }

    /// Fails if this machine is neither a client nor a server.
    pub fn need_any(&self, what: &str) -> Result {
        let classes = ["class/rtrs-client", "class/rtrs-server"];
        let has_sessions = classes.iter().any(|class| self.sys(class).is_dir());
        if self.client_loaded() || self.server_loaded() || has_sessions {
            return Ok(());
        }
        let why = "neither the module rnbd_client nor rnbd_server is loaded";
        let error = Error::new(Kind::Unsupported, what, why);
        Err(error.hint("load a module with: modprobe rnbd_client, or modprobe rnbd_server"))
    }
}

fn missing(what: &str, module: &str) -> Error {
    let why = format!("the module {module} is not loaded");
    let error = Error::new(Kind::Unsupported, what, why);
    error.hint(format!("load it with: modprobe {module}"))
}

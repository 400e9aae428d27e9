// SPDX-License-Identifier: GPL-2.0

//! Checks whether this machine has everything to map or to export disks, and what to do if not.

mod local;
mod rdma;
mod server;

use schemars::JsonSchema;
use serde::Serialize;

pub use server::answers;
pub use server::rdma_port_to;
pub use server::source_of;
pub use server::Server;

use crate::Result;
use crate::System;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The subject of the check, in a word or two.
    pub check: String,
    /// Whether the subject is as it should be.
    pub status: Status,
    /// The finding.
    pub message: String,
    /// What the administrator can do about it.
    pub remedy: Option<String>,
}

/// The status of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "CheckStatus")]
pub enum Status {
    /// It works.
    Ok,
    /// It works, but not as well as it could, or only after another step.
    Warning,
    /// It does not work.
    Failed,
}

impl Status {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl Finding {
    fn ok(check: &str, message: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            status: Status::Ok,
            message: message.into(),
            remedy: None,
        }
    }

    fn warning(check: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            status: Status::Warning,
            remedy: Some(remedy.into()),
            ..Self::ok(check, message)
        }
    }

    fn failed(check: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            status: Status::Failed,
            ..Self::warning(check, message, remedy)
        }
    }
}

/// Checks this machine, and the way to a server if one is given.
pub fn check(system: &System, server: Option<&Server>) -> Result<Vec<Finding>> {
    let mut findings = local::check(system, server.is_some())?;
    let devices = system.rdma_devices()?;
    findings.extend(rdma::check(&devices));
    if let Some(server) = server {
        findings.extend(server::check(system, server, &devices));
    }
    Ok(findings)
}

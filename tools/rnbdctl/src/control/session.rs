// SPDX-License-Identifier: GPL-2.0

//! Actions on a session of this client.

use proto::addr::PathAddress;
use rustix::io::Errno;

use super::tunable;
use super::write;
use super::write::meaning;
use super::write::Meaning;
use crate::address::path_text;
use crate::model::ClientSession;
use crate::model::Policy;
use crate::model::Settings;
use crate::Error;
use crate::Kind;
use crate::Result;

const ADD_PATH: &[Meaning] = &[
    meaning(
        Errno::EXIST,
        Kind::Busy,
        "the session has a path with these addresses already, or the server still has the path",
        "list the session's paths with: rnbdctl list paths; if the path is not in the list, try \
         again after 35 s",
    ),
    meaning(
        Errno::NOSPC,
        Kind::Busy,
        "the session has the highest possible number of paths",
        "",
    ),
    meaning(
        Errno::INVAL,
        Kind::Usage,
        "the kernel refuses the address",
        "",
    ),
];

const SET: &[Meaning] = &[meaning(
    Errno::INVAL,
    Kind::Usage,
    "the kernel refuses the value",
    "",
)];

/// Adds a path and connects it. Blocks until it is connected, or has failed to connect.
pub fn add_path(session: &ClientSession, path: &PathAddress) -> Result {
    let path = path_text(path);
    let what = format!("adding path {path} to session {}", session.name);
    let file = session.folder.join("add_path");
    write::write(&what, &file, &path, &[ADD_PATH, write::CONNECT])
}

/// Sets how the path of a request is chosen.
pub fn set_policy(session: &ClientSession, policy: Policy) -> Result {
    let what = format!("setting the policy of session {}", session.name);
    let file = session.folder.join("mpath_policy");
    write::write(&what, &file, policy.as_str(), &[SET])
}

/// Checks that the tunable `name` can have the value `value`, and that the session has the tunable.
/// Returns the value as a number.
pub fn check_setting(session: &ClientSession, name: &str, value: &str) -> Result<i32> {
    let what = format!("setting {name} of session {}", session.name);
    let number = tunable::value(&what, &Settings::ALL, name, value)?;
    if session.settings.get(name).is_none() {
        return Err(Error::new(
            Kind::Unsupported,
            what,
            "the loaded rtrs_client lacks this tunable",
        )
        .hint("the C module has only the tunable max_reconnect_attempts"));
    }
    Ok(number)
}

/// Sets the tunable `name` to `value`.
pub fn set(session: &ClientSession, name: &str, value: &str) -> Result {
    let number = check_setting(session, name, value)?;
    let what = format!("setting {name} of session {} to {number}", session.name);
    write::write(
        &what,
        &session.folder.join(name),
        &number.to_string(),
        &[SET],
    )
}

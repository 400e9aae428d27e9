// SPDX-License-Identifier: GPL-2.0

//! Writes a [`Config`] as the text of a file.

use std::fmt::Write;

use proto::addr::PathAddress;

use super::Config;
use super::Mirror;
use super::Session;
use crate::address;
use crate::model::AccessMode;

/// The text of a file with this configuration; [`super::parse()`] reads the same configuration from
/// it.
pub fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    for session in &config.sessions {
        if !out.is_empty() {
            out.push('\n');
        }
        // Writing to a string does not fail.
        let _ = write_session(&mut out, session);
    }
    for mirror in &config.mirrors {
        let _ = write_mirror(&mut out, mirror);
    }
    out
}

fn write_mirror(out: &mut String, mirror: &Mirror) -> std::fmt::Result {
    writeln!(out, "\n[[mirror]]")?;
    writeln!(out, "name = {}", quoted(mirror.name.as_str()))?;
    if !mirror.reserve {
        writeln!(out, "reserve = false")?;
    }
    writeln!(out, "legs = [")?;
    for leg in &mirror.legs {
        let disk = quoted(&leg.name.to_string());
        let mut more = String::new();
        if leg.write_mostly {
            more.push_str(", write_mostly = true");
        }
        if !leg.failfast {
            more.push_str(", failfast = false");
        }
        match more.is_empty() {
            true => writeln!(out, "    {disk},")?,
            false => writeln!(out, "    {{ disk = {disk}{more} }},")?,
        }
    }
    writeln!(out, "]")
}

fn write_session(out: &mut String, session: &Session) -> std::fmt::Result {
    writeln!(out, "[[session]]")?;
    writeln!(out, "name = {}", quoted(&session.name))?;
    writeln!(out, "paths = [")?;
    for path in &session.paths {
        writeln!(out, "    {},", path_value(path))?;
    }
    for host in &session.hosts {
        writeln!(out, "    {},", quoted(&host.to_string()))?;
    }
    writeln!(out, "]")?;
    if let Some(port) = session.dest_port {
        writeln!(out, "dest_port = {port}")?;
    }
    if let Some(policy) = session.policy {
        writeln!(out, "policy = \"{}\"", policy.as_str())?;
    }
    if let Some(nr) = session.nr_poll_queues {
        writeln!(out, "nr_poll_queues = {nr}")?;
    }
    for (name, value) in &session.settings {
        writeln!(out, "{name} = {value}")?;
    }
    writeln!(out, "devices = [")?;
    for device in &session.devices {
        let path = quoted(&device.path);
        let mut more = String::new();
        if device.access_mode != AccessMode::Rw {
            write!(more, ", access_mode = \"{}\"", device.access_mode.as_str())?;
        }
        if let Some(mode) = device.io_mode {
            write!(more, ", io_mode = \"{}\"", mode.as_str())?;
        }
        for (setting, value) in device.tunables() {
            if let Some(value) = value {
                write!(more, ", {} = {value}", setting.name)?;
            }
        }
        if more.is_empty() {
            writeln!(out, "    {path},")?;
        } else {
            writeln!(out, "    {{ path = {path}{more} }},")?;
        }
    }
    writeln!(out, "]")
}

fn path_value(path: &PathAddress) -> String {
    let dst = quoted(&address::text(&path.dst));
    match &path.src {
        None => dst,
        Some(src) => format!("{{ src = {}, dst = {dst} }}", quoted(&address::text(src))),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

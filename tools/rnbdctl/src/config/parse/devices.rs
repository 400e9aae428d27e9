// SPDX-License-Identifier: GPL-2.0

//! The devices of a session.

use proto::name::Name;
use proto::rnbd::IoMode;
use proto::setting::Setting;
use proto::setting::HOLD_DISK_IO;
use proto::setting::IO_TIMEOUT;
use toml::de::DeTable;
use toml::de::DeValue;

use super::article;
use super::At;
use super::Reader;
use super::Value;
use crate::config::keys;
use crate::config::Device;
use crate::model::AccessMode;

impl<'i> Reader<'i> {
    pub(super) fn devices(&mut self, at: &At, value: &Value<'i>) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for (at, element) in self.elements(at, value) {
            let device = match element.get_ref() {
                DeValue::String(path) => self.device_path(&at, path).map(|path| Device {
                    path,
                    access_mode: AccessMode::Rw,
                    io_mode: None,
                    io_timeout_ms: None,
                    hold_io_ms: None,
                }),
                DeValue::Table(table) => self.device_table(&at, table),
                other => {
                    self.fail(
                        &at,
                        format!(
                            "an element must be a path or a table with {}, not {}",
                            keys::DEVICE.join(", "),
                            article(other)
                        ),
                    );
                    None
                }
            };
            let Some(device) = device else { continue };
            if devices.iter().any(|other| other.path == device.path) {
                self.fail(&at, format!("\"{}\" is given twice", device.path));
            }
            devices.push(device);
        }
        devices
    }

    fn device_table(&mut self, at: &At, table: &DeTable<'i>) -> Option<Device> {
        self.check_keys_at(&at.key, table, &keys::DEVICE);
        let value = |key: &str| {
            let value = table.get(key)?;
            let at = At {
                key: format!("{}: {key}", at.key),
                span: value.span(),
            };
            Some((at, value))
        };
        let access_mode = match value("access_mode") {
            Some((at, value)) => self.access_mode(&at, value),
            None => Some(AccessMode::Rw),
        };
        let io_mode = value("io_mode").and_then(|(at, value)| self.io_mode(&at, value));
        let mut number = |setting: Setting| {
            value(setting.name).and_then(|(at, value)| self.setting(&at, value, &setting))
        };
        let (io_timeout_ms, hold_io_ms) = (number(IO_TIMEOUT), number(HOLD_DISK_IO));
        let Some((at, value)) = value("path") else {
            self.fail(at, "a device needs a path");
            return None;
        };
        let path = self.string(&at, value)?;
        let path = self.device_path(&at, &path)?;
        Some(Device {
            path,
            access_mode: access_mode?,
            io_mode,
            io_timeout_ms,
            hold_io_ms,
        })
    }

    fn access_mode(&mut self, at: &At, value: &Value<'i>) -> Option<AccessMode> {
        let name = self.string(at, value)?;
        let mode = AccessMode::parse(&name);
        if mode.is_none() {
            let why = format!("\"{name}\" is not one of \"ro\", \"rw\", \"migration\"");
            self.fail(at, why);
        }
        mode
    }

    fn io_mode(&mut self, at: &At, value: &Value<'i>) -> Option<IoMode> {
        let name = self.string(at, value)?;
        let mode = IoMode::from_name(name.as_bytes());
        if mode.is_none() {
            let why = format!("\"{name}\" is not one of \"direct\", \"buffered\"");
            self.fail(at, why);
        }
        mode
    }

    fn device_path(&mut self, at: &At, path: &str) -> Option<String> {
        if let Err(error) = Name::new(path.as_bytes()) {
            self.fail(at, format!("\"{}\" {error}", path.escape_debug()));
            return None;
        }
        if path.split('/').any(|part| part == "..") {
            self.fail(
                at,
                format!("\"{path}\" contains \"..\", which no server allows"),
            );
            return None;
        }
        self.no_space(at, path).then(|| path.to_owned())
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The devices of a session.

use proto::rnbd::IoMode;
use proto::name::Name;
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
                }),
                DeValue::Table(table) => self.device_table(&at, table),
                other => {
                    self.fail(
                        &at,
                        format!(
                            "an element must be a path or a table with path, access_mode and \
                             io_mode, not {}",
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
        let mut access_mode = Some(AccessMode::Rw);
        if let Some(value) = table.get("access_mode") {
            let at = At {
                key: format!("{}: access_mode", at.key),
                span: value.span(),
            };
            access_mode = self.string(&at, value).and_then(|name| {
                let mode = AccessMode::parse(&name);
                if mode.is_none() {
                    self.fail(
                        &at,
                        format!("\"{name}\" is not one of \"ro\", \"rw\", \"migration\""),
                    );
                }
                mode
            });
        }
        let mut io_mode = None;
        if let Some(value) = table.get("io_mode") {
            let at = At {
                key: format!("{}: io_mode", at.key),
                span: value.span(),
            };
            let name = self.string(&at, value)?;
            io_mode = IoMode::from_name(name.as_bytes());
            if io_mode.is_none() {
                self.fail(
                    &at,
                    format!("\"{name}\" is not one of \"direct\", \"buffered\""),
                );
            }
        }
        let Some(value) = table.get("path") else {
            self.fail(at, "a device needs a path");
            return None;
        };
        let at = At {
            key: format!("{}: path", at.key),
            span: value.span(),
        };
        let path = self.string(&at, value)?;
        let path = self.device_path(&at, &path)?;
        Some(Device {
            path,
            access_mode: access_mode?,
            io_mode,
        })
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

// SPDX-License-Identifier: GPL-2.0

//! Reads the mirrors of the file. Their legs are devices of sessions of the same file.

use proto::setting::HOLD_DISK_IO;
use toml::de::DeTable;
use toml::de::DeValue;

use super::article;
use super::At;
use super::Reader;
use super::Value;
use crate::config::keys;
use crate::config::Mirror;
use crate::config::Session;
use crate::mirror::create::PlannedLeg;
use crate::mirror::LegName;
use crate::mirror::MirrorName;

/// The key of a session that limits how often a path tries to connect again; -1: without a limit.
const ATTEMPTS: &str = "max_reconnect_attempts";

impl<'i> Reader<'i> {
    /// Reads the mirrors, and gives their legs and sessions the values that legs must have:
    /// requests fail at once while no path is up, and paths try to connect again without a limit.
    /// Other values in the file are an error.
    pub(super) fn mirrors(&mut self, value: &Value<'i>, sessions: &mut [Session]) -> Vec<Mirror> {
        let mut mirrors: Vec<Mirror> = Vec::new();
        for (at, table) in self.tables("mirror", value) {
            let Some(mirror) = self.mirror(&at, table) else {
                continue;
            };
            let name_at = below(&at, mirror.name.as_str(), "name", table);
            let at = below(&at, mirror.name.as_str(), "legs", table);
            for leg in &mirror.legs {
                self.join(&at, &leg.name, sessions);
                let is_taken = |other: &&Mirror| other.legs.iter().any(|had| had.name == leg.name);
                if let Some(other) = mirrors.iter().find(is_taken) {
                    let why = format!("{} is a leg of mirror \"{}\" already", leg.name, other.name);
                    self.fail(&at, why);
                }
            }
            if mirrors.iter().any(|other| other.name == mirror.name) {
                self.fail(&name_at, "there is a mirror of this name already");
            }
            mirrors.push(mirror);
        }
        mirrors
    }

    /// Reads a mirror. `None` if its `name` or its `reserve` cannot be used. All mistakes are noted
    /// in any case. Missing `legs` are a mistake, too; the mirror then has no legs.
    fn mirror(&mut self, at: &At, table: &DeTable<'i>) -> Option<Mirror> {
        let name = match table.get("name") {
            Some(value) => {
                let at = At {
                    key: "mirror: name".to_owned(),
                    span: value.span(),
                };
                let text = self.string(&at, value);
                text.and_then(|text| self.understood(&at, MirrorName::new(&text)))
            }
            None => {
                let at = At {
                    key: "mirror: name".to_owned(),
                    span: at.span.clone(),
                };
                self.fail(&at, "is missing");
                None
            }
        };
        let label = name.as_ref().map_or("", MirrorName::as_str);
        self.check_keys_at(&in_mirror(label), table, &keys::MIRROR);
        let own = At {
            key: in_mirror(label),
            span: at.span.clone(),
        };
        let reserve = self.flag(&own, table, "reserve", true);
        let at = below(at, label, "legs", table);
        let legs = match table.get("legs") {
            Some(value) => self.legs(&at, value),
            None => {
                self.fail(&at, "is missing");
                Vec::new()
            }
        };
        Some(Mirror {
            name: name?,
            reserve: reserve?,
            legs,
        })
    }

    fn legs(&mut self, at: &At, value: &Value<'i>) -> Vec<PlannedLeg> {
        let DeValue::Array(elements) = value.get_ref() else {
            let why = format!("must be an array, not {}", article(value.get_ref()));
            self.fail(at, why);
            return Vec::new();
        };
        let mut legs: Vec<PlannedLeg> = Vec::new();
        for element in elements.iter() {
            let at = At {
                key: at.key.clone(),
                span: element.span(),
            };
            let Some(leg) = self.leg(&at, element) else {
                continue;
            };
            if legs.iter().any(|other| other.name == leg.name) {
                self.fail(&at, format!("\"{}\" is given twice", leg.name));
            }
            legs.push(leg);
        }
        if elements.len() < 2 {
            self.fail(at, "a mirror has at least two legs");
        }
        legs
    }

    fn leg(&mut self, at: &At, element: &Value<'i>) -> Option<PlannedLeg> {
        let table = match element.get_ref() {
            DeValue::String(text) => {
                let name = self.leg_name(at, text)?;
                return Some(PlannedLeg {
                    name,
                    write_mostly: false,
                    failfast: true,
                });
            }
            DeValue::Table(table) => table,
            other => {
                let why = format!(
                    "an element must be \"DISK@SESSION\" or a table with {}, not {}",
                    keys::LEG.join(", "),
                    article(other)
                );
                self.fail(at, why);
                return None;
            }
        };
        self.check_keys_at(&at.key, table, &keys::LEG);
        let write_mostly = self.flag(at, table, "write_mostly", false);
        let failfast = self.flag(at, table, "failfast", true);
        let Some(value) = table.get("disk") else {
            self.fail(at, "a leg needs a disk");
            return None;
        };
        let at = At {
            key: format!("{}: disk", at.key),
            span: value.span(),
        };
        let text = self.string(&at, value)?;
        Some(PlannedLeg {
            name: self.leg_name(&at, &text)?,
            write_mostly: write_mostly?,
            failfast: failfast?,
        })
    }

    fn leg_name(&mut self, at: &At, text: &str) -> Option<LegName> {
        let name = LegName::parse(text);
        if name.is_none() {
            let why = format!("\"{}\" is not DISK@SESSION", text.escape_debug());
            self.fail(at, why);
        }
        name
    }

    /// Gives the device that is this leg, and its session, the values that legs must have.
    fn join(&mut self, at: &At, leg: &LegName, sessions: &mut [Session]) {
        let session = sessions.iter_mut().find(|have| have.name == leg.session);
        let Some(session) = session else {
            let why = format!(
                "{leg}: no session of this file is called \"{}\"",
                leg.session
            );
            return self.fail(at, why);
        };
        let attempts = *session.settings.entry(ATTEMPTS).or_insert(-1);
        let device = session
            .devices
            .iter_mut()
            .find(|have| have.path == leg.disk);
        let Some(device) = device else {
            let why = format!("{leg}: the session has no device \"{}\"", leg.disk);
            return self.fail(at, why);
        };
        let hold = *device.hold_io_ms.get_or_insert(0);
        if attempts != -1 {
            let why =
                format!("{leg}: the session of a leg must have {ATTEMPTS} = -1; leave the key out");
            self.fail(at, why);
        }
        if hold != 0 {
            let name = HOLD_DISK_IO.name;
            let why = format!(
                "{leg}: a leg must not hold requests, as the mirror would wait: leave {name} out"
            );
            self.fail(at, why);
        }
    }

    /// Reads the value `true` or `false` of a key of a table; `otherwise` if the key is missing,
    /// and `None` if the value is neither.
    fn flag(&mut self, at: &At, table: &DeTable<'i>, key: &str, otherwise: bool) -> Option<bool> {
        let Some(value) = table.get(key) else {
            return Some(otherwise);
        };
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        let at = At {
            key: format!("{}: {key}", at.key),
            span: value.span(),
        };
        let why = format!("must be true or false, not {}", article(value.get_ref()));
        self.fail(&at, why);
        None
    }
}

/// Returns the text by which messages name a mirror; `mirror` if it has no name.
fn in_mirror(name: &str) -> String {
    match name {
        "" => "mirror".to_owned(),
        name => format!("mirror \"{name}\""),
    }
}

/// Returns the place of the value of a mirror's key; the mirror's place if the key is missing.
fn below(at: &At, mirror: &str, key: &str, table: &DeTable<'_>) -> At {
    At {
        key: format!("{}: {key}", in_mirror(mirror)),
        span: table.get(key).map_or(at.span.clone(), |value| value.span()),
    }
}

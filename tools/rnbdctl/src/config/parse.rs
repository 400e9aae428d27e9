// SPDX-License-Identifier: GPL-2.0

//! Parses text into a [`Config`], strictly: unknown keys and values are errors.
//!
//! The code walks the syntax tree with its positions itself, instead of using serde, so that all
//! mistakes are reported at once, each with line and key.

mod devices;
mod mirrors;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use clap::ValueEnum;
use proto::name::SessName;
use proto::setting::Outside;
use proto::setting::Setting;
use toml::de::DeTable;
use toml::de::DeValue;
use toml::Spanned;

use super::keys;
use super::Config;
use super::ConfigError;
use super::ConfigErrors;
use super::Namer;
use super::Session;
use super::MAX_PATHS;
use crate::address;
use crate::identity;
use crate::model::Policy;
use crate::model::Settings;
use crate::server_name::Host;
use crate::server_name::ServerName;

type Value<'i> = Spanned<DeValue<'i>>;

/// Parses a configuration. `file` is for messages; `namer` makes the names of sessions that have
/// none.
pub fn parse<'i>(file: &'i str, text: &'i str, namer: Namer<'i>) -> Result<Config, ConfigErrors> {
    let mut reader = Reader {
        file,
        text,
        namer,
        errors: Vec::new(),
    };
    let config = match DeTable::parse(text) {
        Ok(table) => reader.config(table.get_ref()),
        Err(error) => {
            reader.syntax(&error);
            Config::default()
        }
    };
    if reader.errors.is_empty() {
        return Ok(config);
    }
    reader.errors.sort_by_key(|error| error.position);
    Err(ConfigErrors(reader.errors))
}

/// The place of a value: its key, as in messages, and its bytes in the file.
#[derive(Clone)]
struct At {
    key: String,
    span: Range<usize>,
}

struct Reader<'i> {
    file: &'i str,
    text: &'i str,
    namer: Namer<'i>,
    errors: Vec<ConfigError>,
}

impl<'i> Reader<'i> {
    fn fail(&mut self, at: &At, message: impl Into<String>) {
        let error = ConfigError::at(
            self.file,
            self.text,
            at.span.clone(),
            &at.key,
            message.into(),
        );
        self.errors.push(error);
    }

    /// Notes an error of the TOML reader, such as a doubled key.
    fn syntax(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(0..0);
        let start = self.text.get(..span.start).unwrap_or("");
        let line = start.rfind('\n').map_or(0, |at| at.saturating_add(1));
        let line = self.text.get(line..).and_then(|rest| rest.lines().next());
        let key = line.and_then(|line| line.split_once('='));
        let key = key.map_or("", |(key, _)| key.trim()).to_owned();
        self.fail(&At { key, span }, error.message().trim());
    }

    fn config(&mut self, table: &DeTable<'i>) -> Config {
        self.check_keys("", table, &keys::TOP);
        let mut sessions = match table.get("session") {
            Some(value) => self.sessions(value),
            None => Vec::new(),
        };
        let mirrors = match table.get("mirror") {
            Some(value) => self.mirrors(value, &mut sessions),
            None => Vec::new(),
        };
        Config { sessions, mirrors }
    }

    fn sessions(&mut self, value: &Value<'i>) -> Vec<Session> {
        let mut sessions: Vec<Session> = Vec::new();
        let mut names = BTreeMap::new();
        for (at, table) in self.tables("session", value) {
            let Some(session) = self.session(&at, table) else {
                continue;
            };
            let name_at = value_at(table, &session.name, "name").unwrap_or_else(|| At {
                key: in_session(&session.name, "name"),
                span: at.span,
            });
            if let Some(first) = names.insert(session.name.clone(), name_at.span.start) {
                let line = self.line(first);
                self.fail(
                    &name_at,
                    format!("there is a session of this name in line {line} already"),
                );
            }
            sessions.push(session);
        }
        sessions
    }

    /// Returns the number of the line that has the byte at `offset` of the file.
    fn line(&self, offset: usize) -> usize {
        let error = ConfigError::at("", self.text, offset..offset, "", String::new());
        error.position.map_or(0, |(line, _)| line)
    }

    /// Returns the tables of an array of tables, as `[[session]]`, with their places. A value or an
    /// element of another type is noted as a mistake.
    fn tables<'v>(&mut self, key: &str, value: &'v Value<'i>) -> Vec<(At, &'v DeTable<'i>)> {
        let at = |span: Range<usize>| At {
            key: key.to_owned(),
            span,
        };
        let DeValue::Array(elements) = value.get_ref() else {
            let why = format!("must be an array of tables: write [[{key}]], not [{key}]");
            self.fail(&at(value.span()), why);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for element in elements.iter() {
            let at = at(element.span());
            if let Some(table) = self.table(&at, element) {
                tables.push((at, table));
            }
        }
        tables
    }

    /// Reads a session. `None` if it has no usable name; its other mistakes are noted nevertheless.
    fn session(&mut self, at: &At, table: &DeTable<'i>) -> Option<Session> {
        let given = self.session_name(table);
        let label = match &given {
            Ok(Some(name)) => name.clone(),
            Ok(None) | Err(()) => String::new(),
        };
        self.check_keys(&label, table, &keys::session());
        for key in ["paths", "devices"] {
            if !table.contains_key(key) && given.is_ok() {
                let at = At {
                    key: in_session(&label, key),
                    span: at.span.clone(),
                };
                self.fail(&at, "is missing");
            }
        }
        let mut session = Session {
            name: label,
            paths: Vec::new(),
            hosts: Vec::new(),
            found: Vec::new(),
            dest_port: None,
            policy: None,
            nr_poll_queues: None,
            settings: BTreeMap::new(),
            devices: Vec::new(),
        };
        let mut first = None;
        for (key, value) in table.iter() {
            if key.get_ref() == "paths" {
                let at = At {
                    key: in_session(&session.name, "paths"),
                    span: value.span(),
                };
                let servers = self.paths(&at, value);
                first = servers.first().map(|server| server.host.to_string());
                session.paths = servers.iter().filter_map(ServerName::path).collect();
                session.hosts = servers;
                session.hosts.retain(|server| server.path().is_none());
            } else {
                self.session_value(&mut session, key.get_ref(), value);
            }
        }
        let is_polled = session.nr_poll_queues.is_some_and(|nr| nr != 0);
        if is_polled && session.devices.len() > 1 {
            let at = value_at(table, &session.name, "nr_poll_queues").unwrap_or(at.clone());
            self.fail(
                &at,
                "a session with queues for polled IO can have only one device",
            );
        }
        if let (Ok(None), Some(server)) = (&given, first) {
            let disk = session.devices.first().filter(|_| is_polled);
            let polled = disk.map(|device| device.path.as_str());
            let purpose = identity::purpose(session.dest_port, polled);
            session.name = (self.namer)(&server, &purpose);
        }
        given.is_ok().then_some(session)
    }

    /// Reads the name of a session; `None` if it has none. An error is noted.
    fn session_name(&mut self, table: &DeTable<'i>) -> Result<Option<String>, ()> {
        let Some(value) = table.get("name") else {
            return Ok(None);
        };
        let at = At {
            key: "session: name".to_owned(),
            span: value.span(),
        };
        let name = self.string(&at, value).ok_or(())?;
        if let Err(error) = SessName::new(name.as_bytes()) {
            self.fail(&at, format!("\"{}\" {error}", name.escape_debug()));
            return Err(());
        }
        match self.no_space(&at, &name) {
            true => Ok(Some(name)),
            false => Err(()),
        }
    }

    /// Reads a value of a session. Unknown keys were noted before.
    fn session_value(&mut self, session: &mut Session, key: &str, value: &Value<'i>) {
        let at = At {
            key: in_session(&session.name, key),
            span: value.span(),
        };
        match key {
            "devices" => session.devices = self.devices(&at, value),
            "dest_port" => {
                let port = self.number(&at, value, 1, u16::MAX.into());
                session.dest_port = port.and_then(|port| u16::try_from(port).ok());
            }
            "policy" => session.policy = self.policy(&at, value),
            "nr_poll_queues" => session.nr_poll_queues = self.number(&at, value, -1, 4096),
            _ => {
                if let Some(setting) = Settings::find(key) {
                    if let Some(number) = self.setting(&at, value, &setting) {
                        session.settings.insert(setting.name, number);
                    }
                }
            }
        }
    }

    fn paths(&mut self, at: &At, value: &Value<'i>) -> Vec<ServerName> {
        let mut servers: Vec<ServerName> = Vec::new();
        for (at, element) in self.elements(at, value) {
            let server = match element.get_ref() {
                DeValue::String(text) => self.understood(&at, ServerName::parse(text)),
                DeValue::Table(table) => self.path_table(&at, table),
                other => {
                    self.fail(
                        &at,
                        format!(
                            "an element must be a server or {{ src = ..., dst = ... }}, not {}",
                            article(other)
                        ),
                    );
                    None
                }
            };
            let Some(server) = server else { continue };
            if servers.iter().any(|other| overlap(other, &server)) {
                let text = match server.path() {
                    Some(path) => path.to_text().as_str().to_owned(),
                    None => server.to_string(),
                };
                self.fail(&at, format!("the path {text} repeats an earlier path"));
            }
            servers.push(server);
        }
        if servers.len() > MAX_PATHS {
            self.fail(
                at,
                format!(
                    "{} paths are given, a session has at most {MAX_PATHS}",
                    servers.len()
                ),
            );
        }
        servers
    }

    fn path_table(&mut self, at: &At, table: &DeTable<'i>) -> Option<ServerName> {
        self.check_keys_at(&at.key, table, &keys::PATH);
        let mut end = |name: &str| {
            let value = table.get(name)?;
            let at = At {
                key: format!("{}: {name}", at.key),
                span: value.span(),
            };
            Some(self.string(&at, value).map(|text| (at, text)))
        };
        let src = end("src");
        let dst = end("dst");
        if !table.contains_key("dst") {
            self.fail(at, "a path needs a destination: dst is missing");
        }
        let src = match src {
            Some(src) => {
                let (at, text) = src?;
                Some(self.understood(&at, address::parse(&text))?)
            }
            None => None,
        };
        let (at, text) = dst??;
        let server = match text.contains(['@', ',']) {
            true => Err(format!("{text:?} has a source: write the source as src")),
            false => ServerName::parse(&text),
        };
        let server = self.understood(&at, server)?;
        Some(ServerName { src, ..server })
    }

    fn understood<T>(&mut self, at: &At, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|error| self.fail(at, error)).ok()
    }

    /// The kernel takes the name between spaces.
    fn no_space(&mut self, at: &At, name: &str) -> bool {
        let bad = name.contains(char::is_whitespace);
        if bad {
            self.fail(at, format!("\"{name}\" cannot contain white space"));
        }
        !bad
    }

    fn policy(&mut self, at: &At, value: &Value<'i>) -> Option<Policy> {
        let name = self.string(at, value)?;
        let policy = Policy::parse(&name).filter(|policy| policy.as_str() == name);
        if policy.is_none() {
            let names = Policy::value_variants()
                .iter()
                .map(|policy| format!("\"{}\"", policy.as_str()));
            let names = names.collect::<Vec<_>>().join(", ");
            self.fail(at, format!("\"{name}\" is not one of {names}"));
        }
        policy
    }

    fn setting(&mut self, at: &At, value: &Value<'i>, setting: &Setting) -> Option<i32> {
        let is_right = |number: &i32| setting.contains(*number);
        self.number_if(at, value, is_right, Outside(*setting))
    }

    fn number(&mut self, at: &At, value: &Value<'i>, min: i32, max: i32) -> Option<i32> {
        let is_right = |number: &i32| (min..=max).contains(number);
        let otherwise = format!("not between {min} and {max}");
        self.number_if(at, value, is_right, otherwise)
    }

    fn number_if(
        &mut self,
        at: &At,
        value: &Value<'i>,
        is_right: impl Fn(&i32) -> bool,
        otherwise: impl Display,
    ) -> Option<i32> {
        let DeValue::Integer(number) = value.get_ref() else {
            self.fail(
                at,
                format!("must be a number, not {}", article(value.get_ref())),
            );
            return None;
        };
        let parsed = i64::from_str_radix(number.as_str(), number.radix());
        let parsed = parsed.ok().and_then(|number| i32::try_from(number).ok());
        let parsed = parsed.filter(is_right);
        if parsed.is_none() {
            let written = self.text.get(value.span()).unwrap_or(number.as_str());
            self.fail(at, format!("{written} is {otherwise}"));
        }
        parsed
    }

    fn string(&mut self, at: &At, value: &Value<'i>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            other => {
                self.fail(at, format!("must be a string, not {}", article(other)));
                None
            }
        }
    }

    fn table<'v>(&mut self, at: &At, value: &'v Value<'i>) -> Option<&'v DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                self.fail(at, format!("must be a table, not {}", article(other)));
                None
            }
        }
    }

    /// The elements of an array that must not be empty.
    fn elements<'v>(&mut self, at: &At, value: &'v Value<'i>) -> Vec<(At, &'v Value<'i>)> {
        let DeValue::Array(elements) = value.get_ref() else {
            self.fail(
                at,
                format!("must be an array, not {}", article(value.get_ref())),
            );
            return Vec::new();
        };
        if elements.is_empty() {
            self.fail(at, "is empty: a session needs an element");
        }
        let element = |value: &'v Value<'i>| {
            let at = At {
                key: at.key.clone(),
                span: value.span(),
            };
            (at, value)
        };
        elements.iter().map(element).collect()
    }

    fn check_keys(&mut self, session: &str, table: &DeTable<'i>, known: &[&str]) {
        let prefix = match session {
            "" => String::new(),
            name => format!("session \"{name}\""),
        };
        self.check_keys_at(&prefix, table, known);
    }

    fn check_keys_at(&mut self, prefix: &str, table: &DeTable<'i>, known: &[&str]) {
        for (key, _) in table.iter() {
            let name: &str = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let at = At {
                key: match prefix {
                    "" => name.to_owned(),
                    prefix => format!("{prefix}: {name}"),
                },
                span: key.span(),
            };
            let message = match keys::closest(name, known) {
                Some(meant) => format!("unknown key (did you mean {meant}?)"),
                None => format!("unknown key (known here: {})", known.join(", ")),
            };
            self.fail(&at, message);
        }
    }
}

/// Whether the kernel could not have both paths: they have the same ends, or the same destination
/// and one of them has no source.
fn overlap(a: &ServerName, b: &ServerName) -> bool {
    let same_src = match (&a.src, &b.src) {
        (Some(a), Some(b)) => a.same_as(b),
        _ => true,
    };
    let same_host = match (&a.host, &b.host) {
        (Host::Address(a), Host::Address(b)) => a.same_as(b),
        (a, b) => a == b,
    };
    same_host && same_src
}

fn in_session(session: &str, key: &str) -> String {
    match session {
        "" => format!("session: {key}"),
        name => format!("session \"{name}\": {key}"),
    }
}

fn value_at(table: &DeTable<'_>, session: &str, key: &str) -> Option<At> {
    Some(At {
        key: in_session(session, key),
        span: table.get(key)?.span(),
    })
}

/// The kind of a value, for a message.
fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

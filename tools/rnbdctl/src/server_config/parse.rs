// SPDX-License-Identifier: GPL-2.0

//! Parses the text of a file into a [`ServerConfig`].

use std::collections::BTreeMap;
use std::fmt::Write;

use proto::client_id::ClientId;
use proto::export_policy;
use serde::Deserialize;
use toml::Value;

use super::ServerConfig;
use super::PARAMETERS;
use crate::config::keys::closest;
use crate::model::AccessMode;

/// The file as TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    parameters: BTreeMap<String, BTreeMap<String, Value>>,
    keys: Option<Keys>,
    export: Option<Vec<Export>>,
}

/// The clients that must have keys. The keys are in files that only root can read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    clients: Vec<String>,
}

/// The clients that may map devices.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Export {
    #[serde(default = "anything")]
    sessions: Vec<String>,
    #[serde(default = "anything")]
    clients: Vec<String>,
    /// `None` if no proof is needed.
    client_ids: Option<Vec<String>>,
    devices: Vec<String>,
    #[serde(default = "read_and_write")]
    modes: Vec<AccessMode>,
}

fn anything() -> Vec<String> {
    vec!["*".to_owned()]
}

fn read_and_write() -> Vec<AccessMode> {
    vec![AccessMode::Ro, AccessMode::Rw]
}

/// Parses a configuration. The error is in words, with the place if it is known.
pub fn parse(text: &str) -> Result<ServerConfig, String> {
    let file: File = toml::from_str(text).map_err(|error| syntax(text, &error))?;
    let mut config = ServerConfig::default();
    for (module, values) in &file.parameters {
        let known = PARAMETERS.iter().find(|(name, _)| name == module);
        let Some((_, names)) = known else {
            let modules: Vec<_> = PARAMETERS.iter().map(|(name, _)| *name).collect();
            return Err(unknown(&format!("parameters.{module}"), module, &modules));
        };
        let mut texts = BTreeMap::new();
        for (name, value) in values {
            let key = format!("parameters.{module}.{name}");
            if !names.contains(&name.as_str()) {
                return Err(unknown(&key, name, names));
            }
            texts.insert(name.clone(), parameter(&key, value)?);
        }
        config.parameters.insert(module.clone(), texts);
    }
    if let Some(keys) = &file.keys {
        config.keys = Some(clients(&keys.clients)?);
    }
    if let Some(exports) = &file.export {
        config.policy = Some(policy(exports)?);
        config.client_ids = client_ids(exports);
        config.paths = paths(exports);
    }
    Ok(config)
}

/// The clients that must have keys, each once, in the order of their names.
fn clients(names: &[String]) -> Result<Vec<ClientId>, String> {
    let mut clients = Vec::new();
    for name in names {
        let client = ClientId::new(name.as_bytes())
            .map_err(|error| format!("keys.clients: {name:?} {error}"))?;
        clients.push(client);
    }
    clients.sort();
    clients.dedup();
    Ok(clients)
}

/// The patterns of client ids, with the numbers of their exports.
fn client_ids(exports: &[Export]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, export) in (1_usize..).zip(exports) {
        let patterns = export.client_ids.iter().flatten();
        found.extend(patterns.map(|pattern| (number, escape(pattern))));
    }
    found
}

/// The devices that are paths, not patterns.
fn paths(exports: &[Export]) -> Vec<String> {
    let devices = exports.iter().flat_map(|export| &export.devices);
    let mut paths: Vec<_> = devices
        .filter(|device| !device.contains(['*', '\\']))
        .cloned()
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn syntax(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let message = error.message().trim();
    match before {
        Some(before) => {
            let line = before.matches('\n').count().saturating_add(1);
            format!("line {line}: {message}")
        }
        None => message.to_owned(),
    }
}

fn unknown(key: &str, name: &str, known: &[&str]) -> String {
    match closest(name, known) {
        Some(meant) => format!("{key}: unknown (did you mean {meant}?)"),
        None => format!("{key}: unknown (known here: {})", known.join(", ")),
    }
}

/// A parameter as the module takes it.
fn parameter(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::Boolean(true) => Ok("Y".to_owned()),
        Value::Boolean(false) => Ok("N".to_owned()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::String(text) => {
            match text.contains(['"', '\\']) || text.contains(char::is_control) {
                true => Err(format!(
                    "{key}: {text:?} has quotes, backslashes or control characters"
                )),
                false => Ok(text.clone()),
            }
        }
        _ => Err(format!("{key}: must be a string, a number, true or false")),
    }
}

/// The rules of all exports.
fn policy(exports: &[Export]) -> Result<String, String> {
    let mut text = String::from("# Made of server.toml by rnbdctl server apply.\n");
    for (number, export) in (1_usize..).zip(exports) {
        let lists = [
            ("sessions", export.sessions.is_empty()),
            ("clients", export.clients.is_empty()),
            ("devices", export.devices.is_empty()),
            ("modes", export.modes.is_empty()),
            (
                "client_ids",
                export.client_ids.as_ref().is_some_and(Vec::is_empty),
            ),
        ];
        if let Some((name, _)) = lists.iter().find(|(_, is_empty)| *is_empty) {
            return Err(format!("export {number}: {name} is empty"));
        }
        for rule in rules(export) {
            export_policy::check(rule.as_bytes())
                .map_err(|error| format!("export {number}: {}", error.kind))?;
            // Writing to a string does not fail.
            let _ = writeln!(text, "{rule}");
        }
    }
    export_policy::check(text.as_bytes()).map_err(|error| error.kind.to_string())?;
    Ok(text)
}

/// The rules of an export: a rule for each combination of session, client, client id and device.
fn rules(export: &Export) -> Vec<String> {
    let modes: Vec<_> = export.modes.iter().map(|mode| mode.as_str()).collect();
    let modes = modes.join(",");
    let proofs = match &export.client_ids {
        None => vec![String::new()],
        Some(patterns) => patterns
            .iter()
            .map(|pattern| format!(" client-id={}", escape(pattern)))
            .collect(),
    };
    let mut rules = Vec::new();
    for session in &export.sessions {
        for client in &export.clients {
            for proof in &proofs {
                for device in &export.devices {
                    rules.push(format!(
                        "allow session={} client={}{proof} device={} mode={modes}",
                        escape(session),
                        address(client),
                        escape(device),
                    ));
                }
            }
        }
    }
    rules
}

/// Escapes a pattern: white space would end a word of a rule.
fn escape(pattern: &str) -> String {
    let byte = |byte: u8| match byte {
        b'!'..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    pattern.bytes().map(byte).collect()
}

/// An address for a rule. A text without `ip:` or `gid:` in front is an IP address.
fn address(client: &str) -> String {
    match client == "*" || client.starts_with("ip:") || client.starts_with("gid:") {
        true => escape(client),
        false => format!("ip:{}", escape(client)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything() {
        let text = r#"
            [parameters.rtrs_server]
            sess_queue_depth = 128
            always_invalidate = true

            [parameters.rnbd_server]
            dev_search_path = "/dev"

            [[export]]
            sessions = ["web*"]
            clients = ["192.0.2.0/24", "gid:fe80::/10"]
            devices = ["/dev/vg0/www", "/dev/my disk"]
            modes = ["ro"]

            [[export]]
            devices = ["/dev/vg0/*"]
        "#;
        let config = parse(text).unwrap();
        let rtrs = &config.parameters["rtrs_server"];
        assert_eq!(
            (
                rtrs["sess_queue_depth"].as_str(),
                rtrs["always_invalidate"].as_str()
            ),
            ("128", "Y")
        );
        assert_eq!(config.parameters["rnbd_server"]["dev_search_path"], "/dev");
        let policy = config.policy.unwrap();
        let rules: Vec<_> = policy.lines().skip(1).collect();
        assert_eq!(
            rules,
            [
                "allow session=web* client=ip:192.0.2.0/24 device=/dev/vg0/www mode=ro",
                "allow session=web* client=ip:192.0.2.0/24 device=/dev/my\\040disk mode=ro",
                "allow session=web* client=gid:fe80::/10 device=/dev/vg0/www mode=ro",
                "allow session=web* client=gid:fe80::/10 device=/dev/my\\040disk mode=ro",
                "allow session=* client=* device=/dev/vg0/* mode=ro,rw",
            ]
        );
    }

    #[test]
    fn keys_and_what_they_are_good_for() {
        let config = parse(
            r#"
            [keys]
            clients = ["web2", "web1", "web2"]

            [[export]]
            client_ids = ["web*", "db1"]
            devices = ["/dev/vg0/www", "/dev/vg0/*"]
            modes = ["ro"]
        "#,
        )
        .unwrap();
        let named: Vec<_> = config.keys.iter().flatten().map(ClientId::as_str).collect();
        assert_eq!(named, ["web1", "web2"]);
        let policy = config.policy.unwrap();
        let rules: Vec<_> = policy.lines().skip(1).collect();
        assert_eq!(
            rules,
            [
                "allow session=* client=* client-id=web* device=/dev/vg0/www mode=ro",
                "allow session=* client=* client-id=web* device=/dev/vg0/* mode=ro",
                "allow session=* client=* client-id=db1 device=/dev/vg0/www mode=ro",
                "allow session=* client=* client-id=db1 device=/dev/vg0/* mode=ro",
            ]
        );
        let patterns = [(1, "web*".to_owned()), (1, "db1".to_owned())];
        assert_eq!(config.client_ids, patterns);
        assert_eq!(config.paths, ["/dev/vg0/www"]);
        // Without the table the keys are left as they are; an empty list wants no keys.
        assert_eq!(parse("").unwrap().keys, None);
        let none = parse("keys.clients = []").unwrap().keys;
        assert_eq!(none, Some(Vec::new()));
    }

    #[test]
    fn a_file_without_exports_says_nothing_of_the_policy() {
        assert_eq!(parse("").unwrap(), ServerConfig::default());
        // An empty list of exports lets no client map a device.
        let nobody = parse("export = []").unwrap().policy.unwrap();
        assert_eq!(export_policy::check(nobody.as_bytes()), Ok(0));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("speed = 5", "line 1: unknown field `speed`"),
            ("\n[[export]]\nmodes = [\"ro\"]", "missing field `devices`"),
            (
                "[[export]]\ndevices = [\"/a\"]\nmodes = [\"x\"]",
                "line 3: unknown variant `x`",
            ),
            ("[[export]]\ndevices = []", "export 1: devices is empty"),
            (
                "[[export]]\ndevices = [\"/a\"]\nclients = [\"192.0.2.1/24\"]",
                "export 1: client=\"ip:192.0.2.1/24\" has bits set behind its prefix",
            ),
            (
                "[parameters.nvmet]\nx = 1",
                "parameters.nvmet: unknown (known here: rtrs_server,",
            ),
            (
                "[parameters.rnbd_server]\nport = 1",
                "parameters.rnbd_server.port: unknown (did you mean port_nr?)",
            ),
            (
                "[parameters.rnbd_server]\nport_nr = 1.5",
                "must be a string, a number",
            ),
            (
                "[parameters.rnbd_server]\nstate_dir = \"a\\\"b\"",
                "has quotes",
            ),
            ("[keys]", "missing field `clients`"),
            (
                "[keys]\nclients = [\"a/b\"]",
                "keys.clients: \"a/b\" contains '/'",
            ),
            (
                "[[export]]\ndevices = [\"/a\"]\nclient_ids = []",
                "export 1: client_ids is empty",
            ),
            ("x = ", "line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_example_of_the_document_is_right() {
        let document = include_str!("../../../../Documentation/server.md");
        let blocks = document.split("```toml\n").skip(1);
        let mut count = 0;
        for block in blocks {
            let text = block.split("```").next().unwrap();
            let config = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert!(config.policy.is_some() && config.keys.is_some());
            count += 1;
        }
        assert_eq!(count, 1);
    }

    #[test]
    fn the_manual_page_has_every_key_and_a_right_example() {
        let page = include_str!("../../../../packaging/man/rnbd-server.toml.5");
        for key in ["devices", "sessions", "clients", "client_ids", "modes"] {
            assert!(page.contains(&format!("\n.B {key}\n")), "{key}");
        }
        for (module, _) in PARAMETERS {
            assert!(page.contains(&format!("[parameters.{module}]")), "{module}");
        }
        let example = page
            .split(".nf\n")
            .nth(1)
            .and_then(|rest| rest.split(".fi").next());
        let config = parse(example.unwrap()).unwrap();
        assert_eq!(config.policy.unwrap().lines().count(), 3);
        assert_eq!(config.keys.unwrap().len(), 1);
    }

    #[test]
    fn every_parameter_is_in_the_document() {
        let document = include_str!("../../../../Documentation/administration.md");
        for (module, names) in PARAMETERS {
            for name in names {
                assert!(document.contains(&format!("`{name}`")), "{module} {name}");
            }
            for line in document
                .lines()
                .filter(|line| line.starts_with(&format!("| {module} `")))
            {
                let cell = line.split('|').nth(1).unwrap();
                let mut words = cell.split('`').skip(1).step_by(2);
                assert!(words.all(|word| names.contains(&word)), "{line}");
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The file of a client's keys.
//!
//! Each line is a key, `server ADDRESS`, or a comment that begins with `#`. The last key is the
//! newest. The addresses are the servers that this machine has the keys for; without addresses the
//! keys are for all servers.

use std::fmt::Write as _;

use proto::addr::Address;
use proto::auth_keys;
use proto::auth_keys::Key;
use proto::auth_keys::MAX_KEYS;
use proto::client_id::ClientId;

use crate::Error;
use crate::Kind;
use crate::Result;

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The client, whose id is the name of the file.
    pub client: ClientId,
    /// The client's keys, from the oldest to the newest.
    pub keys: Vec<Key>,
    /// The servers that this machine has the keys for; empty for all servers.
    pub servers: Vec<Address>,
}

impl KeyFile {
    /// An empty file of `client`.
    pub fn new(client: ClientId) -> Self {
        Self {
            client,
            keys: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Parses a file; `place` names the file in errors.
    pub fn parse(client: ClientId, place: &str, text: &str) -> Result<Self> {
        let mut file = Self::new(client);
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |why: String| bad(format!("{place}:{number}"), why);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(address) = line.strip_prefix("server ") {
                let address = Address::parse(address.trim().as_bytes())
                    .map_err(|error| wrong(error.to_string()))?;
                file.servers.push(address);
            } else {
                // The line may be a secret, so the message does not contain it.
                let key = Key::parse(line.as_bytes())
                    .map_err(|error| wrong(format!("the key {error}")))?;
                file.keys.push(key);
            }
        }
        file.check(place)?;
        Ok(file)
    }

    fn check(&self, place: &str) -> Result {
        auth_keys::check(&self.keys).map_err(|error| bad(place.to_owned(), error.to_string()))
    }

    /// Adds a key as the newest key; returns its number.
    pub fn add(&mut self, key: Key, place: &str) -> Result<u32> {
        if self.keys.len() >= MAX_KEYS {
            let why = format!("has {MAX_KEYS} keys already");
            return Err(Error::new(Kind::Busy, place, why)
                .hint("remove an old key first: rnbdctl key remove ID --key NUMBER"));
        }
        let number = key.number;
        self.keys.push(key);
        self.check(place)?;
        Ok(number)
    }

    /// Removes the key with this number; returns whether the file had it.
    pub fn remove(&mut self, number: u32) -> bool {
        let count = self.keys.len();
        self.keys.retain(|key| key.number != number);
        self.keys.len() != count
    }

    /// The text that [`Self::parse`] parses.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# Secret keys of the client {}, made by rnbdctl key. The last one is the newest.\n",
            self.client
        );
        for server in &self.servers {
            // Writing to a string does not fail, here and below.
            let _ = writeln!(text, "server {server}");
        }
        for key in &self.keys {
            let _ = key.write(&mut text);
            text.push('\n');
        }
        text
    }
}

fn bad(place: String, why: String) -> Error {
    Error::new(Kind::BadConfig, place, why)
        .hint("make keys with rnbdctl key new; copy the file without a change")
}

#[cfg(test)]
mod tests {
    use proto::auth_keys::Secret;

    use super::*;

    fn key(number: u32) -> Key {
        Key {
            number,
            secret: Secret::new([7; Secret::LEN]),
        }
    }

    fn client() -> ClientId {
        ClientId::new(b"web1").unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut file = KeyFile::new(client());
        file.servers = vec![Address::V4([192, 0, 2, 1])];
        for number in 1..=8 {
            assert_eq!(file.add(key(number), "x").unwrap(), number);
        }
        assert_eq!(file.add(key(9), "x").unwrap_err().kind(), Kind::Busy);
        assert_eq!(KeyFile::parse(client(), "x", &file.text()).unwrap(), file);
        assert!(file.remove(8) && !file.remove(8));
        assert_eq!(file.keys.last().unwrap().number, 7);
    }

    #[test]
    fn errors_name_the_line_and_not_the_key() {
        let good = KeyFile {
            keys: vec![key(1)],
            ..KeyFile::new(client())
        };
        let text = good.text();
        for (text, message) in [
            (String::new(), "f: has no key".to_owned()),
            (
                text.replace("0707", "0708"),
                "f:2: the key is mistyped: its last 8 digits do not fit the others".to_owned(),
            ),
            (
                format!("{text}server here\n"),
                "f:3: \"here\" does not start with ip: or gid:".to_owned(),
            ),
            (
                format!("{text}{}", text),
                "f: has the number 00000001 of another key".to_owned(),
            ),
        ] {
            let error = KeyFile::parse(client(), "f", &text).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.kind(), Kind::BadConfig);
        }
    }
}

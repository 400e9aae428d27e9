// SPDX-License-Identifier: GPL-2.0

//! The keys by which clients prove their identity: in files, and in the kernel's keyring.
//!
//! A key has 256 bits and a number, which is not secret: the number tells the keys of a client
//! apart, so that a server need not try each of them. Several keys of a client are valid at a time.
//! The last key is the newest, and is the key that the client uses.

use core::{
    fmt,
    hint::black_box, //
};

use crate::{
    addr::{
        Address,
        Scope, //
    },
    client_id::ClientId,
    text::{
        impl_error,
        Text, //
    }, //
};

/// The buffer size for the description of a key in the keyring.
pub const DESCRIPTION_LEN: usize = 96;

/// The description, in the keyring, of the keys by which a server recognises `client`.
pub fn server_description(client: &ClientId) -> Text<DESCRIPTION_LEN> {
    Text::from_fn(|out| fmt::Write::write_fmt(out, format_args!("rnbd-server:{client}")))
}

/// The description, in the keyring, of the keys that this machine has for the server at `server`.
/// Without `server`: of the keys for all servers that have no keys of their own. The interface of
/// an address does not count.
pub fn client_description(server: Option<&Address>) -> Text<DESCRIPTION_LEN> {
    Text::from_fn(|out| match server {
        None => fmt::Write::write_str(out, "rnbd-client:*"),
        Some(Address::V6 { addr, .. }) => {
            let address = Address::V6 {
                addr: *addr,
                scope: Scope::NONE,
            };
            fmt::Write::write_fmt(out, format_args!("rnbd-client:{address}"))
        }
        Some(address) => fmt::Write::write_fmt(out, format_args!("rnbd-client:{address}")),
    })
}

/// The most keys of a client.
pub const MAX_KEYS: usize = 8;

/// A secret of 256 bits, which is never displayed, and is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret([u8; Self::LEN]);

impl Secret {
    /// The length in bytes.
    pub const LEN: usize = 32;

    /// The secret of these bytes.
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0 = [0; Self::LEN];
        // Keeps the compiler from leaving out the zeroes: they look as if they were read.
        black_box(&self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A key of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Tells the key from the client's other keys.
    pub number: u32,
    /// The key.
    pub secret: Secret,
}

/// Why keys are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The text does not begin as a key does.
    NoKey,
    /// The text has this many bytes, not those of a key.
    BadLength(usize),
    /// A digit is not one of 0 to 9 and a to f.
    BadDigit(u8),
    /// The sum in the last digits is wrong: the key was mistyped.
    BadSum,
    /// Two keys of the client have this number.
    Doubled(u32),
    /// There are no keys, or this many, more than [`MAX_KEYS`].
    BadCount(usize),
    /// The content of the keyring is not of the form of [`KeySet`].
    BadPayload,
}

impl fmt::Display for KeyError {
    /// Displays the reason, to follow the name of the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => write!(f, "does not begin with {}", Key::PREFIX),
            Self::BadLength(len) => {
                write!(
                    f,
                    "is {len} bytes long, and a key has {} bytes",
                    Key::TEXT_LEN
                )
            }
            Self::BadDigit(byte) => {
                write!(
                    f,
                    "has '{}', which is not 0 to 9 or a to f",
                    byte.escape_ascii()
                )
            }
            Self::BadSum => f.write_str("is mistyped: its last 8 digits do not fit the others"),
            Self::Doubled(number) => write!(f, "has the number {number:08x} of another key"),
            Self::BadCount(0) => f.write_str("has no key"),
            Self::BadCount(count) => write!(f, "has {count} keys, at most {MAX_KEYS}"),
            Self::BadPayload => {
                f.write_str("is not of the form that rnbdctl loads: load it with rnbdctl key load")
            }
        }
    }
}

impl_error!(KeyError, EINVAL);

impl Key {
    /// The beginning of a key's text.
    pub const PREFIX: &'static str = "rnbd-key-1:";

    /// The length of a key's text in bytes: two colons, and two digits for each byte.
    pub const TEXT_LEN: usize = Self::PREFIX.len() + 8 + 1 + 2 * Secret::LEN + 1 + 8;

    /// The size of a key in the keyring in bytes: the number, little-endian, and the secret.
    const ENTRY_LEN: usize = 4 + Secret::LEN;

    /// Parses the text of a key: [`Self::PREFIX`], then the number, the secret and the sum with
    /// colons between them, as hexadecimal digits in lower case.
    pub fn parse(text: &[u8]) -> Result<Self, KeyError> {
        let digits = text
            .strip_prefix(Self::PREFIX.as_bytes())
            .ok_or(KeyError::NoKey)?;
        let bad_length = KeyError::BadLength(text.len());
        if text.len() != Self::TEXT_LEN {
            return Err(bad_length);
        }
        let mut parts = digits.split(|&byte| byte == b':');
        let mut next = || parts.next().ok_or(bad_length);
        let number = u32::from_be_bytes(from_hex(next()?)?);
        let secret = Secret::new(from_hex(next()?)?);
        let sum = u32::from_be_bytes(from_hex(next()?)?);
        let key = Self { number, secret };
        if key.sum() == sum {
            Ok(key)
        } else {
            Err(KeyError::BadSum)
        }
    }

    /// Writes the text that [`Self::parse`] parses.
    pub fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{}{:08x}:", Self::PREFIX, self.number)?;
        for byte in self.secret.as_bytes() {
            write!(out, "{byte:02x}")?;
        }
        write!(out, ":{:08x}", self.sum())
    }

    /// A sum that shows mistyped digits (FNV-1a of the number and the secret).
    fn sum(&self) -> u32 {
        let number = self.number.to_be_bytes();
        let bytes = number.iter().chain(self.secret.as_bytes());
        bytes.fold(0x811c_9dc5, |sum: u32, &byte| {
            (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }
}

/// The bytes of `N` pairs of digits.
fn from_hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    let pairs = digits.chunks_exact(2);
    if pairs.len() != N || !pairs.remainder().is_empty() {
        return Err(KeyError::BadLength(digits.len()));
    }
    for (to, pair) in bytes.iter_mut().zip(pairs) {
        for &byte in pair {
            *to = (*to << 4) | digit(byte)?;
        }
    }
    Ok(bytes)
}

fn digit(byte: u8) -> Result<u8, KeyError> {
    match byte {
        b'0'..=b'9' => Ok(byte.wrapping_sub(b'0')),
        b'a'..=b'f' => Ok(byte.wrapping_sub(b'a').wrapping_add(10)),
        _ => Err(KeyError::BadDigit(byte)),
    }
}

/// The keys of a client, as the kernel's keyring holds them: the client's id in 64 bytes, then for
/// each key its number, little-endian, and its secret. The newest key is the last.
///
/// # Invariants
///
/// `entries` are 1 to [`MAX_KEYS`] keys of [`Key::ENTRY_LEN`] bytes.
#[derive(Clone, Copy)]
pub struct KeySet<'a> {
    client: ClientId,
    entries: &'a [u8],
}

impl<'a> KeySet<'a> {
    /// The most bytes of a client's keys in the keyring.
    pub const MAX_LEN: usize = ClientId::FIELD_LEN + MAX_KEYS * Key::ENTRY_LEN;

    /// Checks the content of the keyring.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, KeyError> {
        let (client, rest) = bytes.split_first_chunk().ok_or(KeyError::BadPayload)?;
        let client = ClientId::from_field(client).map_err(|_| KeyError::BadPayload)?;
        let entries = rest.chunks_exact(Key::ENTRY_LEN);
        if !entries.remainder().is_empty() {
            return Err(KeyError::BadPayload);
        }
        check_count(entries.len())?;
        // INVARIANT: Checked above.
        Ok(Self {
            client,
            entries: rest,
        })
    }

    /// The client.
    pub fn client(&self) -> &ClientId {
        &self.client
    }

    /// The key that has this number.
    pub fn find(&self, number: u32) -> Option<Key> {
        self.keys().find(|key| key.number == number)
    }

    /// The newest key.
    pub fn newest(&self) -> Option<Key> {
        self.keys().last()
    }

    fn keys(&self) -> impl Iterator<Item = Key> + 'a {
        let entries = self.entries.chunks_exact(Key::ENTRY_LEN);
        entries.filter_map(|entry| {
            let (number, rest) = entry.split_first_chunk()?;
            let (secret, _) = rest.split_first_chunk()?;
            Some(Key {
                number: u32::from_le_bytes(*number),
                secret: Secret::new(*secret),
            })
        })
    }
}

/// Passes the content of the keyring for `client` and its keys, from the oldest to the newest, to
/// `put`, piece by piece.
pub fn payload(
    client: &ClientId,
    keys: &[Key],
    mut put: impl FnMut(&[u8]),
) -> Result<(), KeyError> {
    check(keys)?;
    put(&client.to_field());
    for key in keys {
        put(&key.number.to_le_bytes());
        put(key.secret.as_bytes());
    }
    Ok(())
}

/// Checks the keys of a client: at least one key, at most [`MAX_KEYS`], all with different numbers.
pub fn check(keys: &[Key]) -> Result<(), KeyError> {
    check_count(keys.len())?;
    for (index, key) in keys.iter().enumerate() {
        if keys
            .iter()
            .take(index)
            .any(|other| other.number == key.number)
        {
            return Err(KeyError::Doubled(key.number));
        }
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), KeyError> {
    match count {
        1..=MAX_KEYS => Ok(()),
        _ => Err(KeyError::BadCount(count)),
    }
}

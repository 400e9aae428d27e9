// SPDX-License-Identifier: GPL-2.0

//! Numbers that a user wrote, as the kernel's `kstrto*()` functions take them.

use crate::Errno;

/// Which digits a number has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Decimal.
    Decimal,
    /// Hexadecimal behind `0x`, octal behind another `0`, otherwise decimal.
    ByPrefix,
}

/// Why a text is no number of the type that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// It is no number.
    Malformed,
    /// The type has no such number.
    Overflow,
}

impl NumberError {
    /// What the kernel's functions return.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Malformed => Errno::EINVAL,
            Self::Overflow => Errno::ERANGE,
        }
    }
}

/// The number that `text` says, perhaps with a `+` before it and a newline behind it (C:
/// `kstrtou64`).
pub fn parse_u64(text: &[u8], base: Base) -> Result<u64, NumberError> {
    let text = until_nul(text);
    parse_digits(text.strip_prefix(b"+").unwrap_or(text), base)
}

/// As [`parse_u64`], also with a `-` before it (C: `kstrtoint`).
pub fn parse_i32(text: &[u8], base: Base) -> Result<i32, NumberError> {
    let number = match until_nul(text).strip_prefix(b"-") {
        Some(digits) => i128::from(parse_digits(digits, base)?).checked_neg(),
        None => Some(i128::from(parse_u64(text, base)?)),
    };
    number
        .and_then(|number| i32::try_from(number).ok())
        .ok_or(NumberError::Overflow)
}

/// As much of a text as C sees.
fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or(text)
}

fn parse_digits(text: &[u8], base: Base) -> Result<u64, NumberError> {
    let (radix, text) = match (base, text) {
        (Base::ByPrefix, [b'0', b'x' | b'X', digits @ ..]) if has_hex_digit(digits) => (16, digits),
        (Base::ByPrefix, [b'0', ..]) => (8, text),
        _ => (10, text),
    };
    let len = text
        .iter()
        .take_while(|&&byte| char::from(byte).is_digit(radix))
        .count();
    let (digits, rest) = text.split_at_checked(len).unwrap_or((text, &[]));
    // An overflow counts more than what follows the digits.
    let number = digits.iter().try_fold(0u64, |number, &byte| {
        let digit = char::from(byte).to_digit(radix)?;
        number.checked_mul(radix.into())?.checked_add(digit.into())
    });
    let number = number.ok_or(NumberError::Overflow)?;
    if digits.is_empty() || !matches!(rest, b"" | b"\n") {
        return Err(NumberError::Malformed);
    }
    Ok(number)
}

fn has_hex_digit(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_hexdigit)
}

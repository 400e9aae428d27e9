// SPDX-License-Identifier: GPL-2.0

//! Numbers as text, as the kernel's `kstrto*()` functions take them.

use core::str::FromStr;

use crate::errno::Errno;

/// The base of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// 10.
    Decimal,
    /// 16 behind `0x`, 8 behind another `0`, otherwise 10.
    ByPrefix,
}

/// Why a text is no number of the wanted type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// The text is no number.
    Malformed,
    /// The number is out of the type's range.
    Overflow,
}

impl NumberError {
    /// The error number that the kernel's functions return.
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
    parse_line(text.strip_prefix(b"+").unwrap_or(text), base)
}

/// As [`parse_u64`], also with a `-` before it (C: `kstrtoint`).
pub fn parse_i32(text: &[u8], base: Base) -> Result<i32, NumberError> {
    let number = match until_nul(text).strip_prefix(b"-") {
        Some(digits) => i128::from(parse_line(digits, base)?).checked_neg(),
        None => Some(i128::from(parse_u64(text, base)?)),
    };
    number
        .and_then(|number| i32::try_from(number).ok())
        .ok_or(NumberError::Overflow)
}

/// The number that `digits` say; `None` if there is another byte than a decimal digit, or `T` has
/// no such number.
pub(crate) fn from_digits<T: FromStr>(digits: &[u8]) -> Option<T> {
    let good = digits.iter().all(u8::is_ascii_digit);
    good.then(|| core::str::from_utf8(digits).ok()?.parse().ok())?
}

/// The number that `text` starts with, and what follows its digits.
pub(crate) fn split_number(text: &[u8], base: Base) -> Result<(u64, &[u8]), NumberError> {
    let (radix, text) = match (base, text) {
        (Base::ByPrefix, [b'0', b'x' | b'X', digits @ ..])
            if digits.first().is_some_and(u8::is_ascii_hexdigit) =>
        {
            (16, digits)
        }
        (Base::ByPrefix, [b'0', ..]) => (8, text),
        _ => (10, text),
    };
    let len = text
        .iter()
        .take_while(|&&byte| char::from(byte).is_digit(radix))
        .count();
    let (digits, rest) = text.split_at_checked(len).unwrap_or((text, &[]));
    if digits.is_empty() {
        return Err(NumberError::Malformed);
    }
    let number = digits.iter().try_fold(0u64, |number, &byte| {
        let digit = char::from(byte).to_digit(radix)?;
        number.checked_mul(radix.into())?.checked_add(digit.into())
    });
    Ok((number.ok_or(NumberError::Overflow)?, rest))
}

/// The number that is all of `text` but a newline at its end.
fn parse_line(text: &[u8], base: Base) -> Result<u64, NumberError> {
    match split_number(text, base)? {
        (number, b"" | b"\n") => Ok(number),
        _ => Err(NumberError::Malformed),
    }
}

/// The part of a text that C sees.
fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or(text)
}

// SPDX-License-Identifier: GPL-2.0

//! Patterns for names and paths.
//!
//! `*` matches any number of bytes other than slashes; `**` matches any number of any bytes. A
//! backslash and three octal digits match the byte of that number, as in `/etc/fstab`: `\040` a
//! space, `\052` a star. Every other byte matches itself.

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It has no byte.
    Empty,
    /// A backslash is not followed by three octal digits that are a byte.
    BadEscape,
    /// Three stars follow each other.
    Stars,
}

impl PatternError {
    /// The reason, to follow the pattern.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "is empty",
            Self::BadEscape => "has a backslash that no three octal digits from 001 to 377 follow",
            Self::Stars => "has more than two stars in a row",
        }
    }
}

/// A checked pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a>(&'a [u8]);

/// One token of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    Star,
    StarStar,
}

impl<'a> Pattern<'a> {
    /// The pattern that `text` says.
    pub fn parse(text: &'a [u8]) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut rest = text;
        let mut last = None;
        while !rest.is_empty() {
            let (token, after) = split_token(rest).ok_or(PatternError::BadEscape)?;
            if last == Some(Token::StarStar) && matches!(token, Token::Star | Token::StarStar) {
                return Err(PatternError::Stars);
            }
            last = Some(token);
            rest = after;
        }
        Ok(Self(text))
    }

    /// The pattern's text.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Whether the pattern matches all of `name`.
    ///
    /// The time is at most the product of both lengths: where a byte does not match, only the last
    /// star before it takes one more byte; where that star would take a slash, the last double star
    /// takes one more byte instead.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (mut pattern, mut left) = (self.0, name);
        // The rest of the pattern behind the last star, and the rest of the name at that place.
        let mut star: Option<(&[u8], &[u8])> = None;
        let mut star_star: Option<(&[u8], &[u8])> = None;
        loop {
            match split_token(pattern) {
                Some((Token::StarStar, rest)) => {
                    star_star = Some((rest, left));
                    star = None;
                    pattern = rest;
                    continue;
                }
                Some((Token::Star, rest)) => {
                    star = Some((rest, left));
                    pattern = rest;
                    continue;
                }
                Some((Token::Byte(wanted), rest)) => {
                    if let Some((&byte, behind)) = left.split_first() {
                        if byte == wanted {
                            (pattern, left) = (rest, behind);
                            continue;
                        }
                    }
                }
                None if left.is_empty() => return true,
                None => {}
            }
            if let Some((rest, from)) = star {
                match from.split_first() {
                    Some((&byte, behind)) if byte != b'/' => {
                        star = Some((rest, behind));
                        (pattern, left) = (rest, behind);
                        continue;
                    }
                    _ => star = None,
                }
            }
            let Some((rest, from)) = star_star else {
                return false;
            };
            let Some((_, behind)) = from.split_first() else {
                return false;
            };
            star_star = Some((rest, behind));
            (pattern, left) = (rest, behind);
        }
    }
}

/// The first token of a pattern, and the rest; `None` if the pattern is empty, or its first escape
/// is wrong.
fn split_token(pattern: &[u8]) -> Option<(Token, &[u8])> {
    match pattern {
        [b'*', b'*', rest @ ..] => Some((Token::StarStar, rest)),
        [b'*', rest @ ..] => Some((Token::Star, rest)),
        [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', rest @ ..] => {
            let byte = ((high & 7) << 6) | ((middle & 7) << 3) | (low & 7);
            (byte != 0).then_some((Token::Byte(byte), rest))
        }
        [b'\\', ..] => None,
        [byte, rest @ ..] => Some((Token::Byte(*byte), rest)),
        [] => None,
    }
}

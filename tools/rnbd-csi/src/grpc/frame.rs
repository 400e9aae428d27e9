// SPDX-License-Identifier: GPL-2.0

//! What gRPC adds to HTTP/2: the frame around a message, and the encoding of the status's text.

/// The bytes before a message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// A message in its frame.
///
/// The error is in words: the message is longer than any frame.
pub(crate) fn framed(message: &[u8]) -> Result<Vec<u8>, String> {
    let len = u32::try_from(message.len()).map_err(|_| "the message is too long".to_owned())?;
    let mut frame = vec![0];
    frame.extend(len.to_be_bytes());
    frame.extend(message);
    Ok(frame)
}

/// The one message that a body has.
///
/// The error is in words.
pub(crate) fn unframed(body: &[u8]) -> Result<&[u8], String> {
    let Some((head, message)) = body.split_first_chunk::<HEAD>() else {
        return Err(format!("the body has {} bytes, and no message", body.len()));
    };
    let [compressed, len @ ..] = *head;
    if compressed != 0 {
        return Err("the message is compressed, and compression is not supported".to_owned());
    }
    let len = u32::from_be_bytes(len);
    match usize::try_from(len) == Ok(message.len()) {
        true => Ok(message),
        false => Err(format!(
            "the message should have {len} bytes, and has {}",
            message.len()
        )),
    }
}

/// A text for a header: what is not printable ASCII, and `%`, is written as `%XX`.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'%' => escaped.push_str("%25"),
            b' '..=b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// The text of a header. What is no encoding stays as it is, as gRPC wants it.
pub(crate) fn unescaped(text: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let encoded = behind.first_chunk::<2>().filter(|_| first == b'%');
        let byte = encoded
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = match byte {
            Some(_) => behind.get(2..).unwrap_or_default(),
            None => behind,
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_before_it() {
        assert_eq!(framed(b"abc").unwrap(), b"\0\0\0\0\x03abc");
        assert_eq!(unframed(b"\0\0\0\0\x03abc"), Ok(&b"abc"[..]));
        assert_eq!(unframed(&framed(b"").unwrap()), Ok(&b""[..]));
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\x01\0\0\0\x03abc",
            b"\0\0\0\0\x02abc",
            b"\0\xff\xff\xff\xffabc",
        ] {
            assert!(unframed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn texts_survive_a_header() {
        for text in [
            "",
            "plain",
            "100% of \"x\"",
            "zwölf\nlines\u{1F600}",
            "%",
            "%4",
            "%zz",
        ] {
            let header = escaped(text);
            assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            assert_eq!(unescaped(header.as_bytes()), text);
        }
        assert_eq!(unescaped(b"50% of %zz %4"), "50% of %zz %4");
        // Which a parser of numbers would take for one.
        assert_eq!(unescaped(b"%+1"), "%+1");
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Sizes as people write them.

const UNITS: [(&str, u32); 6] = [
    ("K", 10),
    ("M", 20),
    ("G", 30),
    ("T", 40),
    ("P", 50),
    ("E", 60),
];

/// The bytes of a size: `4096`, `10G` or `10GiB` (powers of 1024), or `2048s` (sectors of 512).
///
/// The error is in words.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size"))?;
    let shift = match unit {
        "" | "B" => 0,
        "s" => 9,
        _ => {
            let name = unit.strip_suffix("iB").unwrap_or(unit);
            let known = UNITS
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, shift)| *shift).ok_or_else(|| {
                format!("{unit:?} is not a unit; units are s (sectors), K, M, G, T, P and E")
            })?
        }
    };
    let bytes = number.checked_mul(1_u64.checked_shl(shift).unwrap_or(0));
    bytes.ok_or_else(|| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512B", 512),
            ("2s", 1024),
            ("1K", 1024),
            ("3MiB", 3 << 20),
            ("10g", 10 << 30),
            ("15E", 15 << 60),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "1.5G",
            "1X",
            "16E",
            "1 G",
            "99999999999999999999",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}

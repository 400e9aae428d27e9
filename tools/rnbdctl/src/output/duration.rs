// SPDX-License-Identifier: GPL-2.0

//! Durations as people write them.

const UNITS: [(&str, u32); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// The seconds of a duration: `90` or `90s`, `10m`, `2h`, `1d`.
///
/// The error is in words.
pub fn parse_duration(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let number: u32 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a duration"))?;
    let known = match unit {
        "" => Some(1),
        _ => UNITS
            .iter()
            .find(|(known, _)| *known == unit)
            .map(|(_, seconds)| *seconds),
    };
    let seconds =
        known.ok_or_else(|| format!("{unit:?} is not a unit; units are s, m, h and d"))?;
    let seconds = number.checked_mul(seconds);
    seconds.ok_or_else(|| format!("{text} is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, seconds) in [
            ("0", 0),
            ("90", 90),
            ("90s", 90),
            ("10m", 600),
            ("2h", 7200),
            ("1d", 86_400),
        ] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration() {
        for text in [
            "",
            "m",
            "-1",
            "1.5h",
            "10 m",
            "10M",
            "10min",
            "1h30m",
            "4294967296",
            "4294967295d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}

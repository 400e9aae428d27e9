// SPDX-License-Identifier: GPL-2.0

//! Numbers for people.

/// A size, cut to a tenth: `512 B`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    scaled(
        bytes,
        1024,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
    )
}

/// A time, cut to a tenth: `850 ns`, `12.3 us`.
pub fn nanoseconds(time: u64) -> String {
    scaled(time, 1000, &["ns", "us", "ms", "s"])
}

/// What [`bytes`] or [`nanoseconds`] says, without the tenth from 100 on: `105 us`. At most eight
/// characters, for the columns of rates, which would cut longer text.
pub fn short(text: &str) -> String {
    match text.split_once('.') {
        Some((whole, rest)) if whole.len() > 2 => {
            let unit = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{whole}{unit}")
        }
        _ => text.to_owned(),
    }
}

/// A list of names. If there are many, only the first few are named.
pub fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    const TOLD: usize = 4;
    let mut names = names.into_iter();
    let mut told: Vec<_> = names.by_ref().take(TOLD).map(str::to_owned).collect();
    match names.count() {
        0 => (),
        1 => told.push("1 other".to_owned()),
        count => told.push(format!("{count} others")),
    }
    match (told.pop(), told.is_empty()) {
        (Some(last), false) => format!("{} and {last}", told.join(", ")),
        (Some(only), true) => only,
        (None, _) => String::new(),
    }
}

fn scaled(number: u64, base: u64, units: &[&str]) -> String {
    let mut unit = 1_u64;
    let mut units = units.iter();
    let mut name = units.next().copied().unwrap_or_default();
    for larger in units {
        match unit.checked_mul(base) {
            Some(next) if number >= next => (unit, name) = (next, larger),
            _ => break,
        }
    }
    let whole = number.checked_div(unit).unwrap_or(0);
    let rest = number.checked_rem(unit).unwrap_or(0);
    // `u128` holds ten times the rest of an exbibyte.
    let tenths = u128::from(rest)
        .saturating_mul(10)
        .checked_div(u128::from(unit))
        .unwrap_or(0);
    match tenths {
        0 => format!("{whole} {name}"),
        _ => format!("{whole}.{tenths} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (256 << 20, "256 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn columns_of_rates_have_room() {
        for (text, expected) in [
            (nanoseconds(105_200), "105 us"),
            (nanoseconds(99_900), "99.9 us"),
            (nanoseconds(999_999), "999 us"),
            (bytes(1_048_575), "1023 KiB"),
            (bytes(606_700), "592 KiB"),
            (bytes(17), "17 B"),
        ] {
            assert_eq!(short(&text), expected);
        }
    }

    #[test]
    fn of_many_names_a_few_are_told() {
        for (given, text) in [
            (&[] as &[&str], ""),
            (&["a"], "a"),
            (&["a", "b"], "a and b"),
            (&["a", "b", "c", "d"], "a, b, c and d"),
            (&["a", "b", "c", "d", "e"], "a, b, c, d and 1 other"),
            (&["a", "b", "c", "d", "e", "f"], "a, b, c, d and 2 others"),
        ] {
            assert_eq!(names(given.iter().copied()), text);
        }
    }

    #[test]
    fn times() {
        for (number, text) in [
            (999, "999 ns"),
            (12_345, "12.3 us"),
            (61_000_000_000, "61 s"),
        ] {
            assert_eq!(nanoseconds(number), text);
        }
    }
}

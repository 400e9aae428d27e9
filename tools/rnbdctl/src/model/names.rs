// SPDX-License-Identifier: GPL-2.0

//! The order of names.

use std::cmp::Ordering;

/// Compares names; numbers in them are compared as numbers, so `rnbd2` comes before `rnbd10`.
pub fn natural_cmp(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    loop {
        let (digits_l, digits_r) = (leading_digits(left), leading_digits(right));
        let ordering = if digits_l > 0 && digits_r > 0 {
            let (number_l, rest_l) = left.split_at(digits_l);
            let (number_r, rest_r) = right.split_at(digits_r);
            (left, right) = (rest_l, rest_r);
            let (number_l, number_r) = (without_zeros(number_l), without_zeros(number_r));
            number_l
                .len()
                .cmp(&number_r.len())
                .then(number_l.cmp(number_r))
        } else {
            match (left.split_first(), right.split_first()) {
                (Some((l, rest_l)), Some((r, rest_r))) => {
                    (left, right) = (rest_l, rest_r);
                    l.cmp(r)
                }
                // The names are equal, except for zeros in front of numbers.
                (None, None) => return a.cmp(b),
                (l, r) => return l.is_some().cmp(&r.is_some()),
            }
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
}

fn leading_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    digits.get(zeros..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count() {
        let mut names = [
            "rnbd10",
            "rnbd2",
            "rnbd",
            "rnbd02",
            "a",
            "rnbd2p1",
            "rnbd100000000000000000000000",
        ];
        names.sort_by(|a, b| natural_cmp(a, b));
        assert_eq!(
            names,
            [
                "a",
                "rnbd",
                "rnbd02",
                "rnbd2",
                "rnbd2p1",
                "rnbd10",
                "rnbd100000000000000000000000"
            ]
        );
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Numbers, as `lib/kstrtox.c` and its tests have them.

use proto::{
    number::{
        parse_i32,
        parse_u64,
        Base::{
            ByPrefix,
            Decimal, //
        },
        NumberError::{
            Malformed,
            Overflow, //
        }, //
    },
    Errno, //
};

#[test]
fn a_prefix_says_the_base() {
    for (text, number) in [
        ("0", 0),
        ("+0", 0),
        ("00", 0),
        ("8192", 8192),
        ("8192\n", 8192),
        ("+8192\n", 8192),
        ("010", 8),
        ("0777", 0o777),
        ("0x4000\n", 0x4000),
        ("0XaBcD", 0xabcd),
        ("+0x1f", 0x1f),
        ("18446744073709551615", u64::MAX),
        ("0xffffffffffffffff", u64::MAX),
        ("01777777777777777777777", u64::MAX),
        ("7\0what C does not see", 7),
    ] {
        assert_eq!(parse_u64(text.as_bytes(), ByPrefix), Ok(number), "{text:?}");
    }
}

#[test]
fn anything_else_is_no_number() {
    for text in [
        "", "\n", "+", "-", "-1", "-0", "++1", "+-1", " 1", "1 ", "1\n\n", "1\r\n", "1 2", "many",
        "12x", "1.5", "0x", "0xg", "x1", "08", "0b1", "0o17", "0x+1", "1_000", "\0", "0x\0",
    ] {
        assert_eq!(
            parse_u64(text.as_bytes(), ByPrefix),
            Err(Malformed),
            "{text:?}"
        );
    }
    assert_eq!(parse_u64(b"1\xff", ByPrefix), Err(Malformed));
    assert_eq!(Malformed.errno(), Errno::EINVAL);
}

#[test]
fn a_number_that_is_too_large_is_another_error() {
    for text in [
        "18446744073709551616",
        "0x10000000000000000",
        "02000000000000000000000",
        "99999999999999999999999\n",
        // The overflow is found before the wrong character.
        "99999999999999999999999x",
    ] {
        assert_eq!(
            parse_u64(text.as_bytes(), ByPrefix),
            Err(Overflow),
            "{text:?}"
        );
    }
    assert_eq!(Overflow.errno(), Errno::ERANGE);
}

#[test]
fn integers_have_a_sign() {
    for (text, number) in [
        ("-1", -1),
        ("-1\n", -1),
        ("+9999", 9999),
        ("-0", 0),
        // These are decimal, too.
        ("010", 10),
        ("2147483647", i32::MAX),
        ("-2147483648", i32::MIN),
    ] {
        assert_eq!(parse_i32(text.as_bytes(), Decimal), Ok(number), "{text:?}");
    }
    for text in [
        "2147483648",
        "-2147483649",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999999",
    ] {
        assert_eq!(
            parse_i32(text.as_bytes(), Decimal),
            Err(Overflow),
            "{text:?}"
        );
    }
    for text in [
        "",
        "-",
        "--1",
        "-+1",
        "+-1",
        "- 1",
        "0x10",
        "5 5",
        "99999999999x",
    ] {
        assert_eq!(
            parse_i32(text.as_bytes(), Decimal),
            Err(Malformed),
            "{text:?}"
        );
    }
}

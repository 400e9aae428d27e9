// SPDX-License-Identifier: GPL-2.0

//! Keys as text, and as the kernel's keyring holds them.

#![allow(missing_docs)]

use proto::{
    addr::Address,
    auth_keys::{
        check, client_description, payload, server_description, Key, KeyError, KeySet, Secret,
        MAX_KEYS,
    },
    client_id::ClientId,
};

fn key(number: u32) -> Key {
    Key {
        number,
        secret: Secret::new(core::array::from_fn(|index| index as u8 ^ number as u8)),
    }
}

fn text(key: &Key) -> String {
    let mut text = String::new();
    key.write(&mut text).unwrap();
    text
}

#[test]
fn a_key_comes_back() {
    for number in [0, 1, 0xabcd_ef01, u32::MAX] {
        let text = text(&key(number));
        assert_eq!(text.len(), Key::TEXT_LEN);
        assert_eq!(Key::parse(text.as_bytes()), Ok(key(number)));
    }
    assert_eq!(
        text(&key(0xabcd_ef00)),
        "rnbd-key-1:abcdef00:\
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f:24bc295a"
    );
}

/// Each wrong digit is found.
#[test]
fn a_mistyped_key_is_refused() {
    let good = text(&key(5));
    for at in Key::PREFIX.len()..good.len() {
        let mut bad = good.clone().into_bytes();
        if bad[at] == b':' {
            continue;
        }
        bad[at] = if bad[at] == b'7' { b'8' } else { b'7' };
        assert_eq!(Key::parse(&bad), Err(KeyError::BadSum), "digit {at}");
        bad[at] = b'F';
        assert_eq!(
            Key::parse(&bad),
            Err(KeyError::BadDigit(b'F')),
            "digit {at}"
        );
    }
    assert_eq!(Key::parse(b""), Err(KeyError::NoKey));
    assert_eq!(Key::parse(b"nvme-key"), Err(KeyError::NoKey));
    let len = good.len() - 1;
    assert_eq!(
        Key::parse(&good.as_bytes()[..len]),
        Err(KeyError::BadLength(len))
    );
    let moved = good.replacen("rnbd-key-1:00000005:", "rnbd-key-1:0000000:5", 1);
    assert!(matches!(
        Key::parse(moved.as_bytes()),
        Err(KeyError::BadLength(_))
    ));
}

#[test]
fn a_key_is_not_shown() {
    assert!(format!("{:?}", key(5)).contains("Secret(..)"));
}

fn payload_of(client: &ClientId, keys: &[Key]) -> Result<Vec<u8>, KeyError> {
    let mut bytes = Vec::new();
    payload(client, keys, |piece| bytes.extend_from_slice(piece))?;
    Ok(bytes)
}

#[test]
fn the_keyring_has_all_keys_of_a_client() {
    let client = ClientId::new(b"web1").unwrap();
    let keys: Vec<_> = (0..MAX_KEYS as u32).map(key).collect();
    let bytes = payload_of(&client, &keys).unwrap();
    assert_eq!(bytes.len(), KeySet::MAX_LEN);
    let set = KeySet::parse(&bytes).unwrap();
    assert_eq!(*set.client(), client);
    assert_eq!(set.newest(), Some(key(7)));
    assert_eq!(set.find(3), Some(key(3)));
    assert_eq!(set.find(8), None);
    for bad in [
        &[][..],
        &bytes[..64],
        &bytes[..99],
        &bytes[..bytes.len() - 1],
    ] {
        assert!(KeySet::parse(bad).is_err(), "{} bytes", bad.len());
    }
    let one_more = [&bytes[..], &bytes[64..100]].concat();
    assert_eq!(
        KeySet::parse(&one_more).err(),
        Some(KeyError::BadCount(MAX_KEYS + 1))
    );
}

#[test]
fn keys_of_one_client_differ() {
    assert_eq!(check(&[]), Err(KeyError::BadCount(0)));
    assert_eq!(check(&[key(1), key(2), key(1)]), Err(KeyError::Doubled(1)));
    let many: Vec<_> = (0..9).map(key).collect();
    assert_eq!(check(&many), Err(KeyError::BadCount(9)));
    assert_eq!(check(&many[1..]), Ok(()));
}

#[test]
fn what_the_keyring_calls_keys() {
    let client = ClientId::new(&[b'x'; 63]).unwrap();
    let longest = server_description(&client);
    assert!(!longest.is_cut());
    assert_eq!(longest.as_str(), format!("rnbd-server:{}", "x".repeat(63)));
    assert_eq!(client_description(None).as_str(), "rnbd-client:*");
    for (address, expected) in [
        ("ip:192.0.2.1", "rnbd-client:ip:192.0.2.1"),
        ("ip:fe80::1%eth0", "rnbd-client:ip:fe80::1"),
        (
            "gid:fe80:1111:2222:3333:4444:5555:6666:7777",
            "rnbd-client:gid:fe80:1111:2222:3333:4444:5555:6666:7777",
        ),
    ] {
        let address = Address::parse(address.as_bytes()).unwrap();
        let description = client_description(Some(&address));
        assert!(!description.is_cut());
        assert_eq!(description.as_str(), expected);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The messages and codes, byte by byte, compared with those of another implementation (Python's
//! `hmac` and `struct`, as in `selftests/lib/guest_auth.py`).

use proto::{
    addr::Address,
    auth_keys::{Key, Secret},
    client_id::{ClientId, ClientIdError},
    handshake::{ClientHandshake, Refusal, ResponseError, ServerHandshake},
    rtrs::{
        auth::{nonce_in, put_nonce, AuthReq, AuthRsp, ConnectionCode},
        transcript::{transcript, Label, Said},
        ConnAccept, ConnReject, ConnReq, Nonce,
    },
    Errno, ProtoError,
};

use super::mac::{hmac_sha256, HostMac};

const NUMBER: u32 = 0xabcd_ef01;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn counting<const N: usize>(first: u8) -> [u8; N] {
    core::array::from_fn(|index| first + index as u8)
}

fn said() -> Said {
    let request = ConnReq {
        cid: 0,
        cid_num: 3,
        recon_cnt: 0x0102,
        sess_uuid: *b"sess-uuid-16-byt",
        paths_uuid: *b"path-uuid-16-byt",
        first_conn: true,
        features: 0x3b,
        given_up: 0x0102_0304,
    };
    let server = Address::V4([192, 0, 2, 10]);
    Said::new(request, 0x2b, counting(0), 0x12_3456, &server)
}

fn key() -> Key {
    Key {
        number: NUMBER,
        secret: Secret::new(counting(100)),
    }
}

fn client() -> ClientHandshake {
    let id = ClientId::new(b"web1").unwrap();
    ClientHandshake::new(&HostMac::default(), said(), id, key(), counting(200))
}

/// The first four test cases of RFC 4231; shorter keys are filled up with zeroes by HMAC itself.
#[test]
fn codes_are_those_of_rfc_4231() {
    let cases: &[(&[u8], &[u8], &str)] = &[
        (
            &[0x0b; 20],
            b"Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        ),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            &[0xaa; 20],
            &[0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
        ),
        (
            &counting::<25>(1),
            &[0xcd; 50],
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
        ),
    ];
    for (key, message, expected) in cases {
        assert_eq!(hmac_sha256(key, message).as_slice(), hex(expected));
        let mut longer = [0; Secret::LEN];
        longer[..key.len()].copy_from_slice(key);
        assert_eq!(hmac_sha256(&longer, message).as_slice(), hex(expected));
    }
}

#[test]
fn what_a_code_is_made_of() {
    let message = AuthReq::parse(&client().request()).unwrap();
    let mut expected = b"rtrs auth client".to_vec();
    expected.extend([1, 0, 3, 0, 2, 1, 1, 1, 192, 0, 2, 10]);
    expected.resize(40, 0);
    expected.extend(b"sess-uuid-16-bytpath-uuid-16-byt");
    expected.extend([
        0x3b, 0, 0, 0, 0x2b, 0, 0, 0, 4, 3, 2, 1, 0x56, 0x34, 0x12, 0,
    ]);
    expected.extend(counting::<32>(0));
    expected.extend(counting::<32>(200));
    expected.extend(b"web1");
    expected.resize(216, 0);
    expected.extend([0x01, 0xef, 0xcd, 0xab, 0, 0, 0, 0]);
    assert_eq!(
        transcript(Label::Client, &said(), &message).as_slice(),
        expected
    );
    assert_eq!(
        &transcript(Label::Server, &said(), &message)[..16],
        b"rtrs auth server"
    );
    assert_eq!(
        &transcript(Label::Path, &said(), &message)[..16],
        b"rtrs auth path\0\0"
    );
}

#[test]
fn the_proof_of_the_client() {
    let mut expected = vec![5, 0, 1, 0, 0x01, 0xef, 0xcd, 0xab];
    expected.extend(counting::<32>(200));
    expected.extend(b"web1");
    expected.resize(104, 0);
    expected.extend(hex(
        "9d5d157051e179ba583503566d7072d414530e734b3fab3aa5d62175ef0d696f",
    ));
    assert_eq!(client().request().as_slice(), expected);
    assert_eq!(
        AuthReq::parse(&expected).unwrap().to_bytes().as_slice(),
        expected
    );
}

#[test]
fn the_proof_of_the_server_and_further_connections() {
    let mac = HostMac::default();
    let mut server = ServerHandshake::Waiting(said());
    assert_eq!(server.nonce(), Some(&counting(0)));
    let (response, result) = server.request(&mac, &client().request(), |client, number| {
        assert_eq!((client.as_str(), number), ("web1", NUMBER));
        Ok(key())
    });
    assert_eq!(result, Ok(ClientId::new(b"web1").unwrap()));
    let mut expected = vec![6, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(hex(
        "023e2029d1202b0cf6c51349b5070d367df8c2abd737d428683450a2c356a1ed",
    ));
    assert_eq!(response.as_slice(), expected);

    let path_key = client().response(&mac, &response).unwrap();
    let code = path_key.connection(&mac, 2, 0x65_4321);
    assert_eq!(code.0.as_slice(), hex("e95a52005f8a06ecca2610"));
    assert!(server.admits(&mac, 2, 0x65_4321, &code));
    assert!(!server.admits(&mac, 1, 0x65_4321, &code));
    assert!(!server.admits(&mac, 2, 0x65_4320, &code));
    assert!(!server.admits(&mac, 2, 0x65_4321, &ConnectionCode([0; 11])));
}

#[test]
fn a_path_gets_one_attempt() {
    let mac = HostMac::default();
    let mut wrong = client().request();
    wrong[135] ^= 1;
    let mut server = ServerHandshake::Waiting(said());
    let (response, result) = server.request(&mac, &wrong, |_, _| Ok(key()));
    let id = ClientId::new(b"web1").unwrap();
    assert_eq!(result, Err(Refusal::WrongProof(id, NUMBER)));
    assert_eq!(
        AuthRsp::parse(&response),
        Ok(AuthRsp::Refused(Errno::EKEYREJECTED))
    );
    assert_eq!(server, ServerHandshake::Refused);
    for _ in 0..2 {
        let (response, result) = server.request(&mac, &client().request(), |_, _| Ok(key()));
        assert_eq!(result, Err(Refusal::Repeated));
        assert_eq!(
            AuthRsp::parse(&response),
            Ok(AuthRsp::Refused(Errno::EINVAL))
        );
        assert_eq!(server.client(), None);
    }

    let mut server = ServerHandshake::Waiting(said());
    let (_, result) = server.request(&mac, &client().request(), |_, _| Ok(key()));
    assert_eq!(result, Ok(id));
    let (_, result) = server.request(&mac, &client().request(), |_, _| Ok(key()));
    assert_eq!(result, Err(Refusal::Repeated));
    assert_eq!(server.client(), Some(&id), "the first proof counts");
}

#[test]
fn a_stranger_does_not_learn_which_clients_there_are() {
    let id = ClientId::new(b"web1").unwrap();
    let mut responses = Vec::new();
    for refusal in [Refusal::UnknownClient(id), Refusal::UnknownKey(id, NUMBER)] {
        let mut server = ServerHandshake::Waiting(said());
        let (response, result) =
            server.request(&HostMac::default(), &client().request(), |_, _| {
                Err(refusal)
            });
        assert_eq!(result, Err(refusal));
        responses.push(response);
    }
    assert_eq!(responses[0], responses[1]);
    assert_eq!(
        responses[0],
        AuthRsp::Refused(Errno::EKEYREJECTED).to_bytes()
    );
}

#[test]
fn each_bit_of_a_message_counts() {
    let mac = HostMac::default();
    for bit in 0..AuthReq::SIZE * 8 {
        let mut message = client().request();
        message[bit / 8] ^= 1 << (bit % 8);
        let mut server = ServerHandshake::Waiting(said());
        let (_, result) = server.request(&mac, &message, |_, _| Ok(key()));
        assert!(result.is_err(), "bit {bit} of the request");
    }
    let mut server = ServerHandshake::Waiting(said());
    let (response, _) = server.request(&mac, &client().request(), |_, _| Ok(key()));
    for bit in 0..AuthRsp::SIZE * 8 {
        let mut message = response;
        message[bit / 8] ^= 1 << (bit % 8);
        let result = client().response(&mac, &message);
        // Bytes 4 to 7 are reserved.
        assert_eq!(
            result.is_err(),
            !(32..64).contains(&bit),
            "bit {bit} of the response"
        );
    }
}

#[test]
fn each_thing_that_was_said_counts() {
    let mac = HostMac::default();
    type Change = fn(&mut Said);
    let change: &[(&str, Change)] = &[
        ("cid_num", |said| said.request.cid_num = 4),
        ("recon_cnt", |said| said.request.recon_cnt = 9),
        ("sess_uuid", |said| said.request.sess_uuid[15] = 0),
        ("paths_uuid", |said| said.request.paths_uuid[0] = 0),
        ("first_conn", |said| said.request.first_conn = false),
        ("offered", |said| said.request.features = 0x3f),
        ("given_up", |said| said.request.given_up = 0),
        ("used", |said| said.features = 0x23),
        ("nonce", |said| said.nonce[31] = 0),
        ("queue pair", |said| said.queue_pair = 1),
        ("server", |said| said.server[3] = 11),
        ("family", |said| said.family = 3),
    ];
    for (what, change) in change {
        let mut other = said();
        change(&mut other);
        let mut server = ServerHandshake::Waiting(other);
        let (_, result) = server.request(&mac, &client().request(), |_, _| Ok(key()));
        assert!(
            matches!(result, Err(Refusal::WrongProof(..))),
            "{what}: {result:?}"
        );
    }
}

#[test]
fn the_address_of_a_server_is_the_same_at_both_ends() {
    let said_to = |text: &[u8]| {
        let address = Address::parse(text).unwrap();
        let said = Said::new(said().request, 0, [0; 32], 0, &address);
        (said.family, said.server)
    };
    let v4 = said_to(b"ip:192.0.2.10");
    assert_eq!(v4, said_to(b"ip:::ffff:192.0.2.10"));
    assert_eq!(v4.0, 1);
    assert_eq!(said_to(b"ip:fe80::1%eth0"), said_to(b"ip:fe80::1%7"));
    assert_eq!(said_to(b"ip:fe80::1").0, 2);
    assert_eq!(said_to(b"gid:fe80::1").0, 3);
}

#[test]
fn a_refusal_is_told_in_the_clients_words() {
    let response = AuthRsp::Refused(Errno::EKEYREJECTED).to_bytes();
    let error = client()
        .response(&HostMac::default(), &response)
        .unwrap_err();
    assert_eq!(error, ResponseError::Refused(Errno::EKEYREJECTED));
    assert_eq!(
        error.to_string(),
        "the server does not take this machine's proof of identity (EKEYREJECTED): load the same \
         key at both ends"
    );
    assert!(matches!(
        client().response(&HostMac::default(), &response[..39]),
        Err(ResponseError::Malformed(ProtoError::TooShort { .. }))
    ));
    // An errno that only the kernel uses.
    let mut odd = response;
    odd[2..4].copy_from_slice(&(-512i16).to_le_bytes());
    assert_eq!(
        AuthRsp::parse(&odd),
        Ok(AuthRsp::Refused(Errno::EKEYREJECTED))
    );
}

#[test]
fn the_random_number_and_the_code_are_where_c_has_reserved_bytes() {
    let accept = ConnAccept {
        queue_depth: 512,
        max_io_size: 126_976,
        max_hdr_size: 4096,
        new_rkey: true,
        features: 0x20,
    };
    let mut bytes = accept.to_bytes();
    assert_eq!(nonce_in(&bytes), Ok(Nonce::default()));
    put_nonce(&mut bytes, &counting(7));
    assert_eq!(bytes[24..], counting::<32>(7));
    assert_eq!(nonce_in(&bytes), Ok(counting(7)));
    assert_eq!(ConnAccept::parse(&bytes), Ok(accept));
    let reject = ConnReject {
        errno: Errno::ENOKEY,
    };
    assert_eq!(ConnReject::parse(&reject.to_bytes()), Ok(reject));

    let request = ConnReq {
        cid: 1,
        ..said().request
    };
    let mut bytes = request.to_bytes();
    let code = ConnectionCode(counting(50));
    code.put(&mut bytes);
    assert_eq!(bytes[45..], counting::<11>(50));
    assert_eq!(bytes[..45], request.to_bytes()[..45]);
    assert_eq!(ConnectionCode::of_request(&bytes), code);
    // The connection manager pads private data.
    let longer = [&bytes[..], &[1; 30]].concat();
    assert_eq!(ConnectionCode::of_request(&longer), code);
    assert_eq!(
        ConnectionCode::of_request(&bytes[..45]),
        ConnectionCode([0; 11])
    );
    let parsed = ConnReq::parse(&bytes).unwrap();
    assert_eq!((parsed.cid, parsed.sess_uuid), (1, request.sess_uuid));
}

#[test]
fn a_client_id_is_a_word() {
    for good in [
        &b"a"[..],
        b"web1",
        b"9",
        b"nqn.2014-08.org:x_y@z",
        &[b'x'; 63],
    ] {
        let id = ClientId::new(good).unwrap();
        assert_eq!(id.as_bytes(), good);
        assert_eq!(ClientId::from_field(&id.to_field()), Ok(id));
    }
    for (bad, error) in [
        (&b""[..], ClientIdError::Empty),
        (b".a", ClientIdError::BadStart(b'.')),
        (b"a b", ClientIdError::BadByte(b' ')),
        (b"a/b", ClientIdError::BadByte(b'/')),
        (b"a*", ClientIdError::BadByte(b'*')),
        (b"a\n", ClientIdError::BadByte(b'\n')),
        ("\u{e4}".as_bytes(), ClientIdError::BadStart(0xc3)),
        (&[b'x'; 64], ClientIdError::TooLong(64)),
    ] {
        assert_eq!(ClientId::new(bad), Err(error));
    }
    let mut field = ClientId::new(b"web1").unwrap().to_field();
    field[63] = 1;
    assert_eq!(ClientId::from_field(&field), Err(ClientIdError::Unclean));
    assert_eq!(
        ClientId::from_field(&[b'x'; 64]),
        Err(ClientIdError::TooLong(64))
    );
}

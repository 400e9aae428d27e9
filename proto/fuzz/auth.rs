// SPDX-License-Identifier: GPL-2.0

//! The properties of proofs of identity and of keys that hold for any input.

use proto::{
    auth_keys::{Key, KeySet},
    client_id::ClientId,
    rtrs::auth::{AuthReq, AuthRsp},
};

use super::check_message;

/// A client's proof of its identity.
pub fn auth_req(data: &[u8]) {
    match AuthReq::parse(data) {
        Ok(req) => {
            assert_eq!(AuthReq::parse(&req.to_bytes()), Ok(req));
            assert_eq!(req.to_bytes(), data[..AuthReq::SIZE]);
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A server's response to the proof.
pub fn auth_rsp(data: &[u8]) {
    match AuthRsp::parse(data) {
        Ok(rsp) => assert_eq!(AuthRsp::parse(&rsp.to_bytes()), Ok(rsp)),
        Err(error) => check_message(error.message().as_str()),
    }
}

/// The text of a key, a client id, and the content of the keyring.
pub fn auth_keys(data: &[u8]) {
    match Key::parse(data) {
        Ok(key) => {
            let mut text = String::new();
            key.write(&mut text).expect("a string takes all");
            assert_eq!(text.as_bytes(), data);
        }
        Err(error) => check_message(error.message().as_str()),
    }
    match ClientId::new(data) {
        Ok(client) => assert_eq!(client.as_bytes(), data),
        Err(error) => check_message(error.message().as_str()),
    }
    match KeySet::parse(data) {
        Ok(keys) => {
            let newest = keys.newest().expect("there is one at least");
            assert!(keys.find(newest.number).is_some());
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

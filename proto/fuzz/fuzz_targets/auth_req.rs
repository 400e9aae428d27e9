// SPDX-License-Identifier: GPL-2.0

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::auth_req(data));

// SPDX-License-Identifier: GPL-2.0

//! The client of a fabric's self test (`Documentation/fabric.md`), which tests against
//! `rtrs_test_server`.
//!
//! `rnbdctl fabric test` writes to the files in `/sys/class/rtrs-test/fabric/`, and reads the
//! measurements there. The kernel does not judge them.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::sync::Arc;
use kernel_ext::{
    device::class::{
        Class,
        ClassDevice, //
    },
    module::ModuleReference,
    prelude::*,
    workqueue::{
        OwnedQueue,
        QueueFlags, //
    }, //
};

mod connect;
mod control;
mod error_paths;
mod kinds;
mod measure;
mod report;
mod requests;
mod run;
mod session;

use control::Test;

module! {
    type: RtrsTestClient,
    name: "rtrs_test_client",
    authors: ["The RNBD in Rust developers"],
    description: "Self test of a fabric: initiating end",
    license: "GPL",
}

/// The module. Dropping it stops the test that runs, and waits for its end.
struct RtrsTestClient {
    // Declared in the order in which the fields have to be dropped.
    device: ClassDevice<Test>,
    test: Arc<Test>,
    _queue: OwnedQueue,
}

impl kernel::Module for RtrsTestClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let queue = OwnedQueue::new(c"rtrs_test_client", QueueFlags::UNBOUND)?;
        let test = Test::new(queue.handle(), ModuleReference::new::<Self>)?;
        let class = Class::new(c"rtrs-test")?;
        let device = class.device(c"fabric", control::FILES, test.clone())?;
        device.add_file(&control::RESULT)?;
        device.announce();
        Ok(Self {
            device,
            test,
            _queue: queue,
        })
    }
}

impl Drop for RtrsTestClient {
    fn drop(&mut self) {
        // When the files are gone no test can begin, and the test that runs ends.
        self.device.remove();
        self.test.stop();
    }
}

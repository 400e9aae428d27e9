// SPDX-License-Identifier: GPL-2.0

//! Starting and stopping the self test of a fabric.

use std::path::Path;

use rustix::io::Errno;

use super::write::meaning;
use super::write::write;
use super::write::Meaning;
use crate::Kind;
use crate::Result;

const START: &[Meaning] = &[
    meaning(
        Errno::BUSY,
        Kind::Busy,
        "another test is running",
        "wait for the end of the test, or stop the test: echo 1 > /sys/class/rtrs-test/fabric/stop",
    ),
    meaning(
        Errno::INVAL,
        Kind::Usage,
        "the module refuses the arguments",
        "see the kernel log: dmesg | tail",
    ),
];

/// Starts a test by the module's file `run`.
pub fn start(file: &Path, line: &str) -> Result {
    write("testing the fabric", file, line, &[START])
}

/// Asks the test to end, by the module's file `stop`.
pub fn stop(file: &Path) -> Result {
    write("stopping the test of the fabric", file, "1", &[])
}

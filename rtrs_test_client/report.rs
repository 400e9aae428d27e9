// SPDX-License-Identifier: GPL-2.0

//! The result of a test so far, as text with one fact in each line.

use kernel::{
    fmt,
    new_mutex,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    time::Delta, //
};
use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    sysfs::SysfsOutput, //
};

/// The most bytes of a result. Lines that do not fit are left out.
const MAX_LEN: usize = 256 << 10;

/// The end of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The case ended as it should.
    Good,
    /// The bytes are not those that were sent. The place of the first wrong byte, if it is known.
    WrongBytes(Option<usize>),
    /// There was an error, but none was expected, or another one.
    Failed(Error),
    /// There was no error, but one was expected.
    NoError,
}

/// The result of a test, and whether it is to stop.
///
/// # Invariants
///
/// `text` has at most [`MAX_LEN`] bytes.
#[pin_data]
pub(crate) struct Report {
    #[pin]
    text: Mutex<KVVec<u8>>,
    stopped: Atomic<u32>,
}

impl Report {
    /// Makes an empty report.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                text <- new_mutex!(KVVec::new(), "rtrs_test_client::Report"),
                stopped: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Has the test end at the next case. Any context.
    pub(crate) fn stop(&self) {
        self.stopped.store(1, ordering::Relaxed);
    }

    /// `EINTR` if the test is to stop. Any context.
    pub(crate) fn go_on(&self) -> Result {
        match self.stopped.load(ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(EINTR),
        }
    }

    /// Adds a line, which has its newline. Sleeps.
    pub(crate) fn line(&self, line: fmt::Arguments<'_>) -> Result {
        let line = CString::try_from_fmt(line)?;
        let bytes = line.to_bytes();
        let mut text = self.text.lock();
        if bytes.len() <= MAX_LEN.wrapping_sub(text.len()) {
            text.extend_from_slice(bytes, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Reports that part `number` of `count` begins. `EINTR` if the test is to stop. Sleeps.
    pub(crate) fn step(&self, number: u32, count: u32, name: &str) -> Result {
        self.go_on()?;
        self.line(fmt!("step {number} {count} {name}\n"))
    }

    /// Reports a case that has ended, and took `time`. Sleeps.
    pub(crate) fn case(&self, name: &str, size: u32, outcome: Outcome, time: Delta) -> Result {
        let us = time.as_micros_ceil();
        match outcome {
            Outcome::Good => self.line(fmt!("case {name} {size} ok {us}\n")),
            Outcome::WrongBytes(Some(at)) => {
                self.line(fmt!("case {name} {size} wrong {us} byte {at}\n"))
            }
            Outcome::WrongBytes(None) => self.line(fmt!("case {name} {size} wrong {us}\n")),
            Outcome::Failed(error) => {
                let errno = error.to_errno();
                self.line(fmt!("case {name} {size} failed {us} errno {errno}\n"))
            }
            Outcome::NoError => self.line(fmt!("case {name} {size} no-error {us}\n")),
        }
    }

    /// Shows the text from byte `at` on. Sleeps.
    pub(crate) fn show(&self, at: u64, out: &mut SysfsOutput<'_>) {
        let text = self.text.lock();
        let rest = usize::try_from(at).ok().and_then(|at| text.get(at..));
        out.write_bytes(rest.unwrap_or(&[]));
    }
}

impl Outcome {
    /// The outcome of a case that must not fail.
    pub(crate) fn of(result: Result) -> Self {
        match result {
            Ok(()) => Self::Good,
            Err(error) if error == EILSEQ => Self::WrongBytes(None),
            Err(error) => Self::Failed(error),
        }
    }
}

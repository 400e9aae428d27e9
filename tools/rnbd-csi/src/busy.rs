// SPDX-License-Identifier: GPL-2.0

//! One call at a time for each volume.
//!
//! An orchestrator repeats a call that takes long while the first call still runs. The second call
//! fails at once (ABORTED), and the orchestrator repeats the call later.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;

/// The volumes that calls are at work on.
#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<BTreeSet<String>>);

/// The right to work on a volume, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    busy: &'a Busy,
    volume: String,
}

impl Busy {
    /// The turn of a call for `volume`; ABORTED if another call has it.
    pub(crate) fn turn(&self, volume: &str) -> Result<Turn<'_>> {
        let mut volumes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match volumes.insert(volume.to_owned()) {
            true => Ok(Turn {
                busy: self,
                volume: volume.to_owned(),
            }),
            false => Err(Status::new(
                Code::Aborted,
                format!("another call for {volume} has not ended"),
            )),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut volumes = self.busy.0.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time() {
        let busy = Busy::default();
        let turn = busy.turn("a").unwrap();
        assert_eq!(busy.turn("a").unwrap_err().code, Code::Aborted);
        assert!(busy.turn("b").is_ok());
        drop(turn);
        assert!(busy.turn("a").is_ok());
    }
}

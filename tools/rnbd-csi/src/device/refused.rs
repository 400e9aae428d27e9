// SPDX-License-Identifier: GPL-2.0

//! What helps when the mirror of a volume is not started, because its legs may lack data, or
//! because its record cannot be read.
//!
//! The commands of `rnbdctl` that an administrator has for other mirrors do not help on a node. A
//! call that fails unmaps the legs that it has mapped, and parks the record of the mirror
//! ([`super::parked`]), so `rnbdctl mirror assemble` finds neither. The orchestrator makes the call
//! again.

use rnbdctl::mirror::act::StartOptions;
use rnbdctl::mirror::start::Reason;
use rnbdctl::Error;
use rnbdctl::Kind;

use crate::grpc::Status;

/// How the mirror of a volume is started.
///
/// Each leg is mapped for writing, which a server allows to one node: so a node that has reserved
/// the leg before writes to it no more.
pub(super) fn start_options() -> StartOptions {
    StartOptions {
        take_over: true,
        advice: Some(advice),
        ..StartOptions::default()
    }
}

/// What to do about a start that is refused for that reason.
fn advice(reason: &Reason) -> &'static str {
    match reason {
        Reason::NoLeg | Reason::NoFullLeg => {
            "bring the servers of the other legs back, and the next call stages the volume; if a \
             server is lost for good, see \"When a server is lost for good\" in kubernetes.md"
        }
        Reason::MayBeNewer { .. } => {
            "bring the servers of the missing legs back, or stage the volume on the node that \
             unstaged it last; if a server is lost for good, see \"When a server is lost for \
             good\" in kubernetes.md"
        }
        Reason::Split(..) => {
            "no node can stage the volume: copy the data of the right leg, see \"No node can stage \
             the volume\" in kubernetes.md"
        }
    }
}

/// The failure of a call that needs a record, of which this error of the library was read.
pub(super) fn unreadable(error: Error) -> Status {
    match error.kind() {
        Kind::BadConfig => Status::precondition(format!(
            "{}: {}; start the version of rnbd-csi that wrote the record, unstage the volume, then \
             install the other version",
            error.what(),
            error.why()
        )),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use rnbdctl::mirror::act;
    use rnbdctl::mirror::record::Records;
    use rnbdctl::mirror::MirrorName;
    use rnbdctl::mirror::Record;
    use rnbdctl::System;

    use super::*;
    use crate::grpc::Code;

    const DOCUMENT: &str = include_str!("../../../../Documentation/kubernetes.md");

    #[test]
    fn what_helps_on_a_node_is_in_the_document() {
        let newer = Reason::MayBeNewer {
            known: vec![0],
            missing: 1,
        };
        for reason in [Reason::NoLeg, Reason::NoFullLeg, newer, Reason::Split(0, 1)] {
            let advice = advice(&reason);
            assert!(!advice.contains("rnbdctl"), "{reason:?}: {advice}");
            let part = advice.split('"').nth(1).unwrap();
            let is_there = DOCUMENT.contains(&format!("### {part}\n"))
                || DOCUMENT.contains(&format!("\n**{part}.**"));
            assert!(is_there, "kubernetes.md has no part {part:?}");
        }
    }

    #[test]
    fn a_refused_start_says_what_helps_on_a_node() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let name = MirrorName::new("csi-0123456789abcde").unwrap();
        let record = Record::new(name.clone(), "ab".repeat(16), true, Vec::new());
        Records::of(&system).save(&record).unwrap();
        let told = |options: &StartOptions| {
            Status::from(act::start(&system, &name, options).unwrap_err()).message
        };
        let message = told(&start_options());
        assert!(message.ends_with(advice(&Reason::NoLeg)), "{message}");
        assert!(!message.contains("rnbdctl"), "{message}");
        // Of a mirror that is no volume the commands are right.
        let message = told(&StartOptions::default());
        assert!(message.contains("rnbdctl mirror status"), "{message}");
    }

    #[test]
    fn a_record_of_another_version_is_named() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::of(&System::new(Some(root.path()), None));
        let name = MirrorName::new("csi-0123456789abcde").unwrap();
        let mut record = Record::new(name.clone(), "ab".repeat(16), true, Vec::new());
        record.version = 99;
        records.save(&record).unwrap();
        let status = unreadable(records.load(&name).unwrap_err());
        assert_eq!(status.code, Code::FailedPrecondition);
        let file = "var/lib/rnbd/mirrors/csi-0123456789abcde.json";
        assert!(status.message.contains(file), "{status:?}");
        assert!(!status.message.contains("rnbdctl"), "{status:?}");
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Makes the facts of a verdict from the module's findings and the devices' counters.

use proto::fabric::verdict::Facts;

use super::Case;
use super::Counters;
use super::Found;
use super::Outcome;

/// Cases that must end with an error.
const ERROR_PATHS: &[&str] = &[
    "wrong-key",
    "beyond-end",
    "ended-key",
    "long-message",
    "no-receive",
    "late-write",
];

/// The smallest MTU of RDMA, if the real MTU is not known.
const SMALLEST_MTU: u64 = 256;

fn is_error_path(case: &Case) -> bool {
    ERROR_PATHS.contains(&case.name.as_str())
}

fn is_of_queue(case: &Case) -> bool {
    case.name.starts_with("queue-")
}

/// The facts of a test. The counters have risen by `counted`; a median of `slow_ns` ns or more is
/// slow.
pub fn facts(found: &Found, counted: &Counters, ip_answers: Option<bool>, slow_ns: u64) -> Facts {
    let count = |what: &dyn Fn(&&Case) -> bool| {
        u32::try_from(found.cases.iter().filter(what).count()).unwrap_or(u32::MAX)
    };
    let device = found.device.as_deref().unwrap_or_default();
    let sized = || {
        let cases = found.cases.iter();
        cases.filter(|case| !is_error_path(case) && !is_of_queue(case))
    };
    let smallest_lost = sized()
        .filter(|case| case.outcome == Outcome::Failed)
        .map(|case| case.size)
        .min();
    let smaller = |case: &&Case| smallest_lost.is_none_or(|lost| case.size < lost);
    let largest_whole = sized()
        .filter(|case| case.outcome == Outcome::Ok)
        .filter(smaller)
        .map(|case| case.size)
        .max();
    let smallest = found.latencies.iter().min_by_key(|latency| latency.size);
    Facts {
        no_connection: found.no_connection.map(|(cause, _)| cause),
        ip_answers,
        mtus: found.mtus,
        failed: count(&|case| {
            case.outcome == Outcome::Failed && !is_error_path(case) && !is_of_queue(case)
        }),
        wrong_bytes: count(&|case| case.outcome == Outcome::Wrong),
        largest_whole,
        smallest_lost,
        wrong_errors: count(&|case| match case.outcome {
            Outcome::NoError => true,
            Outcome::Failed => is_error_path(case),
            _ => false,
        }),
        dead_queues: count(&|case| is_of_queue(case) && case.outcome == Outcome::Failed),
        lost: counted.lost(device),
        packets: packets(found).max(counted.packets(device)),
        damaged: counted.damaged(device),
        not_ready: counted.not_ready(device),
        median_ns: smallest.map(|latency| latency.median_ns),
        slow_ns,
        finished: found.end == Some(0),
    }
}

/// The least number of packets that the data took.
fn packets(found: &Found) -> u64 {
    let mtu = found
        .mtus
        .map_or(SMALLEST_MTU, |(here, there)| u64::from(here.min(there)));
    let bytes = found.bandwidths.iter().map(|bandwidth| bandwidth.bytes);
    bytes
        .fold(0, u64::saturating_add)
        .checked_div(mtu)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proto::fabric::verdict::SLOW_NS;

    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        let found = Found::parse(text);
        facts(&found, &Counters::default(), None, SLOW_NS)
            .faults()
            .map(|fault| fault.name())
            .collect()
    }

    #[test]
    fn results_become_verdicts() {
        let good = "device rxe0\nmtu 1024 1024\ncase write 65536 ok 1\n\
            latency write 1 10 5 6 7 8\n";
        assert!(names(&format!("{good}end 0\n")).is_empty());
        for (more, fault) in [
            ("case write 4096 wrong 5 byte 3\nend 0\n", "corruption"),
            ("case wrong-key 0 no-error 5\nend 0\n", "errors"),
            ("case no-receive 0 failed 5 errno -110\nend 0\n", "errors"),
            (
                "case queue-write 3 failed 5 errno -103\nend -103\n",
                "queues",
            ),
            ("case peer-invalidate 1024 no-error 5\nend 0\n", "errors"),
            ("latency write 1 10 5000000 6 7 8\nend 0\n", ""),
            ("end -12\n", "broken"),
        ] {
            let found = names(&format!("{good}{more}"));
            assert!(
                found.first().copied().unwrap_or_default() == fault,
                "{more}: {found:?}"
            );
        }
        let large = "mtu 1024 1024\ncase write 512 ok 1\n\
            case write 1024 failed 9 errno -110\nend -110\n";
        assert_eq!(names(large), ["large-packets"]);
        assert_eq!(names(&large.replace("mtu 1024", "mtu 512")), ["mtu"]);
        assert_eq!(
            names("no-connection no-listener -104 8\nend -104\n"),
            ["no-listener"]
        );
        assert_eq!(
            names("mtu 1 1\nlatency write 1 9 3000000 1 1 1\nend 0\n"),
            ["delay"]
        );
    }
}

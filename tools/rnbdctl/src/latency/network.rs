// SPDX-License-Identifier: GPL-2.0

//! The time that the network takes: the time of the other end that a client sees, less the time
//! that the server sees of itself. Only means can be subtracted: the longest request on the server
//! need not be the longest request on the client.

use crate::model::DeviceLatency;
use crate::model::Side;
use crate::model::StageLatency;

/// Fills in the network's time of the clients' devices in `devices`, if `servers` has the server's
/// ends of these devices.
pub fn add_network(devices: &mut [DeviceLatency], servers: &[DeviceLatency]) {
    for device in devices {
        if device.side != Side::Client {
            continue;
        }
        let Some(other) = other_end(device, servers) else {
            continue;
        };
        for (kind, there) in device.kinds.iter_mut().zip(&other.kinds) {
            let mean = |stage: Option<&StageLatency>| stage?.mean_ns;
            let (remote, whole) = (mean(kind.stage("remote")), mean(there.stage("whole")));
            if let (true, Some(remote), Some(whole)) = (kind.kind == there.kind, remote, whole) {
                kind.network_mean_ns = remote.checked_sub(whole);
            }
        }
    }
}

/// The server's end of a device.
pub fn other_end<'d>(
    device: &DeviceLatency,
    servers: &'d [DeviceLatency],
) -> Option<&'d DeviceLatency> {
    servers.iter().find(|there| {
        there.side == Side::Server
            && there.session == device.session
            && there.device_path == device.device_path
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KindLatency;

    fn device(side: Side, session: &str, means: &[(&str, u64)]) -> DeviceLatency {
        let stage = |&(name, mean): &(&str, u64)| StageLatency {
            stage: name.to_owned(),
            requests: 1,
            mean_ns: Some(mean),
            p50_ns: None,
            p90_ns: None,
            p99_ns: None,
            p999_ns: None,
            max_ns: None,
            buckets: Vec::new(),
        };
        DeviceLatency {
            name: "d".to_owned(),
            side,
            session: session.to_owned(),
            device_path: "disk".to_owned(),
            kinds: vec![KindLatency {
                kind: "read".to_owned(),
                network_mean_ns: None,
                stages: means.iter().map(stage).collect(),
            }],
        }
    }

    #[test]
    fn the_network_is_the_difference_of_means() {
        let client = device(
            Side::Client,
            "s",
            &[("wait", 5), ("remote", 100), ("whole", 105)],
        );
        let server = device(Side::Server, "s", &[("disk", 50), ("whole", 70)]);
        for (there, expected) in [
            (server.clone(), Some(30)),
            (device(Side::Server, "other", &[("whole", 70)]), None),
            (device(Side::Client, "s", &[("whole", 70)]), None),
            // The server's time is longer than the client's, so the requests are not the same.
            (device(Side::Server, "s", &[("whole", 101)]), None),
        ] {
            let mut devices = [client.clone()];
            add_network(&mut devices, &[there.clone()]);
            assert_eq!(devices[0].kinds[0].network_mean_ns, expected, "{there:?}");
        }
        let mut servers = [server.clone()];
        add_network(&mut servers, &[server]);
        assert_eq!(servers[0].kinds[0].network_mean_ns, None);
    }
}

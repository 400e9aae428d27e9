// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl rdma`: the RDMA devices of this machine, their ports and addresses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::model::RdmaDevice;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::output::Tone;
use crate::Result;

/// The arguments: there are none.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// The RDMA devices of this machine.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Devices {
    version: Version,
    /// The devices, by name.
    rdma_devices: Vec<RdmaDevice>,
}

/// Shows the devices.
pub fn run(_: &Args, context: &Context) -> Result {
    context.output.print(&Devices {
        version: JSON_VERSION,
        rdma_devices: context.system.rdma_devices()?,
    })
}

const PORTS: &[Column] = &[
    Column::text("device", "DEVICE"),
    Column::number("port", "PORT"),
    Column::text("state", "STATE"),
    Column::text("physical_state", "LINK").rank(3),
    Column::text("link_layer", "LAYER").rank(5),
    Column::text("rate", "RATE").rank(4),
    Column::text("netdev", "NETDEV").rank(1),
    Column::number("netdev_mtu", "MTU").rank(3),
    Column::number("rdma_mtu", "RDMA MTU").rank(2),
    Column::text("driver", ""),
    Column::text("firmware", ""),
];

const GIDS: &[Column] = &[
    Column::text("device", "DEVICE"),
    Column::number("port", "PORT"),
    Column::number("index", "INDEX").rank(3),
    Column::text("type", "TYPE").rank(2),
    Column::text("netdev", "NETDEV").rank(1),
    Column::text("ip", "IP"),
    Column::text("gid", "GID").rank(4),
];

impl Report for Devices {
    fn tables(&self) -> Vec<Table> {
        let mut ports = Vec::new();
        let mut gids = Vec::new();
        for device in &self.rdma_devices {
            for port in &device.ports {
                let tone = if port.is_active() {
                    Tone::Good
                } else {
                    Tone::Bad
                };
                ports.push(vec![
                    Cell::new(&device.name),
                    Cell::new(port.number),
                    Cell::new(&port.state).tone(tone),
                    Cell::new(&port.physical_state),
                    Cell::new(&port.link_layer),
                    Cell::new(&port.rate),
                    Cell::option(port.netdev.as_ref()),
                    Cell::option(port.netdev_mtu),
                    Cell::option(port.rdma_mtu),
                    Cell::option(device.driver.as_ref()),
                    Cell::option(device.firmware.as_ref()),
                ]);
                for gid in &port.gids {
                    gids.push(vec![
                        Cell::new(&device.name),
                        Cell::new(port.number),
                        Cell::new(gid.index),
                        Cell::option(gid.kind.as_ref()),
                        Cell::option(gid.netdev.as_ref()),
                        Cell::option(gid.ip),
                        Cell::new(&gid.gid),
                    ]);
                }
            }
        }
        vec![
            Table {
                kind: "port",
                title: "Ports".to_owned(),
                columns: PORTS,
                rows: ports,
                empty: "there is no RDMA device".to_owned(),
            },
            Table {
                kind: "gid",
                title: "Addresses".to_owned(),
                columns: GIDS,
                rows: gids,
                empty: "no port has an address".to_owned(),
            },
        ]
    }
}

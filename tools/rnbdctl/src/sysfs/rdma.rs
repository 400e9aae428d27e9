// SPDX-License-Identifier: GPL-2.0

//! The RDMA devices (Documentation/ABI/stable/sysfs-class-infiniband of the kernel).

use std::collections::BTreeMap;
use std::path::Path;

use super::read;
use super::System;
use crate::model::rdma_mtu;
use crate::model::Gid;
use crate::model::RdmaDevice;
use crate::model::RdmaPort;
use crate::Result;

impl System {
    /// All RDMA devices, by name.
    pub fn rdma_devices(&self) -> Result<Vec<RdmaDevice>> {
        let mut devices = Vec::new();
        for (name, folder) in read::entries(&self.sys("class/infiniband"))? {
            let node_type = read::text(&folder.join("node_type"))?.unwrap_or_default();
            let mut ports = Vec::new();
            for (number, folder) in read::entries(&folder.join("ports"))? {
                if let Ok(number) = number.parse() {
                    ports.extend(self.rdma_port(number, &folder, word(&node_type))?);
                }
            }
            devices.push(RdmaDevice {
                name,
                driver: read::link_name(&folder.join("device/driver"))?,
                firmware: read::text(&folder.join("fw_ver"))?.filter(|text| !text.is_empty()),
                ports,
            });
        }
        Ok(devices)
    }

    /// The counters of a device and its ports that have one of these names. The counters of several
    /// ports are added.
    pub fn rdma_counters(&self, device: &str, names: &[&str]) -> Result<BTreeMap<String, u64>> {
        let device = self.sys("class/infiniband").join(device);
        let mut folders = vec![device.join("hw_counters")];
        for (_, port) in read::entries(&device.join("ports"))? {
            folders.extend([port.join("hw_counters"), port.join("counters")]);
        }
        let mut counters = BTreeMap::<String, u64>::new();
        for folder in folders {
            for name in names {
                if let Some(value) = read::number::<u64>(&folder.join(name))? {
                    let sum = counters.entry((*name).to_owned()).or_default();
                    *sum = sum.saturating_add(value);
                }
            }
        }
        Ok(counters)
    }

    fn rdma_port(&self, number: u32, folder: &Path, node_type: &str) -> Result<Option<RdmaPort>> {
        let Some(state) = read::text(&folder.join("state"))? else {
            return Ok(None);
        };
        let text = |name: &str| read::text(&folder.join(name)).map(Option::unwrap_or_default);
        let link_layer = text("link_layer")?;
        // With iWARP (an RNIC) the GID is made of the MAC address.
        let is_roce = link_layer == "Ethernet" && node_type != "RNIC";
        let gids = gids(folder, is_roce)?;
        let netdev = gids.iter().find_map(|gid| gid.netdev.clone());
        let netdev_mtu = match &netdev {
            Some(netdev) => read::number(&self.sys("class/net").join(netdev).join("mtu"))?,
            None => None,
        };
        Ok(Some(RdmaPort {
            number,
            state: word(&state).to_owned(),
            physical_state: word(&text("phys_state")?).to_owned(),
            rate: text("rate")?,
            netdev_mtu,
            rdma_mtu: netdev_mtu.filter(|_| is_roce).and_then(rdma_mtu),
            link_layer,
            is_roce,
            netdev,
            gids,
        }))
    }
}

/// The word in `4: ACTIVE`.
fn word(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, word)| word)
}

fn gids(port: &Path, is_roce: bool) -> Result<Vec<Gid>> {
    let mut gids = Vec::new();
    for (index, file) in read::entries(&port.join("gids"))? {
        // Tables have hundreds of places; most of them are empty (zero).
        let (Ok(index), Some(gid)) = (index.parse::<u32>(), read::text(&file)?) else {
            continue;
        };
        if gid.chars().all(|c| matches!(c, '0' | ':')) {
            continue;
        }
        let attribute = |name: &str| {
            // The attribute may be gone with the address, or may never have been there. Both are
            // the same as empty.
            read::text(&port.join("gid_attrs").join(name).join(index.to_string()))
                .ok()
                .flatten()
        };
        gids.push(Gid {
            index,
            kind: attribute("types"),
            netdev: attribute("ndevs"),
            ip: is_roce.then(|| Gid::ip_of(&gid)).flatten(),
            gid,
        });
    }
    Ok(gids)
}

// SPDX-License-Identifier: GPL-2.0

//! The command line.

use std::path::PathBuf;

use clap::Parser;
use rnbdctl::server_name::Host;
use rnbdctl::server_name::ServerName;

use crate::controller::Peer;
use crate::messages::Map;
use crate::volume::context;

/// Gives remote disks over RDMA (RNBD) to containers, by the Container Storage Interface (CSI)
#[derive(Debug, Parser)]
#[command(name = "rnbd-csi", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// A call of another driver, instead of serving
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// What can be done instead of serving.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a call, as an orchestrator does, and print its result
    Call(Call),
}

/// A call.
#[derive(Debug, clap::Args)]
pub(crate) struct Call {
    /// The driver's socket
    #[arg(long, env = "CSI_ENDPOINT", value_name = "unix://PATH", value_parser = socket)]
    #[arg(default_value = "unix:///run/rnbd-csi/csi.sock")]
    pub(crate) endpoint: PathBuf,

    /// The name of the call, such as NodeGetInfo
    pub(crate) name: String,

    /// The request in JSON, with the names of the specification: {"volume_id": "storage1:vg0/www"}
    #[arg(default_value = "{}")]
    pub(crate) request: String,
}

/// What is served.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The socket to listen at
    #[arg(long, env = "CSI_ENDPOINT", value_name = "unix://PATH", value_parser = socket)]
    #[arg(default_value = "unix:///run/rnbd-csi/csi.sock")]
    pub(crate) endpoint: PathBuf,

    /// The driver's name: the same on all nodes; each storage server that makes volumes has a name
    /// of its own
    #[arg(long, env = "RNBD_CSI_NAME", default_value = "csi.rnbd", value_parser = driver_name)]
    pub(crate) name: String,

    /// Serve this node: map, mount and unmap volumes
    #[arg(long, requires = "node_id")]
    pub(crate) node: bool,

    /// Serve as controller of static volumes, which the administrator makes
    #[arg(long, requires = "node_id", conflicts_with_all = ["server", "mirrors"])]
    pub(crate) controller: bool,

    /// Serve as controller of this storage server, and make volumes on it
    #[arg(long, requires_all = ["server_name", "place"])]
    pub(crate) server: bool,

    /// Serve as controller of volumes that are mirrored over several storage servers, whose own
    /// drivers make the legs
    #[arg(long, requires = "server_socket", conflicts_with = "server")]
    pub(crate) mirrors: bool,

    /// With --mirrors: a storage server, by its --server-name, and the socket of its driver; give
    /// the option for each server
    #[arg(long, requires = "mirrors", value_name = "NAME=unix://PATH", value_parser = peer)]
    pub(crate) server_socket: Vec<Peer>,

    /// This node's name; no two nodes may have the same name
    #[arg(long, env = "RNBD_CSI_NODE", value_name = "NAME", value_parser = node_id)]
    pub(crate) node_id: Option<String>,

    /// With --server: the name of this server in the ids of its volumes; never change the name
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    pub(crate) server_name: Option<String>,

    /// With --server: the folder for volumes that are files, below dev_search_path of rnbd_server
    #[arg(long, group = "place", value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,

    /// With --server: the volume group of LVM for volumes that are logical volumes
    #[arg(long, group = "place", value_name = "GROUP")]
    pub(crate) volume_group: Option<String>,

    /// With --server: the server's addresses or host names, with commas between them [default: the
    /// addresses of the server's name]
    #[arg(long, requires = "server", value_name = "ADDRESS,...", value_parser = addresses)]
    pub(crate) addresses: Option<String>,

    /// With --server: the server's port [default: 1234]
    #[arg(long, requires = "server", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// With --server: how long nodes hold requests while no path is up: 90s, 10m, 1d
    /// [default: 10m]
    #[arg(long, requires = "server", value_name = "DURATION", value_parser = hold)]
    pub(crate) hold: Option<String>,
}

impl Serve {
    /// What nodes are told about each volume of this server.
    pub(crate) fn context(&self) -> Map {
        let port = self.port.map(|port| port.to_string());
        [
            (context::ADDRESSES, self.addresses.clone()),
            (context::PORT, port),
            (context::HOLD, self.hold.clone()),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or(text.strip_prefix("unix:"));
    match path.unwrap_or(text) {
        path if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => Err("not an absolute path of a Unix socket".to_owned()),
    }
}

/// As the specification wants it: letters, digits, dots and hyphens, at most 63.
fn driver_name(text: &str) -> Result<String, String> {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let is_name = text.len() <= 63
        && is_end(text.chars().next())
        && is_end(text.chars().last())
        && text.chars().all(is_inner);
    match is_name {
        true => Ok(text.to_owned()),
        false => Err("a driver's name has at most 63 letters, digits, dots and hyphens".to_owned()),
    }
}

fn node_id(text: &str) -> Result<String, String> {
    let is_id = (1..=128).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
    match is_id {
        true => Ok(text.to_owned()),
        false => Err("a node's name has 1 to 128 printable characters".to_owned()),
    }
}

/// A host name, so that ids need no brackets.
fn server_name(text: &str) -> Result<String, String> {
    let name = ServerName::parse(text)?;
    match (&name.src, &name.host) {
        (None, Host::Name(_)) if text.len() <= 63 => Ok(name.host.to_string()),
        _ => Err("a server's name has at most 63 letters, digits, dots and hyphens".to_owned()),
    }
}

fn peer(text: &str) -> Result<Peer, String> {
    Peer::parse(text, server_name, socket)
}

fn addresses(text: &str) -> Result<String, String> {
    context::addresses(text).map(|_| text.to_owned())
}

fn hold(text: &str) -> Result<String, String> {
    context::hold(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split(' '))
    }

    #[test]
    fn services_need_what_they_work_with() {
        for line in [
            "rnbd-csi --node --node-id a",
            "rnbd-csi --controller --node-id a",
            "rnbd-csi --server --server-name s --folder /srv/csi --hold 1m",
            "rnbd-csi --server --server-name s --volume-group vg0 --addresses 192.0.2.1,s2",
            "rnbd-csi --node --node-id a --server --server-name s --folder /srv/csi",
            "rnbd-csi call NodeGetInfo",
            "rnbd-csi --mirrors --server-socket a=unix:///run/a --server-socket b=unix:///run/b",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "rnbd-csi --node",
            "rnbd-csi --server --server-name s",
            "rnbd-csi --server --folder /srv/csi",
            "rnbd-csi --server --server-name s --folder /a --volume-group b",
            "rnbd-csi --controller --node-id a --server --server-name s --folder /a",
            "rnbd-csi --node --node-id a --hold 1m",
            "rnbd-csi --node --node-id a --name -x",
            "rnbd-csi --node --node-id a --endpoint tcp://1",
            "rnbd-csi --server --server-name 192.0.2.1 --folder /a",
            "rnbd-csi --server --server-name s --folder /a --hold 2d",
            "rnbd-csi --mirrors",
            "rnbd-csi --mirrors --server-socket a",
            "rnbd-csi --mirrors --server-socket a=b",
            "rnbd-csi --server-socket a=unix:///run/a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_context_is_what_nodes_need() {
        let args = parse("rnbd-csi --server --server-name s --folder /a --port 4321").unwrap();
        let context = args.serve.context();
        assert_eq!(context, Map::from([("port".into(), "4321".into())]));
        for text in ["unix:///run/a", "unix:/run/a", "/run/a"] {
            assert_eq!(socket(text), Ok(PathBuf::from("/run/a")));
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Examples for the help and the manual pages.

use clap::Command;

/// A command line, and what it does.
pub type Example = (&'static str, &'static str);

/// The examples of each subcommand, by its name.
const EXAMPLES: [(&str, &[Example]); 31] = [
    (
        "map",
        &[
            (
                "rnbdctl map storage1:nvme0n1",
                "map a disk of the server storage1",
            ),
            (
                "rnbdctl map storage1:vg/a storage1:vg/b --access ro",
                "map two disks read-only",
            ),
            (
                "rnbdctl map 192.0.2.10:sda --hold 0",
                "map a disk whose requests fail at once while the server is away",
            ),
            (
                "rnbdctl map --all storage1",
                "map all disks of the server that are not in use",
            ),
        ],
    ),
    (
        "discover",
        &[(
            "rnbdctl discover storage1",
            "list the disks that this machine can map",
        )],
    ),
    (
        "unmap",
        &[
            ("rnbdctl unmap rnbd0", "unmap a device"),
            (
                "rnbdctl unmap --all",
                "unmap all devices that are not in use",
            ),
        ],
    ),
    (
        "remap",
        &[("rnbdctl remap --all", "open all closed devices again")],
    ),
    (
        "resize",
        &[(
            "rnbdctl resize rnbd0 64G",
            "set the size of the device to 64 GiB",
        )],
    ),
    (
        "list",
        &[
            ("rnbdctl list", "list devices, sessions and paths"),
            (
                "rnbdctl list devices --client -o json",
                "print the mapped devices as JSON",
            ),
        ],
    ),
    (
        "show",
        &[
            (
                "rnbdctl show rnbd0",
                "show a device, its session and its paths",
            ),
            ("rnbdctl show 192.0.2.10", "show the path to this address"),
        ],
    ),
    (
        "path add",
        &[(
            "rnbdctl path add SESSION 198.51.100.10",
            "connect a path to another address of the server",
        )],
    ),
    (
        "path remove",
        &[(
            "rnbdctl path remove 198.51.100.10",
            "disconnect a path and remove it from its session",
        )],
    ),
    (
        "path disconnect",
        &[(
            "rnbdctl path disconnect 198.51.100.10",
            "disconnect a path before its cable is pulled",
        )],
    ),
    (
        "path reconnect",
        &[(
            "rnbdctl path reconnect 198.51.100.10",
            "connect the path again when its cable is plugged in",
        )],
    ),
    (
        "path policy",
        &[(
            "rnbdctl path policy SESSION round-robin",
            "send requests over all paths in turn",
        )],
    ),
    (
        "device set",
        &[(
            "rnbdctl device set rnbd0 io_timeout_ms=30000",
            "let requests fail after 30 seconds",
        )],
    ),
    (
        "session set",
        &[(
            "rnbdctl session set SESSION hb_interval_ms=500 hb_missed_max=2",
            "notice a silent server after 1.5 to 2 seconds",
        )],
    ),
    (
        "server list",
        &[(
            "rnbdctl server list sessions",
            "list the sessions of clients",
        )],
    ),
    (
        "server disconnect",
        &[(
            "rnbdctl server disconnect web1 --force",
            "disconnect a client, which can connect again",
        )],
    ),
    (
        "server force-close",
        &[(
            "rnbdctl server force-close sda web1",
            "close a device that a client has mapped",
        )],
    ),
    (
        "server drain",
        &[(
            "rnbdctl server drain --for 10m",
            "let the clients leave before the server is upgraded",
        )],
    ),
    (
        "check",
        &[
            (
                "rnbdctl check",
                "check whether this machine can map or export disks",
            ),
            (
                "rnbdctl check storage1",
                "check also whether the server can be reached",
            ),
        ],
    ),
    (
        "fabric test",
        &[(
            "rnbdctl fabric test storage1",
            "test the network before disks use it",
        )],
    ),
    (
        "apply",
        &[
            (
                "rnbdctl apply --dry-run",
                "show the changes without making them",
            ),
            ("rnbdctl apply", "make the changes"),
            (
                "rnbdctl apply --prune",
                "make the changes, and unmap devices that the file lacks",
            ),
        ],
    ),
    (
        "config",
        &[
            (
                "rnbdctl config check",
                "list the mistakes in /etc/rnbd/rnbd.toml",
            ),
            (
                "rnbdctl config save",
                "save the mapped devices, to map them again after a reboot",
            ),
        ],
    ),
    (
        "mirror create",
        &[
            (
                "rnbdctl mirror create db vg/db@storage1 vg/db@storage2",
                "mirror two mapped disks as /dev/md/db",
            ),
            (
                "rnbdctl mirror create db",
                "the same, with the legs from rnbd.toml",
            ),
        ],
    ),
    (
        "mirror status",
        &[(
            "rnbdctl mirror status db",
            "show its legs, and the progress of copying",
        )],
    ),
    (
        "mirror assemble",
        &[
            ("rnbdctl mirror assemble db", "start it"),
            (
                "rnbdctl mirror assemble db --force-stale",
                "start it, and give up the data that only missing legs have",
            ),
        ],
    ),
    (
        "mirror stop",
        &[(
            "rnbdctl mirror stop db --release",
            "stop it, and let another machine start it",
        )],
    ),
    (
        "mirror replace",
        &[(
            "rnbdctl mirror replace db vg/db@storage2 vg/db@storage3",
            "replace a leg by a disk of another server",
        )],
    ),
    (
        "stats",
        &[(
            "rnbdctl stats rnbd0 -o json",
            "print the counters of a device as JSON",
        )],
    ),
    (
        "latency",
        &[
            (
                "rnbdctl latency rnbd0 --seconds 10",
                "measure each stage of the requests of a disk for 10 seconds",
            ),
            (
                "rnbdctl latency rnbd0 --server-json server.json",
                "split the remote stage into network and server",
            ),
        ],
    ),
    (
        "schema",
        &[
            (
                "rnbdctl schema server list",
                "print the JSON schema of rnbdctl server list -o json",
            ),
            (
                "rnbdctl schema error",
                "print the JSON schema of an error with -o json",
            ),
        ],
    ),
    (
        "top",
        &[(
            "rnbdctl top --once --interval 5",
            "print the rates over 5 seconds",
        )],
    ),
];

/// The examples of a subcommand. `subcommand` has its words between spaces: `path add`.
pub fn of(subcommand: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == subcommand);
    found.map_or(&[], |(_, examples)| examples)
}

/// Adds the examples of the command and of all subcommands to their help texts.
pub fn add(command: Command) -> Command {
    add_below(command, "")
}

fn add_below(mut command: Command, name: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    for subcommand in names {
        let full = format!("{name} {subcommand}").trim().to_owned();
        command = command.mut_subcommand(subcommand, |subcommand| add_below(subcommand, &full));
    }
    let examples = of(name);
    if examples.is_empty() {
        return command;
    }
    let mut text = match command.get_after_help() {
        Some(have) => format!("{have}\n\n"),
        None => String::new(),
    };
    text.push_str("Examples:");
    for (line, meaning) in examples {
        text.push_str(&format!("\n  {line}\n      {meaning}"));
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn examples_can_be_typed() {
        let mut all = Vec::new();
        names(&Cli::command(), "", &mut all);
        let is_built = |name: &str| match name {
            "exporter" => cfg!(feature = "exporter"),
            "top" => cfg!(feature = "top"),
            _ => true,
        };
        for (name, examples) in EXAMPLES.into_iter().filter(|(name, _)| is_built(name)) {
            assert!(all.iter().any(|have| have == name), "there is no {name}");
            for (line, _) in examples {
                assert!(line.starts_with(&format!("rnbdctl {name}")), "{line}");
                let parsed = Cli::try_parse_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    fn names(command: &Command, above: &str, all: &mut Vec<String>) {
        for subcommand in command.get_subcommands() {
            let name = format!("{above} {}", subcommand.get_name());
            all.push(name.trim().to_owned());
            names(subcommand, name.trim(), all);
        }
    }

    #[test]
    fn the_help_shows_them() {
        let mut command = add(Cli::command());
        command.build();
        let map = command.find_subcommand_mut("map").unwrap();
        let help = map.render_long_help().to_string();
        assert!(
            help.contains("Examples:") && help.contains("storage1:nvme0n1"),
            "{help}"
        );
        let set = command.find_subcommand_mut("device").unwrap();
        let set = set.find_subcommand_mut("set").unwrap();
        let help = set.render_help().to_string();
        assert!(
            help.contains("Tunables:") && help.contains("Examples:"),
            "{help}"
        );
    }
}

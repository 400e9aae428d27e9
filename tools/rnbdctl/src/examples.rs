// SPDX-License-Identifier: GPL-2.0

//! Examples for the help and the manual pages.

use clap::Command;

/// A command line, and what it does.
pub type Example = (&'static str, &'static str);

/// The examples of each subcommand, by its name.
const EXAMPLES: [(&str, &[Example]); 25] = [
    (
        "map",
        &[
            (
                "rnbdctl map storage1:nvme0n1",
                "map a disk of the server storage1",
            ),
            (
                "rnbdctl map storage1:vg/a storage1:vg/b --access ro",
                "map two disks for reading",
            ),
            (
                "rnbdctl map 192.0.2.10:sda --hold 0",
                "have requests fail at once when it is away",
            ),
            (
                "rnbdctl map --all storage1",
                "map all disks that nobody uses",
            ),
        ],
    ),
    (
        "discover",
        &[(
            "rnbdctl discover storage1",
            "list the disks that this machine could map",
        )],
    ),
    (
        "unmap",
        &[
            ("rnbdctl unmap rnbd0", "unmap a device"),
            ("rnbdctl unmap --all", "unmap all devices that nobody uses"),
        ],
    ),
    (
        "remap",
        &[("rnbdctl remap --all", "open closed devices again")],
    ),
    (
        "resize",
        &[("rnbdctl resize rnbd0 64G", "the disk has 64 GiB now")],
    ),
    (
        "list",
        &[
            ("rnbdctl list", "everything at a glance"),
            (
                "rnbdctl list devices --client -o json",
                "mapped devices, for a program",
            ),
        ],
    ),
    (
        "show",
        &[
            ("rnbdctl show rnbd0", "a device, its session and the paths"),
            ("rnbdctl show 192.0.2.10", "the path to that address"),
        ],
    ),
    (
        "path add",
        &[(
            "rnbdctl path add SESSION 198.51.100.10",
            "connect to one more address of the server",
        )],
    ),
    (
        "path remove",
        &[(
            "rnbdctl path remove 198.51.100.10",
            "disconnect a path and forget it",
        )],
    ),
    (
        "path disconnect",
        &[(
            "rnbdctl path disconnect 198.51.100.10",
            "before its cable is pulled",
        )],
    ),
    (
        "path reconnect",
        &[(
            "rnbdctl path reconnect 198.51.100.10",
            "when its cable is in again",
        )],
    ),
    (
        "path policy",
        &[(
            "rnbdctl path policy SESSION round-robin",
            "use all paths in turn",
        )],
    ),
    (
        "device set",
        &[(
            "rnbdctl device set rnbd0 io_timeout_ms=30000",
            "give requests half a minute",
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
            "the clients of this machine",
        )],
    ),
    (
        "server disconnect",
        &[(
            "rnbdctl server disconnect web1 --force",
            "cut a client off, which may come again",
        )],
    ),
    (
        "server force-close",
        &[(
            "rnbdctl server force-close sda web1",
            "take a disk from a client",
        )],
    ),
    (
        "server drain",
        &[(
            "rnbdctl server drain --for 10m",
            "before the server is upgraded",
        )],
    ),
    (
        "check",
        &[
            ("rnbdctl check", "what this machine lacks"),
            (
                "rnbdctl check storage1",
                "and whether that server can be reached",
            ),
        ],
    ),
    (
        "fabric test",
        &[(
            "rnbdctl fabric test storage1",
            "try the network before it carries data",
        )],
    ),
    (
        "apply",
        &[
            ("rnbdctl apply --dry-run", "what would change"),
            ("rnbdctl apply", "change it"),
            (
                "rnbdctl apply --prune",
                "and unmap what the file does not have",
            ),
        ],
    ),
    (
        "config",
        &[
            (
                "rnbdctl config check",
                "what is wrong with /etc/rnbd/rnbd.toml",
            ),
            (
                "rnbdctl config save",
                "have what is mapped now again after a reboot",
            ),
        ],
    ),
    (
        "stats",
        &[(
            "rnbdctl stats rnbd0 -o json",
            "what a device has counted, for a program",
        )],
    ),
    (
        "latency",
        &[
            (
                "rnbdctl latency rnbd0 --seconds 10",
                "where the time of a disk's requests goes",
            ),
            (
                "rnbdctl latency rnbd0 --server-json server.json",
                "and what the network takes of it",
            ),
        ],
    ),
    (
        "top",
        &[(
            "rnbdctl top --once --interval 5",
            "the rates of five seconds",
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
        for (name, examples) in EXAMPLES {
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

// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl man`: the manual pages, for packages.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use clap::Command;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::cli::Context;
use crate::examples;
use crate::Error;
use crate::Result;

/// The section of administration commands.
const SECTION: &str = "8";

/// Files for the manual page of each subcommand.
const FILES: [(&str, &str); 7] = [
    (
        "/etc/rnbd/rnbd.toml",
        "the disks that this machine maps; see rnbd.toml(5)",
    ),
    (
        "/etc/rnbd/server.toml",
        "the configuration of a server; see rnbd-server.toml(5)",
    ),
    (
        "/etc/rnbd/export.policy",
        "the export policy: which clients may map which disks",
    ),
    (
        "/sys/class/rnbd-client/ctl",
        "the control files of a client",
    ),
    (
        "/sys/class/rnbd-server/ctl",
        "the control files of a server",
    ),
    (
        "/var/lib/rnbd/mirrors",
        "the records of this machine's mirrors",
    ),
    (
        "/dev/rnbd/by-session",
        "links to mapped disks; their names do not change",
    ),
];

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder for the pages; made if it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Writes a page for the program, and a page for each subcommand, also of subcommands.
pub fn run(args: &Args, _: &Context) -> Result {
    let fail = |error: io::Error| Error::io(args.folder.display(), &error);
    fs::create_dir_all(&args.folder).map_err(fail)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, "", &args.folder).map_err(fail)
}

/// Writes the page of a command and the pages of its subcommands. `name` is, for example,
/// `path add`; it is empty for the program.
fn write_pages(command: &Command, name: &str, folder: &Path) -> io::Result<()> {
    let page = match name {
        "" => "rnbdctl".to_owned(),
        name => format!("rnbdctl-{}", name.replace(' ', "-")),
    };
    let man = Man::new(command.clone().display_name(page.clone()))
        .title(page.to_uppercase())
        .section(SECTION);
    let mut text = Vec::new();
    man.render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text.push_str(&more(name));
    fs::write(folder.join(format!("{page}.{SECTION}")), text)?;
    for subcommand in command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let name = format!("{name} {}", subcommand.get_name());
        write_pages(subcommand, name.trim(), folder)?;
    }
    Ok(())
}

/// The sections that clap does not make.
fn more(name: &str) -> String {
    let mut text = String::new();
    let examples = examples::of(name);
    if !examples.is_empty() {
        text.push_str(".SH EXAMPLES\n");
    }
    for (line, meaning) in examples {
        text.push_str(&format!(
            ".TP\n\\fB{}\\fR\n{}\n",
            escape(line),
            escape(meaning)
        ));
    }
    text.push_str(".SH FILES\n");
    for (file, meaning) in FILES {
        text.push_str(&format!(
            ".TP\n\\fI{}\\fR\n{}\n",
            escape(file),
            escape(meaning)
        ));
    }
    let parents = match name.split_once(' ') {
        Some((parent, _)) => format!("rnbdctl({SECTION}), rnbdctl-{parent}({SECTION}), "),
        None if !name.is_empty() => format!("rnbdctl({SECTION}), "),
        None => String::new(),
    };
    text.push_str(&format!(".SH SEE ALSO\n{}rnbd.toml(5)\n", escape(&parents)));
    text
}

/// Escapes text for roff.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-")
}

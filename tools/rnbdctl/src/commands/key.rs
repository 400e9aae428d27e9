// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl key`: the keys by which clients prove their identity.

use proto::addr::Address;
use proto::auth_keys::Key;
use proto::auth_keys::Secret;
use proto::client_id::ClientId;
use rustix::rand::getrandom;
use rustix::rand::GetRandomFlags;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::keys;
use crate::keys::KeyFile;
use crate::keys::Role;
use crate::keys::Store;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do with keys.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a key for a client; its older keys stay valid until they are removed
    New(NewArgs),
    /// List the keys in /etc/rnbd/keys, without their secrets
    List,
    /// Load the keys in /etc/rnbd/keys into the kernel, and remove all other keys from the kernel
    Load,
    /// Remove keys of a client; then run rnbdctl key load
    Remove(RemoveArgs),
}

/// The arguments of `key new`.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// The client's id: letters, digits and . _ - : @
    #[arg(value_name = "ID", value_parser = client_id)]
    pub client: ClientId,

    /// The key is for this machine as a client
    #[arg(long)]
    pub own: bool,

    /// With --own: a server that the key is for, ip:ADDRESS or gid:GID [default: all servers]
    #[arg(long, value_name = "ADDRESS", value_parser = server, requires = "own")]
    pub server: Vec<Address>,
}

/// The arguments of `key remove`.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// The client's id
    #[arg(value_name = "ID", value_parser = client_id)]
    pub client: ClientId,

    /// Remove keys of this machine as a client
    #[arg(long)]
    pub own: bool,

    /// The number of the key, as in rnbdctl key list [default: all keys of the client]
    #[arg(long, value_name = "NUMBER", value_parser = key_number)]
    pub key: Option<u32>,
}

fn client_id(text: &str) -> std::result::Result<ClientId, String> {
    ClientId::new(text.as_bytes()).map_err(|error| format!("the id {error}"))
}

fn server(text: &str) -> std::result::Result<Address, String> {
    Address::parse(text.as_bytes()).map_err(|error| error.to_string())
}

fn key_number(text: &str) -> std::result::Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| "give up to 8 hexadecimal digits".to_owned())
}

fn role(own: bool) -> Role {
    if own {
        Role::Own
    } else {
        Role::Client
    }
}

/// The keys of this machine.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Keys {
    version: Version,
    /// The keys.
    keys: Vec<Row>,
}

/// A key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
struct Row {
    /// The client's id.
    client_id: String,
    /// The purpose of the key.
    role: Role,
    /// The number of the key, 8 hexadecimal digits.
    number: String,
    /// Whether the key is the newest key of the client.
    newest: bool,
    /// The servers that the key is for; empty for all servers.
    servers: Vec<String>,
    /// Whether the kernel has keys of this client; `None` unless root asks.
    loaded: Option<bool>,
}

const COLUMNS: &[Column] = &[
    Column::text("client_id", "CLIENT ID"),
    Column::text("role", "ROLE"),
    Column::text("number", "KEY"),
    Column::text("newest", "NEWEST"),
    Column::text("servers", "SERVERS"),
    Column::text("loaded", "LOADED"),
];

impl Report for Keys {
    fn tables(&self) -> Vec<Table> {
        let yes_or_no = |value: &bool| if *value { "yes" } else { "no" }.to_owned();
        let row = |row: &Row| {
            vec![
                Cell::new(&row.client_id),
                Cell::new(row.role.as_str()),
                Cell::new(&row.number),
                Cell::value(Some(row.newest), yes_or_no),
                Cell::option((!row.servers.is_empty()).then(|| row.servers.join(" "))),
                Cell::value(row.loaded, yes_or_no),
            ]
        };
        vec![Table {
            kind: "key",
            title: "Keys".to_owned(),
            columns: COLUMNS,
            rows: self.keys.iter().map(row).collect(),
            empty: "no key in /etc/rnbd/keys".to_owned(),
        }]
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, context: &Context) -> Result {
    let store = Store::new(&context.system);
    match &args.command {
        Command::New(args) => new(args, &store, context),
        Command::List => list(&store, context),
        Command::Load => load(&store, context),
        Command::Remove(args) => remove(args, &store, context),
    }
}

fn new(args: &NewArgs, store: &Store, context: &Context) -> Result {
    let role = role(args.own);
    let path = store.path(role, &args.client);
    let mut file = store
        .read(role, &args.client)?
        .unwrap_or_else(|| KeyFile::new(args.client));
    for server in &args.server {
        if !file.servers.contains(server) {
            file.servers.push(*server);
        }
    }
    let key = Key {
        number: u32::from_be_bytes(random()?),
        secret: Secret::new(random()?),
    };
    let number = file.add(key, &path.display().to_string())?;
    store.write(role, &file)?;
    context.output.say(&format!(
        "made key {number:08x} of {} in {}",
        args.client,
        path.display()
    ))?;
    let (there, here) = match role {
        Role::Client => (Role::Own, "the client"),
        Role::Own => (Role::Client, "the server"),
    };
    context.output.say(&format!(
        "copy the file to {here}, as {}, and run rnbdctl key load at both ends, the server first",
        Store::new(&crate::System::new(None, None))
            .path(there, &args.client)
            .display()
    ))
}

/// Random bytes of the kernel.
fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(len) if len == N => Ok(bytes),
        Ok(_) => Err(Error::new(Kind::Failed, "a random number", "too few bytes")),
        Err(error) => Err(Error::io("a random number", &error.into())),
    }
}

fn list(store: &Store, context: &Context) -> Result {
    let mut rows = Vec::new();
    for role in Role::ALL {
        for file in store.list(role)? {
            let loaded = keys::is_loaded(role, &file);
            let newest = file.keys.last().map(|key| key.number);
            rows.extend(file.keys.iter().map(|key| Row {
                client_id: file.client.to_string(),
                role,
                number: format!("{:08x}", key.number),
                newest: Some(key.number) == newest,
                servers: file.servers.iter().map(Address::to_string).collect(),
                loaded,
            }));
        }
    }
    context.output.print(&Keys {
        version: JSON_VERSION,
        keys: rows,
    })
}

fn load(store: &Store, context: &Context) -> Result {
    let files = store.all()?;
    keys::load(&files)?;
    let count: usize = files.iter().map(|(_, file)| file.keys.len()).sum();
    let clients = files.len();
    context.output.say(&format!(
        "the kernel has {count} keys, of {clients} client ids"
    ))?;
    if files.iter().any(|(role, _)| *role == Role::Own) {
        tell_of_sessions(context)?;
    }
    Ok(())
}

/// Says that connected sessions do not prove an identity that they were not begun with.
fn tell_of_sessions(context: &Context) -> Result {
    let sessions = context.system.client_sessions()?;
    let up = sessions.iter().filter(|session| session.paths_up() > 0);
    let names: Vec<_> = up.map(|session| session.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    context.output.say(&format!(
        "these sessions do not change: {}; a session that was established without a proof of \
         identity takes no path with a proof: disconnect all its paths (rnbdctl path disconnect), \
         then reconnect them (rnbdctl path reconnect)",
        names.join(", ")
    ))
}

fn remove(args: &RemoveArgs, store: &Store, context: &Context) -> Result {
    let role = role(args.own);
    let path = store.path(role, &args.client).display().to_string();
    let Some(mut file) = store.read(role, &args.client)? else {
        return Err(Error::new(Kind::NotFound, path, "there is no such file")
            .hint("list the keys with: rnbdctl key list"));
    };
    match args.key {
        None => file.keys.clear(),
        Some(number) if file.remove(number) => {}
        Some(number) => {
            let why = format!("there is no key {number:08x}");
            return Err(
                Error::new(Kind::NotFound, path, why).hint("list the keys with: rnbdctl key list")
            );
        }
    }
    store.write(role, &file)?;
    context.output.say(&format!(
        "{} keys of {} are left; remove the others from the kernel with: rnbdctl key load",
        file.keys.len(),
        args.client
    ))
}

// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl server apply`: brings the server to the state in its configuration file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::process::Command;

use proto::client_id::ClientId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::control;
use crate::control::policy;
use crate::kernel_log::KernelLog;
use crate::keys;
use crate::keys::Role;
use crate::keys::Store;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Format;
use crate::output::Report;
use crate::output::Table;
use crate::server_config;
use crate::server_config::Plan;
use crate::server_config::Running;
use crate::server_config::RunningKeys;
use crate::server_config::ServerConfig;
use crate::server_config::Step;
use crate::server_config::DEFAULT_FILE;
use crate::server_config::PARAMETERS;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The kernel's file of the policy.
const POLICY: &str = "class/rnbd-server/ctl/export_policy";

/// The file of the policy that udev loads. Two policies cannot be in force.
const OTHER_POLICY: &str = "etc/rnbd/export.policy";

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file [default: /etc/rnbd/server.toml]
    pub file: Option<PathBuf>,

    /// Only show the steps
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// The steps that were taken, or would be taken.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Applied {
    version: Version,
    /// Whether the steps were only planned.
    dry_run: bool,
    /// The steps.
    steps: Vec<String>,
    /// Likely mistakes, and steps that are impossible while the modules are loaded.
    remarks: Vec<String>,
}

const COLUMNS: &[Column] = &[Column::text("step", "STEP")];

impl Report for Applied {
    fn tables(&self) -> Vec<Table> {
        vec![Table {
            kind: "step",
            title: "Steps".to_owned(),
            columns: COLUMNS,
            rows: self
                .steps
                .iter()
                .map(|step| vec![Cell::new(step)])
                .collect(),
            empty: "nothing to do".to_owned(),
        }]
    }
}

/// Applies the file. A step that fails ends the command: the next steps need the module.
pub fn run(args: &Args, context: &Context) -> Result {
    let config = load(args, context)?;
    let plan = Plan::new(&config, &running(&config, context)?);
    let is_for_people = context.output.format() == Format::Table;
    for step in &plan.steps {
        if !args.dry_run {
            perform(step, context)?;
        }
        let mark = if step.is_repeated() { '=' } else { '+' };
        context.output.say(&format!("{mark} {step}"))?;
    }
    for remark in &plan.remarks {
        context.output.say(&format!("! {remark}"))?;
    }
    if !is_for_people {
        return context.output.print(&Applied {
            version: JSON_VERSION,
            dry_run: args.dry_run,
            steps: plan.steps.iter().map(ToString::to_string).collect(),
            remarks: plan.remarks,
        });
    }
    match plan.steps.as_slice() {
        [] => context.output.say("nothing to do"),
        steps if steps.iter().all(Step::is_repeated) => context.output.say("nothing else to do"),
        _ => Ok(()),
    }
}

fn load(args: &Args, context: &Context) -> Result<ServerConfig> {
    let file = match &args.file {
        Some(file) => file.clone(),
        None => context.system.file(DEFAULT_FILE.trim_start_matches('/')),
    };
    let name = file.display().to_string();
    let wrong = |why: String| Error::new(Kind::BadConfig, name.clone(), why);
    let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
    let config = server_config::parse(&text).map_err(|why| {
        wrong(why).hint("nothing was changed; server.md explains the keys of the file")
    })?;
    let other = context.system.file(OTHER_POLICY);
    if config.policy.is_some() && other.exists() {
        let other = other.display();
        let why = format!("the file sets export, and {other} exists, whose policy udev loads");
        return Err(wrong(why).hint(format!(
            "move the rules of {other} into {name}, and remove {other}; or remove export from \
             {name}"
        )));
    }
    Ok(config)
}

/// The present state of the machine.
fn running(config: &ServerConfig, context: &Context) -> Result<Running> {
    let system = &context.system;
    let mut modules = BTreeMap::new();
    for (module, names) in PARAMETERS {
        if !system.is_loaded(module) {
            continue;
        }
        let folder = system.sys("module").join(module).join("parameters");
        let value = |name: &&str| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            Some(((*name).to_owned(), text.trim_end().to_owned()))
        };
        modules.insert(module.to_owned(), names.iter().filter_map(value).collect());
    }
    let file = system.sys(POLICY);
    let policy = match file.exists() {
        true => policy::read(&file)?,
        false => None,
    };
    let policy = policy.map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(Running {
        modules,
        policy,
        keys: running_keys(config, context)?,
        no_disks: no_disks(config, context),
    })
}

/// The clients that have keys. It is an error if the file names a client without a key: the client
/// would be refused, or be accepted without a proof.
fn running_keys(config: &ServerConfig, context: &Context) -> Result<RunningKeys> {
    let store = Store::new(&context.system);
    let mut running = RunningKeys::default();
    for file in store.list(Role::Client)? {
        if keys::is_loaded(Role::Client, &file) == Some(true) {
            running.loaded.push(file.client);
        }
        running.files.push(file.client);
    }
    let lacks = |client: &&ClientId| !running.files.contains(client);
    match config.keys.iter().flatten().find(lacks) {
        None => Ok(running),
        Some(client) => {
            let what = format!("keys.clients names {client}");
            let file = store.path(Role::Client, client);
            let why = format!("the file {} does not exist", file.display());
            Err(Error::new(Kind::BadConfig, what, why).hint(format!(
                "nothing was changed; make a key: rnbdctl key new {client}, and copy its file to \
                 the client"
            )))
        }
    }
}

/// The exported paths that are not disks now, with the reasons. They are not errors: the disks may
/// come later.
fn no_disks(config: &ServerConfig, context: &Context) -> Vec<String> {
    let reason = |path: &String| {
        let file = context.system.file(path.trim_start_matches('/'));
        let reason = match fs::metadata(&file).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_block_device() || kind.is_file() => return None,
            Ok(_) => "neither a block device nor a file with data".to_owned(),
            Err(error) => control::errno::text(&error),
        };
        Some(format!("{path} cannot be mapped now: {reason}"))
    };
    config.paths.iter().filter_map(reason).collect()
}

fn perform(step: &Step, context: &Context) -> Result {
    match step {
        // All keys are loaded, also this machine's own as a client: the kernel forgets keys that
        // are not loaded again.
        Step::Keys { .. } => keys::load(&Store::new(&context.system).all()?),
        Step::Load { module, parameters } => modprobe(module, parameters),
        Step::Policy(text) => {
            let file = context.system.sys(POLICY);
            if !file.exists() {
                let what = "loading the export policy";
                let why = "the loaded rnbd_server is the C module, which has no policies and \
                           exports all disks to all clients";
                let hint = "unload it (modprobe -r rnbd_server), and install the package rnbd-dkms";
                return Err(Error::new(Kind::Unsupported, what, why).hint(hint));
            }
            policy::load(&file, text.as_bytes())
        }
    }
}

fn modprobe(module: &str, parameters: &[String]) -> Result {
    let what = format!("loading {module}");
    let log = KernelLog::begin();
    let output = Command::new("modprobe")
        .arg(module)
        .args(parameters)
        .output()
        .map_err(|error| Error::io(format!("{what}: running modprobe"), &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().last().unwrap_or("modprobe failed").trim();
    let why = why.strip_prefix("modprobe: ").unwrap_or(why);
    Err(Error::new(Kind::Failed, what, why)
        .hint("see the parameters in administration.md; see the kernel log: dmesg | tail")
        .kernel(log.lines()))
}

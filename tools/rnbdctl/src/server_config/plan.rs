// SPDX-License-Identifier: GPL-2.0

//! The difference between the file and the machine.

use std::collections::BTreeMap;
use std::fmt;

use proto::client_id::ClientId;
use proto::pattern::Pattern;

use super::ServerConfig;
use super::PARAMETERS;

/// The parameter with which a server does not listen before it has a policy.
const REQUIRE_POLICY: &str = "require_export_policy";

/// The parameter with which clients without keys are refused.
const REQUIRE_PROOF: &str = "require_auth";

/// The keys of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningKeys {
    /// The clients that have a file in `/etc/rnbd/keys/clients`, in the order of their names.
    pub files: Vec<ClientId>,
    /// The clients among `files` of which the kernel has keys. The kernel does not show which keys
    /// these are.
    pub loaded: Vec<ClientId>,
}

/// The state of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The loaded modules of the server, with the parameters that they show.
    pub modules: BTreeMap<String, BTreeMap<String, String>>,
    /// The policy in force.
    pub policy: Option<String>,
    /// The keys of the clients.
    pub keys: RunningKeys,
    /// The exported paths that are not disks now, each followed by the reason.
    pub no_disks: Vec<String>,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load the keys in the files of these clients into the kernel.
    Keys {
        /// The clients.
        clients: Vec<ClientId>,
        /// The kernel has keys of all these clients. They are loaded again, as they may have
        /// changed.
        again: bool,
    },
    /// Load a module with these parameters, each as `NAME=VALUE`.
    Load {
        /// The module.
        module: &'static str,
        /// Its parameters.
        parameters: Vec<String>,
    },
    /// Put this policy in force.
    Policy(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys { clients, again } => {
                let names: Vec<_> = clients.iter().map(ClientId::as_str).collect();
                let names = match names.is_empty() {
                    true => "no client".to_owned(),
                    false => names.join(", "),
                };
                write!(f, "keys of {names}")?;
                match again {
                    true => f.write_str(", again: the kernel does not show which keys it has"),
                    false => Ok(()),
                }
            }
            Self::Load { module, parameters } => {
                write!(f, "module {module}")?;
                parameters.iter().try_for_each(|text| write!(f, " {text}"))
            }
            Self::Policy(text) => match rules(text) {
                1 => write!(f, "export policy: 1 rule"),
                count => write!(f, "export policy: {count} rules"),
            },
        }
    }
}

impl Step {
    /// Whether the step was taken before, as far as can be seen.
    pub fn is_repeated(&self) -> bool {
        matches!(self, Self::Keys { again: true, .. })
    }
}

/// The rules of a policy.
fn rules(policy: &str) -> usize {
    let is_rule = |line: &&str| line.trim_start().starts_with("allow");
    policy.lines().filter(is_rule).count()
}

/// The steps to be taken, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// Remarks, such as changes that cannot be made while the server runs.
    pub remarks: Vec<String>,
}

impl Plan {
    /// Compares the file with the machine.
    ///
    /// A loaded module keeps its parameters. If the file has exports, the server does not listen
    /// before it has the policy. The kernel gets the keys before the server listens, so that no
    /// client is refused meanwhile.
    pub fn new(config: &ServerConfig, running: &Running) -> Self {
        let mut plan = Self::default();
        plan.keys(config, &running.keys);
        for (module, _) in PARAMETERS {
            let mut wanted = config.parameters.get(module).cloned().unwrap_or_default();
            if module == "rnbd_server" && config.policy.is_some() {
                let value = wanted.entry(REQUIRE_POLICY.to_owned());
                value.or_insert_with(|| "Y".to_owned());
            }
            match running.modules.get(module) {
                Some(have) => plan.differences(module, &wanted, have),
                None => plan.steps.push(Step::Load {
                    module,
                    parameters: wanted.iter().map(assignment).collect(),
                }),
            }
        }
        if let Some(policy) = &config.policy {
            plan.early_clients(running);
            if running.policy.as_ref() != Some(policy) {
                plan.steps.push(Step::Policy(policy.clone()));
            }
        }
        plan.remarks.extend(running.no_disks.iter().cloned());
        plan
    }

    /// Plans the keys, with remarks on likely mistakes.
    fn keys(&mut self, config: &ServerConfig, have: &RunningKeys) {
        if let Some(named) = &config.keys {
            self.steps.push(Step::Keys {
                clients: named.clone(),
                again: named.iter().all(|client| have.loaded.contains(client)),
            });
            for other in have.files.iter().filter(|file| !named.contains(file)) {
                self.remarks.push(format!(
                    "client {other} has a key, and keys.clients does not have the client: add \
                     {other} to keys.clients, or rnbdctl key remove {other}"
                ));
            }
        }
        for (number, pattern) in &config.client_ids {
            let fits = |client: &ClientId| {
                let parsed = Pattern::parse(pattern.as_bytes());
                parsed.is_ok_and(|parsed| parsed.matches(client.as_bytes()))
            };
            if !have.files.iter().any(fits) {
                self.remarks.push(format!(
                    "export {number}: no client with a key matches {pattern:?} of client_ids"
                ));
            }
        }
        let transport = config.parameters.get("rtrs_server");
        let required = transport.and_then(|values| values.get(REQUIRE_PROOF));
        if have.files.is_empty() && required.is_some_and(|value| is_same(value, "Y")) {
            self.remarks.push(format!(
                "parameters.rtrs_server.{REQUIRE_PROOF} is true, and no client has a key: once \
                 rtrs_server is loaded with it, the server refuses all clients; make keys with \
                 rnbdctl key new, and load them with rnbdctl key load"
            ));
        }
    }

    /// Remarks that a server that listens without a policy has accepted clients.
    fn early_clients(&mut self, running: &Running) {
        let server = running.modules.get("rnbd_server");
        let requires = server.and_then(|server| server.get(REQUIRE_POLICY));
        if running.policy.is_none() && requires.is_some_and(|value| is_same(value, "N")) {
            self.remarks.push(
                "rnbd_server was loaded without a policy: clients could map every disk before \
                 this command, and disks that are mapped stay mapped; let only \
                 rnbd-server.service load rnbd_server (remove it from /etc/modules-load.d)"
                    .to_owned(),
            );
        }
    }

    fn differences(
        &mut self,
        module: &str,
        wanted: &BTreeMap<String, String>,
        have: &BTreeMap<String, String>,
    ) {
        for (name, value) in wanted {
            match have.get(name) {
                Some(now) if is_same(now, value) => (),
                // The parameter only matters when the module is loaded.
                _ if name == REQUIRE_POLICY => (),
                Some(now) => self.remarks.push(format!(
                    "{module} {name} is {now}, and becomes {value} when the modules are loaded \
                     again: rnbdctl server drain, modprobe -r rnbd_server rtrs_server, rnbdctl \
                     server apply"
                )),
                None => self.remarks.push(format!(
                    "{module} {name}: the loaded module lacks this parameter"
                )),
            }
        }
    }
}

/// `NAME=VALUE`, as the kernel reads it from modprobe.
fn assignment((name, value): (&String, &String)) -> String {
    match value.contains(' ') {
        true => format!("{name}=\"{value}\""),
        false => format!("{name}={value}"),
    }
}

/// Whether two texts are the same value; a boolean has several texts.
fn is_same(now: &str, wanted: &str) -> bool {
    let normal = |text: &str| match text {
        "1" | "y" => "Y".to_owned(),
        "0" | "n" => "N".to_owned(),
        text => text.to_owned(),
    };
    now == wanted || normal(now) == normal(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_config::parse;

    const FILE: &str = "[parameters.rtrs_server]\nsess_queue_depth = 128\n\
                        [parameters.rnbd_server]\ndiscovery = false\n\
                        state_dir = \"/srv/my state\"\n\
                        [[export]]\ndevices = [\"/dev/vg/*\"]\n";

    fn shown(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_machine_without_the_modules_loads_them_and_the_policy_last() {
        let plan = Plan::new(&parse(FILE).unwrap(), &Running::default());
        assert_eq!(
            shown(&plan),
            [
                "module rtrs_server sess_queue_depth=128",
                "module rnbd_server discovery=N require_export_policy=Y \
                 state_dir=\"/srv/my state\"",
                "export policy: 1 rule",
            ]
        );
        let plan = Plan::new(&parse("").unwrap(), &Running::default());
        assert_eq!(shown(&plan), ["module rtrs_server", "module rnbd_server"]);
    }

    #[test]
    fn what_runs_is_compared() {
        let config = parse(FILE).unwrap();
        let values = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let mut running = Running::default();
        running
            .modules
            .insert("rtrs_server".into(), values(&[("sess_queue_depth", "128")]));
        let server = values(&[
            ("discovery", "0"),
            ("state_dir", "/srv/my state"),
            ("require_export_policy", "N"),
        ]);
        running.modules.insert("rnbd_server".into(), server);
        running.policy = config.policy.clone();
        assert_eq!(Plan::new(&config, &running), Plan::default());
        running.policy = None;
        let early = Plan::new(&config, &running);
        assert_eq!(shown(&early), ["export policy: 1 rule"]);
        assert!(
            early.remarks[0].starts_with("rnbd_server was loaded without a policy: "),
            "{:?}",
            early.remarks
        );
        running
            .modules
            .insert("rtrs_server".into(), values(&[("sess_queue_depth", "512")]));
        let plan = Plan::new(&config, &running);
        assert_eq!(shown(&plan), ["export policy: 1 rule"]);
        assert_eq!(plan.remarks.len(), 2);
        assert!(
            plan.remarks[0].starts_with("rtrs_server sess_queue_depth is 512, and becomes 128"),
            "{:?}",
            plan.remarks
        );
        running
            .modules
            .insert("rtrs_server".into(), BTreeMap::new());
        let plan = Plan::new(&config, &running);
        assert!(
            plan.remarks[0].ends_with("lacks this parameter"),
            "{:?}",
            plan.remarks
        );
    }

    fn client(name: &str) -> ClientId {
        ClientId::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn keys_come_before_the_modules() {
        let config = parse(
            "[keys]\nclients = [\"db1\", \"web1\"]\n\
             [[export]]\ndevices = [\"/dev/a\"]\nclient_ids = [\"web*\", \"mail*\"]\n",
        )
        .unwrap();
        let mut running = Running {
            keys: RunningKeys {
                files: vec![client("db1"), client("old1"), client("web1")],
                loaded: vec![client("db1")],
            },
            no_disks: vec!["/dev/a: there is no such file".to_owned()],
            ..Running::default()
        };
        let plan = Plan::new(&config, &running);
        let steps = shown(&plan);
        assert_eq!(steps[..2], ["keys of db1, web1", "module rtrs_server"]);
        assert!(!plan.steps[0].is_repeated());
        let wanted = [
            "client old1 has a key, and keys.clients does not have the client",
            "export 1: no client with a key matches \"mail*\" of client_ids",
            "/dev/a: there is no such file",
        ];
        assert_eq!(plan.remarks.len(), wanted.len(), "{:?}", plan.remarks);
        for (remark, start) in plan.remarks.iter().zip(wanted) {
            assert!(remark.starts_with(start), "{remark}");
        }
        running.keys.loaded.push(client("web1"));
        let plan = Plan::new(&config, &running);
        assert!(plan.steps[0].is_repeated(), "{:?}", plan.steps[0]);
        assert!(shown(&plan)[0].starts_with("keys of db1, web1, again: "));
    }

    #[test]
    fn a_server_that_would_let_nobody_in_is_a_mistake() {
        let config = parse("[parameters.rtrs_server]\nrequire_auth = true\n").unwrap();
        let mut running = Running::default();
        let plan = Plan::new(&config, &running);
        let start = "parameters.rtrs_server.require_auth is true, and no client has a key: ";
        assert!(plan.remarks[0].starts_with(start), "{:?}", plan.remarks);
        // Keys of clients that the file does not name are not changed, and count.
        running.keys.files.push(client("web1"));
        let plan = Plan::new(&config, &running);
        assert_eq!(plan.remarks, Vec::<String>::new());
        assert_eq!(shown(&plan)[0], "module rtrs_server require_auth=Y");
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The difference between the file and the machine.

use std::collections::BTreeMap;
use std::fmt;

use super::ServerConfig;
use super::PARAMETERS;

/// The parameter that keeps a server from listening before it has a policy.
const REQUIRE_POLICY: &str = "require_export_policy";

/// What the machine is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The server's modules that are loaded, with the parameters that they show.
    pub modules: BTreeMap<String, BTreeMap<String, String>>,
    /// The policy in force.
    pub policy: Option<String>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
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

/// The rules of a policy.
fn rules(policy: &str) -> usize {
    let is_rule = |line: &&str| line.trim_start().starts_with("allow");
    policy.lines().filter(is_rule).count()
}

/// What has to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// What cannot be done while the server runs, in words.
    pub remarks: Vec<String>,
}

impl Plan {
    /// Compares the file with the machine.
    ///
    /// A module that is loaded keeps its parameters. A server that is loaded for a file with
    /// exports does not listen before it has the policy.
    pub fn new(config: &ServerConfig, running: &Running) -> Self {
        let mut plan = Self::default();
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
        plan
    }

    /// A server that listens without a policy has let clients in.
    fn early_clients(&mut self, running: &Running) {
        let server = running.modules.get("rnbd_server");
        let requires = server.and_then(|server| server.get(REQUIRE_POLICY));
        if running.policy.is_none() && requires.is_some_and(|value| is_same(value, "N")) {
            self.remarks.push(
                "rnbd_server was loaded before, and lets everybody in until the policy is in \
                 force: have it loaded by rnbd-server.service only (see /etc/modules-load.d)"
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
                // It only matters when the module is loaded.
                _ if name == REQUIRE_POLICY => (),
                Some(now) => self.remarks.push(format!(
                    "{module} {name} is {now}; it becomes {value} when the modules are loaded \
                     anew: rnbdctl server drain, modprobe -r rnbd_server rtrs_server, rnbdctl \
                     server apply"
                )),
                None => self.remarks.push(format!(
                    "{module} {name}: the loaded module does not have it"
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

/// Whether two texts are one value; what is true has several.
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
            early.remarks[0].contains("lets everybody in until"),
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
            plan.remarks[0].starts_with("rtrs_server sess_queue_depth is 512; it becomes 128"),
            "{:?}",
            plan.remarks
        );
        running
            .modules
            .insert("rtrs_server".into(), BTreeMap::new());
        let plan = Plan::new(&config, &running);
        assert!(
            plan.remarks[0].ends_with("does not have it"),
            "{:?}",
            plan.remarks
        );
    }
}

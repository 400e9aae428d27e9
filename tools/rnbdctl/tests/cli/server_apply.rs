// SPDX-License-Identifier: GPL-2.0

//! The server's configuration file.

use std::os::unix::fs::PermissionsExt;

use crate::fake::Fake;
use crate::fake::Said;
use crate::schema::Schema;

const FILE: &str = "etc/rnbd/server.toml";
const POLICY: &str = "sys/class/rnbd-server/ctl/export_policy";

const CONFIG: &str = "[parameters.rtrs_server]\nsess_queue_depth = 128\n\
                      [parameters.rnbd_server]\ndev_search_path = \"/dev\"\n\
                      [[export]]\nclients = [\"192.0.2.0/24\"]\ndevices = [\"/dev/vg/*\"]\n";

/// A machine whose modprobe notes its arguments, and makes the files of a module.
fn machine() -> Fake {
    let fake = Fake::new();
    fake.write(FILE, CONFIG);
    let root = fake.root().display();
    let script = format!(
        "#!/bin/sh\n\
         echo \"$@\" >> {root}/loaded\n\
         if [ \"$1\" = rnbd_server ]; then\n\
         mkdir -p {root}/sys/class/rnbd-server/ctl; : > {root}/{POLICY}\n\
         fi\n\
         folder={root}/sys/module/$1/parameters; mkdir -p $folder\n\
         for p; do case $p in *=*) echo \"${{p#*=}}\" > $folder/${{p%%=*}};; esac; done\n"
    );
    fake.write("bin/modprobe", &script);
    let program = fake.path("bin/modprobe");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    fake
}

fn run(fake: &Fake, args: &[&str]) -> Said {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_rnbdctl"));
    command
        .env_clear()
        .env("RNBDCTL_ROOT", fake.root())
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", fake.path("bin").display()),
        )
        .args(["server", "apply"])
        .args(args);
    Said::of(&mut command)
}

#[test]
fn a_server_is_loaded_with_its_parameters_and_gets_its_policy() {
    let fake = machine();
    let wanted = "+ module rtrs_server sess_queue_depth=128\n\
                  + module rnbd_server dev_search_path=/dev require_export_policy=Y\n\
                  + export policy: 1 rule\n";
    let said = run(&fake, &["--dry-run"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, wanted), "{said:?}");
    assert!(!fake.path("loaded").exists());
    let said = run(&fake, &[]);
    assert_eq!((said.code, said.stdout.as_str()), (0, wanted), "{said:?}");
    assert_eq!(
        fake.read("loaded"),
        "rtrs_server sess_queue_depth=128\n\
         rnbd_server dev_search_path=/dev require_export_policy=Y\n"
    );
    let rule = "allow session=* client=ip:192.0.2.0/24 device=/dev/vg/* mode=ro,rw\n";
    assert!(fake.read(POLICY).ends_with(rule), "{}", fake.read(POLICY));
    let said = run(&fake, &[]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "nothing to do\n"),
        "{said:?}"
    );
}

#[test]
fn what_runs_keeps_its_parameters_and_says_so() {
    let fake = machine();
    run(&fake, &[]);
    fake.write(FILE, &CONFIG.replace("128", "64").replace("vg/*", "vg/a"));
    fake.write("dev/vg/a", "");
    let said = run(&fake, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stdout.starts_with("+ export policy: 1 rule\n"),
        "{said:?}"
    );
    assert!(
        said.stdout
            .contains("! rtrs_server sess_queue_depth is 128, and becomes 64"),
        "{said:?}"
    );
    assert!(
        fake.read(POLICY).contains("device=/dev/vg/a "),
        "{}",
        fake.read(POLICY)
    );
    assert_eq!(fake.read("loaded").lines().count(), 2);
    let said = run(&fake, &["-n", "-o", "json"]);
    let value = serde_json::from_str(&said.stdout).unwrap();
    let schema = Schema::load();
    assert_eq!(schema.check("server apply", &value), Ok(()));
    assert_eq!(value["remarks"].as_array().unwrap().len(), 1);
}

/// A run without `--dry-run` changes the kernel's keys, and is tested on machines where that does
/// no harm (`selftests/server_apply.py`).
#[test]
fn a_dry_run_shows_keys_and_what_is_not_there() {
    let fake = machine();
    let config = format!("{CONFIG}client_ids = [\"web*\"]\n[keys]\nclients = [\"web1\"]\n");
    fake.write(FILE, &config.replace("vg/*", "vg/www"));
    let said = run(&fake, &["--dry-run"]);
    assert_eq!(said.code, 9, "{said:?}");
    assert!(
        said.stderr.contains("keys.clients names web1: the file")
            && said.stderr.contains("rnbdctl key new web1"),
        "{said:?}"
    );
    fake.ok(&["key", "new", "web1"]);
    fake.ok(&["key", "new", "old1"]);
    let said = run(&fake, &["--dry-run"]);
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<_> = said.stdout.lines().collect();
    let wanted = [
        "+ keys of web1",
        "+ module rtrs_server sess_queue_depth=128",
        "+ module rnbd_server dev_search_path=/dev require_export_policy=Y",
        "+ export policy: 1 rule",
        "! client old1 has a key, and keys.clients does not have the client: add old1 to \
         keys.clients, or rnbdctl key remove old1",
        "! /dev/vg/www cannot be mapped now: no such file or device (ENOENT)",
    ];
    assert_eq!(lines, wanted, "{said:?}");
    let secret = fake.read("etc/rnbd/keys/clients/web1");
    let secret = secret.lines().last().and_then(|key| key.split(':').nth(2));
    assert!(!said.stdout.contains(secret.unwrap()), "{said:?}");
    fake.ok(&["key", "remove", "web1"]);
    assert_eq!(run(&fake, &[]).code, 9);
    assert!(!fake.path("loaded").exists());
}

#[test]
fn mistakes_change_nothing() {
    let fake = machine();
    fake.write(FILE, &CONFIG.replace("sess_queue_depth", "sess_queue_dept"));
    let said = run(&fake, &[]);
    assert_eq!(said.code, 9, "{said:?}");
    assert!(
        said.stderr.contains("did you mean sess_queue_depth?"),
        "{said:?}"
    );
    fake.write(FILE, CONFIG);
    fake.write("etc/rnbd/export.policy", "# mine\n");
    let said = run(&fake, &[]);
    assert_eq!(said.code, 9, "{said:?}");
    assert!(said.stderr.contains("whose policy udev loads"), "{said:?}");
    std::fs::remove_file(fake.path(FILE)).unwrap();
    assert_eq!(run(&fake, &[]).code, 9);
    assert!(!fake.path("loaded").exists());
}

#[test]
fn a_module_that_cannot_be_loaded_ends_it() {
    let fake = machine();
    fake.write(
        "bin/modprobe",
        "#!/bin/sh\necho \"modprobe: FATAL: Module $1 not found\" >&2; exit 1\n",
    );
    let said = run(&fake, &[]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr
            .contains("loading rtrs_server: FATAL: Module rtrs_server not found"),
        "{said:?}"
    );
    assert_eq!(said.stdout, "");
}

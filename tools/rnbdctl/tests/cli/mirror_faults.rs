// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl mirror` when legs, programs and servers fail, on a tree of files.

use std::fs;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rnbdctl::mirror::record::Records;
use rnbdctl::mirror::repair;
use rnbdctl::mirror::repair::TendOptions;
use rnbdctl::mirror::repair::Tended;
use rnbdctl::mirror::tend::LegState;
use rnbdctl::mirror::MirrorName;
use rnbdctl::mirror::View;
use rustix::process::kill_process;
use rustix::process::Pid;
use rustix::process::Signal;
use serde_json::Value;

use crate::fake::Fake;
use crate::fake::Modules;
use crate::mirror::lines;
use crate::mirror::path;
use crate::mirror::programs;
use crate::mirror::record;
use crate::mirror::run;
use crate::mirror::running;
use crate::mirror::two_servers;
use crate::mirror::BLANK;

const RECORD: &str = "var/lib/rnbd/mirrors/db.json";
const HELD: &str = "run/rnbd/mirror-db.stopped";
const FAULTY: u16 = 0xfffe;
/// The file in which md lists the bad blocks of the near leg.
const NEAR_HOLES: &str = "sys/block/md127/md/dev-rnbd0/bad_blocks";
const FAR_STATE: &str = "sys/block/md127/md/dev-rnbd1/state";

/// As `blkpr` of a machine that has not reserved a leg before.
const UNRESERVED: &str = "[ \"$2\" != reserve ] || [ -e $0.registered ] || \
                          { echo 'blkpr: error code 0x18, for more' >&2; exit 1; }\n\
                          [ \"$2\" != register ] || touch $0.registered";

fn db() -> MirrorName {
    MirrorName::new("db").unwrap()
}

/// Maps a disk of a third server, which is no leg.
fn third_server(fake: &Fake) {
    fake.session("new", Modules::Rust, &["ip:10.0.2.1@ip:10.0.2.2"]);
    fake.device("rnbd2", "new", "vg/db", 1 << 20);
    fake.extend_device("rnbd2");
}

/// Changes the record of the mirror.
fn change(fake: &Fake, change: impl FnOnce(&mut rnbdctl::mirror::Record)) {
    let change = |record: &mut _| {
        change(record);
        true
    };
    Records::of(&fake.system()).change(&db(), change).unwrap();
}

/// Adds the disk of the third server to the record, as the leg that is to replace the near leg.
fn replacing(fake: &Fake) {
    change(fake, |record| {
        record.legs[0].leaving = true;
        let mut new = record.legs[1].clone();
        new.name.session = "new".to_owned();
        new.fill = true;
        record.legs.push(new);
    });
}

/// Writes a superblock of the mirror on the disk of a leg.
fn superblock(fake: &Fake, own: u8, events: u64, roles: &[u16]) {
    let mut bytes = vec![0_u8; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..][..value.len()].copy_from_slice(value);
    put(0, &0xa92b_4efc_u32.to_le_bytes());
    put(4, &1_u32.to_le_bytes());
    put(8, &1_u32.to_le_bytes());
    put(16, &[0xab; 16]);
    put(32, b"rnbd-mirror:db");
    put(72, &1_u32.to_le_bytes());
    put(92, &2_u32.to_le_bytes());
    put(160, &u32::from(own).to_le_bytes());
    put(168, &[0xc0 | own; 16]);
    put(200, &events.to_le_bytes());
    put(220, &u32::try_from(roles.len()).unwrap().to_le_bytes());
    let list: Vec<u8> = roles.iter().flat_map(|role| role.to_le_bytes()).collect();
    put(256, &list);
    let mut sum = 0_u64;
    for word in bytes[..256_usize.wrapping_add(list.len())].chunks(4) {
        let mut whole = [0; 4];
        whole[..word.len()].copy_from_slice(word);
        sum = sum.wrapping_add(u64::from(u32::from_le_bytes(whole)));
    }
    let folded = (sum & 0xffff_ffff).wrapping_add(sum >> 32);
    let sum = u32::try_from(folded & 0xffff_ffff).unwrap();
    bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    let mut disk = vec![0_u8; 4096];
    disk.extend(bytes);
    fs::write(fake.path(&format!("dev/rnbd{own}")), disk).unwrap();
}

/// Has reads of the disk of a leg fail.
fn unreadable(fake: &Fake, disk: &str) {
    let node = fake.path(&format!("dev/{disk}"));
    fs::remove_file(&node).unwrap();
    fs::create_dir(&node).unwrap();
}

/// Returns whether a program was run with these words next to each other.
fn has_run(fake: &Fake, words: &str) -> bool {
    fake.path("log").exists() && lines(fake).iter().any(|line| line.contains(words))
}

/// Starts the service.
fn watch(fake: &Fake) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rnbdctl"))
        .args(["mirror", "watch"])
        .env_clear()
        .env("PATH", path(fake))
        .env("RNBDCTL_ROOT", fake.root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until something is so, then ends the service by SIGTERM, and returns its output.
fn end_when(watcher: Child, what: &str, is_so: impl Fn() -> bool) -> Output {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
    }
    let held = is_so();
    let id = Pid::from_child(&watcher);
    kill_process(id, Signal::TERM).unwrap();
    let output = watcher.wait_with_output().unwrap();
    assert!(held, "not so within 20 s: {what}: {output:?}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    output
}

#[test]
fn a_leg_with_bad_blocks_stays_until_it_is_replaced() {
    let fake = two_servers();
    third_server(&fake);
    record(&fake);
    running(&fake);
    fake.write(NEAR_HOLES, "8 8\n");
    programs(&fake, &[BLANK]);
    // The far leg is being filled, so only the near leg has data.
    let same = ["mirror", "replace", "db", "vg/db@near", "--force"];
    let said = run(&fake, &same);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(
        said.stderr.contains("no other leg has all data"),
        "{said:?}"
    );
    let other = ["mirror", "replace", "db", "vg/db@near", "vg/db@new"];
    let said = run(&fake, &other);
    assert_eq!(said.code, 5, "{said:?}");
    let lacks = "vg/db@far is missing from the mirror, or is being filled";
    assert!(said.stderr.contains(lacks), "{said:?}");
    assert!(!fake.path("log").exists(), "{:?}", lines(&fake));
    fake.write(FAR_STATE, "in_sync\n");
    let said = run(&fake, &other);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("stays in the mirror"), "{said:?}");
    assert!(has_run(&fake, "--replace /dev/rnbd0 --with /dev/rnbd2"));
    assert!(!has_run(&fake, "--fail /"), "{:?}", lines(&fake));
    assert!(Records::of(&fake.system()).need(&db()).unwrap().legs[0].leaving);
}

#[test]
fn a_leg_comes_back_to_a_leg_with_bad_blocks() {
    let fake = two_servers();
    record(&fake);
    running(&fake);
    fs::remove_dir_all(fake.path("sys/block/md127/md/dev-rnbd1")).unwrap();
    fake.write(NEAR_HOLES, "8 8\n");
    superblock(&fake, 0, 9, &[0, FAULTY]);
    superblock(&fake, 1, 5, &[0, 1]);
    let record = Records::of(&fake.system()).need(&db()).unwrap();
    let mut view = View::load(&fake.system(), record).unwrap();
    view.read_legs(&fake.system());
    assert_eq!(view.states(), [LegState::BadBlocks, LegState::Behind]);
}

#[test]
fn a_replacement_ends_though_another_leg_is_lost() {
    let fake = two_servers();
    third_server(&fake);
    record(&fake);
    replacing(&fake);
    running(&fake);
    fake.write("sys/block/md127/md/dev-rnbd2/state", "in_sync\n");
    let view = || {
        let record = Records::of(&fake.system()).need(&db()).unwrap();
        View::load(&fake.system(), record).unwrap()
    };
    assert!(view().replaced().is_empty(), "the old leg is a member");
    // The server of the far leg is lost.
    for disk in ["rnbd0", "rnbd1"] {
        fs::remove_dir_all(fake.path(&format!("sys/block/md127/md/dev-{disk}"))).unwrap();
    }
    let near = view().record.legs[0].name.clone();
    assert_eq!(view().replaced(), [near]);
    fake.write("sys/block/md127/md/dev-rnbd2/state", "spare\n");
    assert!(view().replaced().is_empty(), "the new leg lacks data");
}

#[test]
fn a_replacement_whose_new_leg_is_lost_is_given_up() {
    let fake = two_servers();
    record(&fake);
    replacing(&fake);
    running(&fake);
    fake.write(FAR_STATE, "in_sync\n");
    fake.write(
        "sys/block/md127/md/dev-rnbd0/state",
        "in_sync,want_replacement\n",
    );
    fake.session("other", Modules::Rust, &["ip:10.0.3.1@ip:10.0.3.2"]);
    fake.device("rnbd3", "other", "vg/db", 1 << 20);
    programs(&fake, &[BLANK]);
    let mut args = vec!["mirror", "replace", "db", "vg/db@near", "vg/db@other"];
    let said = run(&fake, &args);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        "vg/db@near is being replaced by vg/db@new, and vg/db@new is not in the mirror\n",
        "replace db vg/db@near NEW-DISK@SESSION --force",
    ] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    args.push("--force");
    let said = run(&fake, &args);
    assert_eq!(said.code, 0, "{said:?}");
    let legs = Records::of(&fake.system()).need(&db()).unwrap().legs;
    let sessions: Vec<_> = legs.iter().map(|leg| leg.name.session.as_str()).collect();
    assert_eq!(sessions, ["near", "far", "other"]);
    assert!(legs[0].leaving && !legs[1].leaving);
    // md looks for a new disk since the first replacement.
    assert!(has_run(&fake, "--add-spare --failfast /dev/rnbd3"));
    assert!(!has_run(&fake, "--replace"), "{:?}", lines(&fake));
    // While the new leg is being filled, nothing is given up.
    fake.write("sys/block/md127/md/dev-rnbd3/state", "spare\n");
    args[4] = "vg/db@more";
    let said = run(&fake, &args);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("wait until the new leg"), "{said:?}");
}

#[test]
fn a_leg_that_is_being_filled_is_not_filled_anew_by_mistake() {
    let fake = two_servers();
    record(&fake);
    running(&fake);
    programs(&fake, &[BLANK]);
    let said = run(&fake, &["mirror", "replace", "db", "vg/db@far"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("md is filling vg/db@far"), "{said:?}");
    assert!(!fake.path("log").exists(), "{:?}", lines(&fake));
}

#[test]
fn a_replacement_that_fails_gives_the_new_disk_up() {
    let fake = two_servers();
    third_server(&fake);
    record(&fake);
    running(&fake);
    let fails = "[ \"$2\" != --fail ] || { echo 'mdadm: no' >&2; exit 1; }";
    programs(&fake, &[BLANK, ("blkpr", UNRESERVED), ("mdadm", fails)]);
    let args = ["mirror", "replace", "db", "vg/db@far", "vg/db@new"];
    let said = run(&fake, &args);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(has_run(
        &fake,
        "blkpr -c release -k KEY -t write-exclusive /dev/rnbd2"
    ));
    let legs = Records::of(&fake.system()).need(&db()).unwrap().legs;
    assert_eq!(legs[1].name.session, "far");
    // What fails when all is done is no error.
    let fails = "[ \"$2\" != release ] || { echo 'blkpr: odd' >&2; exit 1; }";
    programs(&fake, &[BLANK, ("blkpr", fails)]);
    let said = run(&fake, &args);
    assert_eq!(said.code, 0, "{said:?}");
    let stays = "vg/db@far stays reserved: blkpr: odd";
    assert!(said.stdout.contains(stays), "{said:?}");
}

#[test]
fn a_mirror_that_another_machine_has_taken_is_left_alone() {
    let fake = two_servers();
    record(&fake);
    superblock(&fake, 0, 9, &[0, 1]);
    unreadable(&fake, "rnbd1");
    let taken = "case $2 in reserve|release) echo 'blkpr: error code 0x18, for' >&2; exit 1; esac";
    programs(&fake, &[("blkpr", taken)]);
    let said = run(&fake, &["mirror", "remove", "db", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        "left vg/db@near alone: another machine has reserved it\n",
        "left vg/db@far alone: could not read its superblock (",
        "; the disk keeps md's superblock and the reservation\n",
    ] {
        assert!(said.stdout.contains(part), "{part}: {said:?}");
    }
    assert!(!has_run(&fake, "--zero-superblock"), "{:?}", lines(&fake));
    assert!(!fake.path(RECORD).exists());
    // A mirror without reservations keeps none.
    record(&fake);
    change(&fake, |record| record.reserve = false);
    let said = run(&fake, &["mirror", "remove", "db", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    let kept = "; the disk keeps md's superblock\n";
    assert!(said.stdout.contains(kept), "{said:?}");
}

#[test]
fn disks_that_are_legs_of_another_mirror_are_named() {
    let fake = two_servers();
    programs(&fake, &[]);
    let fails = |name: &str, code: i32, part: &str| {
        let args = ["mirror", "assemble", name, "vg/db@near", "vg/db@far"];
        let said = run(&fake, &args);
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    };
    let none = "has a superblock of a mirror that rnbdctl could read";
    fails("db", 3, none);
    superblock(&fake, 0, 9, &[0, 1]);
    superblock(&fake, 1, 9, &[0, 1]);
    let array = "vg/db@near is a leg of array rnbd-mirror:db, not of mirror web";
    fails("web", 2, array);
    // The far leg gets another UUID of the array, which leaves the checksum as it is.
    let mut other = fs::read(fake.path("dev/rnbd1")).unwrap();
    (other[4112], other[4116]) = (0xac, 0xaa);
    fs::write(fake.path("dev/rnbd1"), other).unwrap();
    let both = "vg/db@far and vg/db@near are legs of two different mirrors that are both called db";
    fails("db", 2, both);
    assert!(!fake.path("log").exists(), "{:?}", lines(&fake));
}

#[test]
fn a_refused_start_says_what_helps() {
    let fake = two_servers();
    record(&fake);
    superblock(&fake, 0, 9, &[0, FAULTY]);
    superblock(&fake, 1, 5, &[0, 1]);
    fake.write(HELD, "");
    let taken = "[ \"$2\" != reserve ] || { echo 'blkpr: error code 0x18, for' >&2; exit 1; }";
    programs(&fake, &[("blkpr", taken)]);
    let start = ["mirror", "assemble", "db"];
    let said = run(&fake, &start);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        "starting mirror db: reserving vg/db@near: another machine has reserved the disk\n",
        "rnbdctl mirror stop db --release; or take its legs over: rnbdctl mirror assemble db \
         --take-over, and",
    ] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    assert!(fake.path(HELD).exists(), "the mirror stays stopped");
    // Another cause does not get that hint.
    programs(&fake, &[("blkpr", "echo 'blkpr: busy' >&2; exit 1")]);
    let said = run(&fake, &start);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(!said.stderr.contains("--take-over"), "{said:?}");
    // A leg that could not be reserved is not the cause of an error of mdadm.
    let odd = "[ \"$7\" != /dev/rnbd1 ] || { echo 'blkpr: odd' >&2; exit 1; }";
    let fails = ("mdadm", "echo 'mdadm: no' >&2; exit 1");
    programs(&fake, &[("blkpr", odd), fails]);
    let said = run(&fake, &start);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("starting mirror db: mdadm: no"),
        "{said:?}"
    );
    unreadable(&fake, "rnbd0");
    let said = run(&fake, &start);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        "could not read vg/db@near: ",
        "only they have: rnbdctl mirror assemble db --force-stale\n",
    ] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    programs(&fake, &[]);
    fs::remove_dir(fake.path("dev/rnbd0")).unwrap();
    superblock(&fake, 0, 9, &[0, FAULTY]);
    let said = run(&fake, &["mirror", "assemble", "db", "--from", "vg/db@far"]);
    assert_eq!(said.code, 5, "{said:?}");
    for part in [
        "only vg/db@far was considered (--from): these legs are missing, and were in sync when \
         this machine last used the mirror: vg/db@near; these legs may have newer data than",
        "hint: leave --from out; or add --force-stale, ",
    ] {
        assert!(said.stderr.contains(part), "{part}: {said:?}");
    }
    let said = run(&fake, &start);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!fake.path(HELD).exists());
}

#[test]
fn a_mirror_that_still_runs_is_not_held() {
    let fake = two_servers();
    record(&fake);
    running(&fake);
    programs(&fake, &[]);
    // The record cannot be changed.
    fs::create_dir_all(fake.path("run/rnbd/records.lock")).unwrap();
    let stop = ["mirror", "stop", "db"];
    assert_ne!(run(&fake, &stop).code, 0);
    assert!(!fake.path(HELD).exists());
    fs::remove_dir(fake.path("run/rnbd/records.lock")).unwrap();
    let for_shutdown = ["mirror", "stop", "--all", "--for-shutdown"];
    assert_eq!(run(&fake, &for_shutdown).code, 0);
    assert!(has_run(&fake, "mdadm --stop /dev/md127") && !fake.path(HELD).exists());
    assert_eq!(run(&fake, &stop).code, 0);
    assert!(fake.path(HELD).exists());
    // An administrator's stop is kept.
    assert_eq!(run(&fake, &for_shutdown).code, 0);
    assert!(fake.path(HELD).exists());
}

#[test]
fn a_release_that_fails_keeps_no_leg_from_its_release() {
    let fake = two_servers();
    record(&fake);
    let odd = "[ \"$7\" != /dev/rnbd0 ] || { echo 'blkpr: odd' >&2; exit 1; }";
    programs(&fake, &[("blkpr", odd)]);
    let said = run(&fake, &["mirror", "stop", "db", "--release"]);
    assert_eq!(said.code, 0, "{said:?}");
    let line = "stopped mirror db; vg/db@near stays reserved: blkpr: odd\n";
    assert_eq!(said.stdout, line);
    assert!(has_run(
        &fake,
        "-c release -k KEY -t write-exclusive /dev/rnbd1"
    ));
}

#[test]
fn a_mirror_that_hangs_holds_up_no_other_mirror() {
    let fake = two_servers();
    record(&fake);
    running(&fake);
    let other = fake.read(RECORD).replace("\"db\"", "\"other\"");
    let other = other.replace("abab", "cdcd");
    fake.write("var/lib/rnbd/mirrors/other.json", &other);
    fake.write("sys/block/md126/md/uuid", &"cd".repeat(16));
    fake.write("sys/block/md126/md/array_state", "clean\n");
    // The first mirror is stopped only after the second mirror.
    let answer = "[ $2 = /dev/md127 ] || { touch $0.other; exit 0; }\n\
                  for i in 0 1 2 3 4 5 6 7 8 9; do [ -e $0.other ] && exit 0; sleep 1; done\n\
                  exit 1";
    programs(&fake, &[("mdadm", answer)]);
    let said = run(&fake, &["mirror", "stop", "--all"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.stdout.lines().count(), 2, "{said:?}");
}

/// A mirror whose far leg lacks the writes since it was lost.
fn behind() -> Fake {
    let fake = two_servers();
    record(&fake);
    running(&fake);
    fs::remove_dir_all(fake.path("sys/block/md127/md/dev-rnbd1")).unwrap();
    superblock(&fake, 0, 9, &[0, FAULTY]);
    superblock(&fake, 1, 5, &[0, 1]);
    fake
}

#[test]
fn a_leg_that_md_refuses_is_filled_unless_it_is_lost() {
    let fake = behind();
    let state = fake.path("sys/block/rnbd1/rnbd/state");
    let refuses = "[ \"$2\" != --re-add ] || { echo 'mdadm: no' >&2; exit 1; }";
    let loses = format!("echo closed > {}; {refuses}", state.display());
    programs(&fake, &[("mdadm", &loses)]);
    let is_closed = || fake.read("sys/block/rnbd1/rnbd/state") == "closed\n";
    let output = end_when(watch(&fake), "the leg is lost", is_closed);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = "adding vg/db@far to mirror db again: mdadm: no";
    assert!(told.contains(line), "{output:?}");
    assert!(!has_run(&fake, "--add-spare"), "{:?}", lines(&fake));
    fake.write("sys/block/rnbd1/rnbd/state", "open\n");
    programs(&fake, &[("mdadm", refuses)]);
    let output = end_when(watch(&fake), "the leg is filled", || {
        has_run(&fake, "--add-spare --failfast /dev/rnbd1")
    });
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        told.contains("only what it lacks (mdadm: no)"),
        "{output:?}"
    );
    let record: Value = serde_json::from_str(&fake.read(RECORD)).unwrap();
    assert_eq!(record["legs"][1]["fill"], true);
}

#[test]
fn a_failed_disk_that_stays_keeps_no_leg_away() {
    let fake = behind();
    fake.write("sys/block/md127/md/dev-rnbd9/state", "faulty\n");
    let fails = "[ \"$2\" != --remove ] || { echo 'mdadm: no' >&2; exit 1; }";
    programs(&fake, &[("mdadm", fails)]);
    let output = end_when(watch(&fake), "the leg is added", || {
        has_run(&fake, "--re-add /dev/rnbd1")
    });
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("failed legs of mirror db: mdadm: no"),
        "{output:?}"
    );
}

#[test]
fn the_service_ends_after_its_work() {
    let fake = behind();
    programs(
        &fake,
        &[("mdadm", "touch $0.begun; sleep 2; touch $0.over")],
    );
    end_when(watch(&fake), "mdadm runs", || {
        fake.path("bin/mdadm.begun").exists()
    });
    assert!(fake.path("bin/mdadm.over").exists());
}

#[test]
fn a_pause_counts_for_all_reasons_to_tend_a_mirror() {
    let fake = behind();
    change(&fake, |record| record.legs[1].fill = true);
    let options = TendOptions {
        pauses: true,
        ..TendOptions::default()
    };
    let tended = repair::tend(&fake.system(), &db(), options).unwrap();
    assert_eq!(tended, Tended::default());
}

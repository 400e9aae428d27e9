// SPDX-License-Identifier: GPL-2.0

//! How a volume shall be used, and whether it can be.

use rnbdctl::model::AccessMode as Access;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::mode;
use crate::messages::VolumeCapability;
use crate::volume::VolumeId;

/// The file system of a request that names none.
const DEFAULT_KIND: &str = "ext4";
/// The file systems that this program makes, mounts and grows.
const KINDS: [&str; 2] = [DEFAULT_KIND, "xfs"];
/// The most bytes of all mount options.
const MAX_OPTIONS: usize = 4096;
/// Options that have something else mounted than the volume, or write to another disk of the node:
/// the names of some, and the beginnings of others.
const BANNED: [&str; 11] = [
    "bind",
    "journal_dev",
    "journal_path",
    "loop",
    "logdev",
    "make-",
    "move",
    "rbind",
    "remount",
    "rtdev",
    "source",
];
const BANNED_BEGINNINGS: [&str; 5] = ["helper", "uhelper", "X-", "verity.", "offset"];

/// How a volume shall be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// As a block device or as a file system.
    pub(crate) form: Form,
    /// How its disk is mapped.
    pub(crate) access: Access,
    /// Whether only one container may have it.
    pub(crate) is_single: bool,
}

/// What a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The device.
    Block,
    /// A folder.
    Mount {
        /// The kind of the file system, one of those above.
        kind: String,
        /// Options of `mount -o`.
        options: Vec<String>,
    },
}

/// Says whether a volume can be used in some ways; the error is in words.
pub(crate) type Check = fn(&[VolumeCapability]) -> std::result::Result<(), String>;

impl Wanted {
    /// What says in which ways a volume can be used.
    pub(crate) fn check_for(id: &VolumeId) -> Check {
        match id {
            VolumeId::Disk(_) => Self::check_all,
            VolumeId::Mirror(_) => Self::check_all_mirrored,
        }
    }

    /// What a request wants, which must make sense and be possible.
    pub(crate) fn of_request(capability: Option<&VolumeCapability>) -> Result<Self> {
        match capability {
            Some(capability) => Self::parse(capability).map_err(Status::invalid),
            None => Err(Status::invalid("volume_capability is missing")),
        }
    }

    /// An error unless a volume can be used in all these ways.
    pub(crate) fn check_all(capabilities: &[VolumeCapability]) -> std::result::Result<(), String> {
        capabilities
            .iter()
            .try_for_each(|capability| Self::parse(capability).map(|_| ()))
    }

    /// An error unless a mirrored volume can be used in all these ways.
    pub(crate) fn check_all_mirrored(
        capabilities: &[VolumeCapability],
    ) -> std::result::Result<(), String> {
        capabilities
            .iter()
            .try_for_each(|capability| check_mirrored(Self::parse(capability)?.access))
    }

    /// What a capability asks for. The error says in words what is wrong with it, or not possible.
    pub(crate) fn parse(capability: &VolumeCapability) -> std::result::Result<Self, String> {
        let form = match (&capability.block, &capability.mount) {
            (Some(_), None) => Form::Block,
            (None, Some(mount)) if !mount.volume_mount_group.is_empty() => {
                return Err("volume_mount_group is not supported".to_owned())
            }
            (None, Some(mount)) => Form::Mount {
                kind: kind(&mount.fs_type)?,
                options: options(&mount.mount_flags)?,
            },
            _ => return Err("give either block or mount".to_owned()),
        };
        let number = capability.access_mode.as_ref().map(|access| access.mode);
        let access = match number {
            None | Some(0) => return Err("access_mode is missing".to_owned()),
            Some(
                mode::SINGLE_NODE_WRITER
                | mode::SINGLE_NODE_SINGLE_WRITER
                | mode::SINGLE_NODE_MULTI_WRITER,
            ) => Access::Rw,
            Some(mode::SINGLE_NODE_READER_ONLY | mode::MULTI_NODE_READER_ONLY) => Access::Ro,
            // Two nodes at a time, as for the migration of a virtual machine.
            Some(mode::MULTI_NODE_MULTI_WRITER) if form == Form::Block => Access::Migration,
            Some(mode::MULTI_NODE_MULTI_WRITER) => {
                return Err("several nodes cannot write to a file system".to_owned())
            }
            Some(mode::MULTI_NODE_SINGLE_WRITER) => {
                return Err("access mode MULTI_NODE_SINGLE_WRITER is not supported".to_owned())
            }
            Some(other) => return Err(format!("access mode {other} is not known")),
        };
        Ok(Self {
            form,
            access,
            is_single: number == Some(mode::SINGLE_NODE_SINGLE_WRITER),
        })
    }
}

/// An error unless a mirrored volume can be used with this access: md writes to the legs of a
/// mirror, and one node at a time runs it.
pub(crate) fn check_mirrored(access: Access) -> std::result::Result<(), String> {
    match access {
        Access::Rw => Ok(()),
        _ => Err(
            "a mirrored volume is for one node, which can write: give SINGLE_NODE_WRITER, \
                  SINGLE_NODE_SINGLE_WRITER or SINGLE_NODE_MULTI_WRITER"
                .to_owned(),
        ),
    }
}

fn kind(text: &str) -> std::result::Result<String, String> {
    match text {
        "" => Ok(DEFAULT_KIND.to_owned()),
        kind if KINDS.contains(&kind) => Ok(kind.to_owned()),
        _ => Err(format!(
            "file system {text:?} is not one of {}",
            KINDS.join(", ")
        )),
    }
}

fn options(given: &[String]) -> std::result::Result<Vec<String>, String> {
    if given.iter().map(String::len).sum::<usize>() > MAX_OPTIONS {
        return Err(format!(
            "the mount options have more than {MAX_OPTIONS} bytes"
        ));
    }
    // Options may be secret: they are not repeated.
    if given
        .iter()
        .any(|option| option.is_empty() || option.contains(char::is_control))
    {
        return Err("a mount option is empty or has control characters".to_owned());
    }
    let names = given.iter().flat_map(|text| text.split(','));
    let mut names = names.map(|option| option.split('=').next().unwrap_or(option).trim());
    match names.find(|name| is_banned(name)) {
        Some(name) => Err(format!("mount option {name} is not allowed for a volume")),
        None => Ok(given.to_vec()),
    }
}

fn is_banned(name: &str) -> bool {
    BANNED.contains(&name)
        || BANNED_BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::AccessMode;
    use crate::messages::Empty;
    use crate::messages::MountVolume;

    fn block(mode: i32) -> VolumeCapability {
        VolumeCapability {
            block: Some(Empty {}),
            access_mode: Some(AccessMode { mode }),
            ..VolumeCapability::default()
        }
    }

    fn mount(mode: i32, kind: &str, flags: &[&str]) -> VolumeCapability {
        VolumeCapability {
            mount: Some(MountVolume {
                fs_type: kind.to_owned(),
                mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
                ..MountVolume::default()
            }),
            access_mode: Some(AccessMode { mode }),
            ..VolumeCapability::default()
        }
    }

    #[test]
    fn modes_are_ways_to_map() {
        for (mode, access, is_single) in [
            (1, Access::Rw, false),
            (2, Access::Ro, false),
            (3, Access::Ro, false),
            (5, Access::Migration, false),
            (6, Access::Rw, true),
            (7, Access::Rw, false),
        ] {
            let wanted = Wanted::parse(&block(mode)).unwrap();
            assert_eq!(
                (wanted.access, wanted.is_single),
                (access, is_single),
                "{mode}"
            );
        }
        let wanted = Wanted::parse(&mount(1, "", &["noatime"])).unwrap();
        let form = Form::Mount {
            kind: "ext4".into(),
            options: vec!["noatime".into()],
        };
        assert_eq!(wanted.form, form);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let both = VolumeCapability {
            block: Some(Empty {}),
            ..mount(1, "", &[])
        };
        let long = "x".repeat(5000);
        for (bad, why) in [
            (VolumeCapability::default(), "either"),
            (both, "either"),
            (block(0), "access_mode is missing"),
            (block(4), "MULTI_NODE_SINGLE_WRITER"),
            (block(8), "8 is not known"),
            (block(-1), "-1 is not known"),
            (mount(5, "", &[]), "several nodes"),
            (mount(1, "vfat", &[]), "vfat"),
            (mount(1, "", &[""]), "empty"),
            (mount(1, "", &["a\nb"]), "control"),
            (mount(1, "", &[&long]), "4096"),
            (mount(1, "", &["bind"]), "bind is not allowed"),
            (mount(1, "", &["noatime,remount"]), "remount"),
            (mount(1, "xfs", &["logdev=/dev/sda"]), "logdev is"),
            (mount(1, "", &["journal_path=/dev/sda"]), "journal_path"),
            (mount(1, "", &["X-mount.subdir=a"]), "X-mount.subdir is"),
        ] {
            let error = Wanted::parse(&bad).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert!(Wanted::check_all(&[block(1), bad]).is_err());
        }
        assert!(Wanted::of_request(None).is_err());
        assert!(Wanted::check_all(&[]).is_ok());
        for (mode, is_possible) in [
            (1, true),
            (6, true),
            (7, true),
            (2, false),
            (3, false),
            (5, false),
        ] {
            let checked = Wanted::check_all_mirrored(&[block(mode)]);
            assert_eq!(checked.is_ok(), is_possible, "{mode}");
        }
    }
}

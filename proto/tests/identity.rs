// SPDX-License-Identifier: GPL-2.0

//! Identities of disks.

use proto::rnbd::{
    IdKind,
    Identity,
    UniqueId,
    Wwid, //
};

const FILE_SYSTEM: [u8; 16] = *b"0123456789abcdef";

fn disk(kind: IdKind, bytes: &[u8], partition: u32) -> String {
    Wwid::of_disk(&UniqueId::new(kind, bytes).unwrap(), partition).to_string()
}

#[test]
fn names_are_those_of_other_disks_of_the_kernel() {
    let eight = [0x50, 0x01, 0x43, 0x80, 0x24, 0x0f, 0x9a, 0x01];
    assert_eq!(disk(IdKind::Naa, &eight, 0), "naa.50014380240f9a01");
    assert_eq!(disk(IdKind::Eui, &eight, 0), "eui.50014380240f9a01");
    assert_eq!(disk(IdKind::Naa, &eight, 3), "naa.50014380240f9a01-part3");
    let longest = disk(IdKind::Naa, &[0xff; 16], u32::MAX);
    assert_eq!(longest, format!("naa.{}-part4294967295", "ff".repeat(16)));
}

#[test]
fn disks_without_an_identifier_have_no_name() {
    assert_eq!(UniqueId::new(IdKind::Naa, &[]), None);
    assert_eq!(UniqueId::new(IdKind::Eui, &[0; 8]), None);
    assert_eq!(UniqueId::new(IdKind::Eui, &[1; 17]), None);
    assert!(Wwid::of_file(&[0; 16], 5, 6).is_empty());
    assert!(Wwid::NONE.is_empty());
}

#[test]
fn files_are_told_apart() {
    let name = Wwid::of_file(&FILE_SYSTEM, 0x83, 0xdead_beef);
    assert_eq!(
        name.to_string(),
        "file.30313233343536373839616263646566.83.deadbeef"
    );
    let longest = Wwid::of_file(&[0xff; 16], u64::MAX, u32::MAX);
    assert_eq!(longest.as_bytes().len(), 63);
    assert_ne!(name, Wwid::of_file(&FILE_SYSTEM, 0x83, 0xdead_bee0));
}

#[test]
fn identities_are_found_again() {
    let id = UniqueId::new(IdKind::Eui, &[7; 16]).unwrap();
    for wwid in [
        Wwid::NONE,
        Wwid::of_disk(&id, 0),
        Wwid::of_disk(&id, 9),
        Wwid::of_file(&FILE_SYSTEM, u64::MAX, u32::MAX),
    ] {
        let identity = Identity { wwid };
        let mut bytes = identity.to_bytes().to_vec();
        assert_eq!(Identity::parse(&bytes), Ok(identity));
        bytes.push(1);
        assert_eq!(Identity::parse(&bytes), Ok(identity));
        assert!(Identity::parse(&bytes[..127]).is_err());
    }
    assert_eq!(Wwid::of_disk(&id, 0).unique_id(), Some(id));
    assert_eq!(Wwid::of_disk(&id, 9).unique_id(), None);
    assert_eq!(Wwid::of_file(&FILE_SYSTEM, 1, 1).unique_id(), None);
}

#[test]
fn a_name_has_no_characters_that_lead_elsewhere() {
    let good = Identity {
        wwid: Wwid::of_file(&FILE_SYSTEM, 1, 1),
    };
    for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_alphanumeric()) {
        let mut bytes = good.to_bytes();
        bytes[3] = byte;
        let is_good = b".-_:+".contains(&byte);
        assert_eq!(Identity::parse(&bytes).is_ok(), is_good, "{byte:#x}");
    }
    // A byte behind the end of the name.
    let mut bytes = good.to_bytes();
    bytes[63] = b'x';
    assert!(Identity::parse(&bytes).is_err());
}

#[test]
fn names_that_only_look_like_identifiers_are_none() {
    for name in ["naa.", "naa.5", "naa.xy", "eui.+123", "eui.00", "t10.00"] {
        let mut bytes = [0; 128];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let identity = Identity::parse(&bytes).unwrap();
        assert_eq!(identity.wwid.unique_id(), None, "{name}");
    }
}

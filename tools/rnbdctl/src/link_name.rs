// SPDX-License-Identifier: GPL-2.0

//! The name of a mapped disk below `/dev/rnbd/by-session`.

/// The name of the disk that was mapped as `device_path`: without slashes in front and without
/// `dev/`. So the name is the same for `nvme0n1`, `/nvme0n1` and `/dev/nvme0n1`, which are the same
/// disk of a server whose search path is `/dev`. `None` if nothing is left.
pub fn of(device_path: &str) -> Option<String> {
    let parts = device_path.split('/').filter(|part| !part.is_empty());
    let mut parts: Vec<_> = parts.collect();
    if parts.len() > 1 && parts.first() == Some(&"dev") {
        parts.remove(0);
    }
    // No name may lead out of the folder of its session.
    let is_safe = parts.iter().all(|part| !matches!(*part, "." | ".."));
    (is_safe && !parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_disk_are_one_name() {
        for (given, name) in [
            ("nvme0n1", Some("nvme0n1")),
            ("/nvme0n1", Some("nvme0n1")),
            ("/dev/nvme0n1", Some("nvme0n1")),
            ("dev//nvme0n1", Some("nvme0n1")),
            ("/dev/vg/a", Some("vg/a")),
            ("vg/a", Some("vg/a")),
            ("/srv/a.img", Some("srv/a.img")),
            ("dev", Some("dev")),
            ("/dev/dev", Some("dev")),
            ("a/../b", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(of(given).as_deref(), name, "{given}");
        }
    }
}

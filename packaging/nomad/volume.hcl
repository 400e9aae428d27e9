# SPDX-License-Identifier: GPL-2.0
#
# A disk that is there: nomad volume register volume.hcl
id          = "db"
name        = "db"
type        = "csi"
plugin_id   = "csi.rnbd"
external_id = "storage1:vg0/db"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  fs_type = "ext4"
}

context {
  addresses = "192.0.2.10"
}

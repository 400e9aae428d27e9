# SPDX-License-Identifier: GPL-2.0
#
# The driver on each client of Nomad, as a system job with the package rnbd-csi on the machine itself.
job "rnbd-csi" {
  type = "system"

  group "node" {
    task "rnbd-csi" {
      # The driver mounts file systems in the name space of the machine.
      driver = "raw_exec"

      config {
        command = "/usr/bin/rnbd-csi"
        # Nomad names the socket in CSI_ENDPOINT.
        args    = ["--node", "--node-id", "${attr.unique.hostname}"]
      }

      csi_plugin {
        id   = "csi.rnbd"
        type = "node"
        # Nomad has the driver stage and publish volumes below this folder. The default /local/csi is
        # there in containers only. DATA_DIR is the data_dir of the client.
        stage_publish_base_dir = "DATA_DIR/client/csi/node/csi.rnbd"
      }
    }
  }
}

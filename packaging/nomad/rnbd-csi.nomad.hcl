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
      }
    }
  }
}

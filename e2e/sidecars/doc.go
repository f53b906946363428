// Package sidecars runs the CSI driver of e2e/disk beside a control plane, with the
// real sidecars of Kubernetes: external-provisioner, external-resizer and, if wanted,
// csi-snapshotter with the snapshot controller. So a test sees what they do with
// our claims and volumes, not what we think that they do.
//
// The programs are built from Go modules: those of the sidecars are pinned in the
// modules below this folder, two, for their releases need different versions of the
// libraries that they share. They are commands, which cannot be imported, so each
// is a program of its own.
package sidecars

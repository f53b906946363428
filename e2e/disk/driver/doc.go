// Package driver is a CSI driver for tests. It has what simple drivers lack that a
// claim can ask for: file systems and raw block, a bounded pool for each node,
// clones, snapshots, expansion while in use, ReadWriteOncePod, parameters that can be
// changed, and failures that a test can order; see [faults].
//
// Volumes are files; what there is survives a restart, see package pool. On a node
// they are attached as loop devices, which needs root, losetup, mkfs.ext4 and
// resize2fs; ext4 grows while it is mounted only for those with CAP_SYS_RESOURCE, xfs,
// which needs mkfs.xfs and xfs_growfs, for root.
// Without a node name the driver has no node service, needs no rights,
// and nothing is mounted: that is for control planes whose kubelets are played.
package driver

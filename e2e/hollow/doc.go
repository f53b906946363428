// Package hollow plays the kubelets of a test bed: it registers nodes, keeps their
// leases and takes pods to Running without running anything.
//
// What it does check is what Lodestone is about. A pod runs only if every claim that
// it mounts is bound to a volume that is bound to that claim, that its node can reach
// by the volume's nodeAffinity, and whose driver the node has. No node of the home
// cluster has the driver lodestone.dev. A pod whose volume can never be mounted
// on the node it was bound to is recorded, see [Hollow.Violations].
//
// A node with a [Remote] stands for a remote cluster: its pods are copied there, and
// run when the copy runs. It takes the place of a virtual kubelet.
package hollow

// Package deploy has the manifests of this folder, which the kubectl plugin installs.
package deploy

import "embed"

// Files are the kustomizations, and the examples from which kube-scheduler's configuration is made.
//
//go:embed base components network remote examples/kube-scheduler-configuration-mtls.yaml examples/kube-scheduler-configuration-marked.yaml
var Files embed.FS

// Examples are all examples.
//
//go:embed examples
var Examples embed.FS

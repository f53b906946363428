// Package deploy has the manifests of this folder, which the kubectl plugin installs.
package deploy

import "embed"

// Files are the kustomizations, and the example from which kube-scheduler's configuration is made.
//
//go:embed base components remote examples/kube-scheduler-configuration-mtls.yaml
var Files embed.FS

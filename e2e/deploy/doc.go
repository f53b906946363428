// Package deploy tests the manifests in deploy/ on a real API server: each
// kustomization applies, its pods are admitted at Pod Security level restricted
// and scheduled, and its identities can do what they must and nothing beyond.
package deploy

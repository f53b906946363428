// Package snapshot holds what the extender knows of the home cluster: claims,
// volumes, virtual classes, remote clusters, nodes and offloaded namespaces,
// each cut down to what a scheduling decision needs.
//
// Readers take neither locks nor copies: every entry is immutable once stored
// and every table is read through atomic pointers. The package is pure; package
// feed fills a snapshot from the API server.
package snapshot

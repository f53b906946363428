// Package home has the manifest of the policy that confines home clusters, so that the remote agent
// can compare what is in force with what it was built with.
package home

import _ "embed"

// Admission is admission.yaml: a ValidatingAdmissionPolicy and then its binding.
//
//go:embed admission.yaml
var Admission []byte

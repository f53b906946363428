package route

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// claimKind is the kind of the one data source that can be copied.
const claimKind = "PersistentVolumeClaim"

// CopyOf returns the name of the claim of the same namespace that a claim is to
// be a copy of; empty where it starts out empty. The error is an *Invalid: the
// claim wants its data from something else.
func CopyOf(claim *corev1.PersistentVolumeClaim) (string, error) {
	// The older field carries the same where both are set.
	if ref := claim.Spec.DataSourceRef; ref != nil {
		if elsewhere := ptr.Deref(ref.Namespace, ""); elsewhere != "" && elsewhere != claim.Namespace {
			return "", &Invalid{fmt.Sprintf("the claim wants its data from namespace %q, but a virtual volume can be copied only within its namespace: correct spec.dataSourceRef", elsewhere)}
		}
		return copyOf(ptr.Deref(ref.APIGroup, ""), ref.Kind, ref.Name)
	}
	if ref := claim.Spec.DataSource; ref != nil {
		return copyOf(ptr.Deref(ref.APIGroup, ""), ref.Kind, ref.Name)
	}
	return "", nil
}

func copyOf(group, kind, name string) (string, error) {
	switch {
	case group == "" && kind == claimKind && name != "":
		return name, nil
	case kind == "VolumeSnapshot":
		return "", &Invalid{fmt.Sprintf("the claim is to be made from VolumeSnapshot %q, which virtual volumes do not support yet: create it without a data source and copy the data, or copy a claim, since an empty volume would be worse than none", name)}
	}
	return "", &Invalid{fmt.Sprintf("the claim wants its data from %s %q, but a virtual volume can be a copy of a claim only: create it without a data source and copy the data, since an empty volume would be worse than none", kind, name)}
}

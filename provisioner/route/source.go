package route

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// claimKind is the kind of the data source that is copied.
const claimKind = "PersistentVolumeClaim"

// source is where a claim wants its data from; all empty for nowhere.
type source struct{ claim, snapshot string }

// CopyOf returns the name of the claim of the same namespace that a claim is to
// be a copy of; empty where it is no copy. The error is an *Invalid: the
// claim wants its data from something that cannot be had.
func CopyOf(claim *corev1.PersistentVolumeClaim) (string, error) {
	from, err := sourceOf(claim)
	return from.claim, err
}

// SnapshotOf returns the name of the VolumeSnapshot of the same namespace that a
// claim is to be made from; empty where there is none.
func SnapshotOf(claim *corev1.PersistentVolumeClaim) string {
	from, err := sourceOf(claim)
	if err != nil {
		return ""
	}
	return from.snapshot
}

func sourceOf(claim *corev1.PersistentVolumeClaim) (source, error) {
	// The older field carries the same where both are set.
	if ref := claim.Spec.DataSourceRef; ref != nil {
		if elsewhere := ptr.Deref(ref.Namespace, ""); elsewhere != "" && elsewhere != claim.Namespace {
			return source{}, &Invalid{fmt.Sprintf("the claim wants its data from namespace %q, but a virtual volume can be made only from what is in its own namespace: correct spec.dataSourceRef", elsewhere)}
		}
		return understood(ptr.Deref(ref.APIGroup, ""), ref.Kind, ref.Name)
	}
	if ref := claim.Spec.DataSource; ref != nil {
		return understood(ptr.Deref(ref.APIGroup, ""), ref.Kind, ref.Name)
	}
	return source{}, nil
}

func understood(group, kind, name string) (source, error) {
	switch {
	case group == "" && kind == claimKind && name != "":
		return source{claim: name}, nil
	case group == volumesnapshot.Group && kind == volumesnapshot.Kind && name != "":
		return source{snapshot: name}, nil
	}
	return source{}, &Invalid{fmt.Sprintf("the claim wants its data from %s %q, but a virtual volume can be made from a claim or a VolumeSnapshot only: create it without a data source and copy the data, since an empty volume would be worse than none", kind, name)}
}

package remote

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestWhichVirtualNodesAreListed(t *testing.T) {
	remote := func(name string, mode v1alpha1.VirtualNodeMode, deleted bool, finalizers ...string) *v1alpha1.RemoteCluster {
		r := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		r.Spec.VirtualNode = mode
		if deleted {
			r.DeletionTimestamp = &metav1.Time{}
		}
		return r
	}
	for name, test := range map[string]struct {
		remotes []*v1alpha1.RemoteCluster
		have    map[string]string
		want    map[string]any
	}{
		"none": {want: map[string]any{}},
		"two, in order": {remotes: []*v1alpha1.RemoteCluster{remote("west", v1alpha1.VirtualNodeEnabled, false), remote("east", "", false)},
			want: map[string]any{keys.VirtualNodes: "east,west"}},
		"as it is": {remotes: []*v1alpha1.RemoteCluster{remote("west", "", false)}, have: map[string]string{keys.VirtualNodes: "west"},
			want: map[string]any{}},
		"one that leaves": {remotes: []*v1alpha1.RemoteCluster{remote("west", "", true, keys.VirtualNodeFinalizer)},
			want: map[string]any{keys.VirtualNodes: "west", keys.LeavingNodes: "west"}},
		"one that is no longer wanted": {
			remotes: []*v1alpha1.RemoteCluster{remote("west", v1alpha1.VirtualNodeDisabled, false, keys.VirtualNodeFinalizer)},
			have:    map[string]string{keys.VirtualNodes: "west"}, want: map[string]any{keys.LeavingNodes: "west"}},
		"one that has gone": {
			remotes: []*v1alpha1.RemoteCluster{remote("west", "", true, keys.VolumesFinalizer), remote("liqo", v1alpha1.VirtualNodeDisabled, false)},
			have:    map[string]string{keys.VirtualNodes: "west", keys.LeavingNodes: "west"},
			want:    map[string]any{keys.VirtualNodes: nil, keys.LeavingNodes: nil}},
		"what somebody added": {have: map[string]string{keys.VirtualNodes: "home-1"}, want: map[string]any{keys.VirtualNodes: nil}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: test.have}}
			assert.Equal(t, test.want, listChanges(namespace, test.remotes))
		})
	}
}

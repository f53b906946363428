package registry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestPodsThatKeepANode(t *testing.T) {
	protected := []string{keys.RemotePodFinalizer}
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "agent", Controller: ptr.To(true)}}
	}
	for name, test := range map[string]struct {
		finalizers []string
		owners     []metav1.OwnerReference
		with, less bool // whether it holds with a node, and without one
	}{
		"a pod that may run there":                     {finalizers: protected, with: true, less: true},
		"a pod of a DaemonSet that may run there":      {finalizers: protected, owners: owned("DaemonSet"), with: true, less: true},
		"a pod that nothing runs for":                  {with: true},
		"a pod of a StatefulSet":                       {owners: owned("StatefulSet"), with: true},
		"a pod of a DaemonSet that nothing runs for":   {owners: owned("DaemonSet")},
		"a pod that a DaemonSet owns but not controls": {owners: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent"}}, with: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Finalizers: test.finalizers, OwnerReferences: test.owners}, Spec: corev1.PodSpec{NodeName: "west"}}
			leaving := newTenure("west", Config{Home: fake.NewClientset(pod)})
			held, err := leaving.pods(t.Context(), &corev1.Node{})
			require.NoError(t, err)
			assert.Equal(t, test.with, len(held) == 1)
			held, err = leaving.pods(t.Context(), nil)
			require.NoError(t, err)
			assert.Equal(t, test.less, len(held) == 1)
		})
	}
}

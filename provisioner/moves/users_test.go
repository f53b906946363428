package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
)

// user is a pod that uses a claim on a node.
func user(namespace, name, claim, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
		}}}
}

func TestTheMoverRunsWherePodsAreThatDoNotEnd(t *testing.T) {
	r := recordIn(v1alpha1.MovePreCopy)
	r.Namespace = "shop"
	ends := user("shop", "a-ends", "data", "home-1")
	ends.DeletionTimestamp, ends.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"x/y"}
	done := user("shop", "b-done", "data", "home-3")
	done.Status.Phase = corev1.PodSucceeded
	client := fake.NewClientset(ends, done, user("shop", "c-other", "log", "home-3"), user("shop", "d-waits", "data", ""),
		user("shop", "e-away", "data", "west-1"), user("lodestone-storage", r.MoverName(0, record.Source), "pvc-u1", "home-1"))
	c := New(Config{Client: client, Records: NewRecords(), Node: func(name string) *corev1.Node {
		labels := map[string]string{}
		if name == "west-1" {
			labels[keys.Cluster] = "west"
		}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}})
	on := func() []string {
		o := steps.Observation{Record: r, Claims: make([]steps.Claim, 1)}
		require.NoError(t, c.observeUsers(t.Context(), &o))
		return o.Claims[0].On
	}
	assert.Empty(t, on())
	require.NoError(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "e-away"))
	node, err := c.nodeFor(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.Equal(t, "home-1", node, "the volume may still be there")

	require.NoError(t, client.Tracker().Add(user("shop", "f-new", "data", "home-2")))
	assert.Equal(t, []string{"home-2"}, on())
	node, err = c.nodeFor(t.Context(), c.sites.Home(), r, 0, record.Source)
	require.NoError(t, err)
	assert.Equal(t, "home-2", node)
}

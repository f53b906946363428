package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/site"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
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

func TestAVolumeIsAttachedUnderEitherOfItsNames(t *testing.T) {
	attachment := func(volume, node string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume + node}, Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To(volume)}}}
	}
	for name, row := range map[string]struct {
		volume    string
		phase     v1alpha1.MovePhase
		movers    map[string]bool
		elsewhere bool
		nodes     []string
		attached  bool
	}{
		"for a pod, under the virtual volume's":    {volume: "pvc-u1", nodes: []string{"home-1"}, attached: true},
		"for a pod, under the real volume's":       {volume: "real-1", nodes: []string{"home-1"}},
		"where the mover is, for that as well":     {volume: "pvc-u1", movers: map[string]bool{"home-1": true}, attached: true},
		"where the mover is, for that alone":       {volume: "real-1", movers: map[string]bool{"home-1": true}},
		"for a mover that had no node a while ago": {volume: "real-1", movers: map[string]bool{"": true}},
		"in a remote cluster":                      {volume: "real-1", elsewhere: true, nodes: []string{"home-1"}},
		"another volume":                           {volume: "real-2"},
		"while pods still use it":                  {volume: "pvc-u1", phase: v1alpha1.MovePreCopy},
	} {
		t.Run(name, func(t *testing.T) {
			r := recordIn(v1alpha1.MoveQuiesce)
			if row.phase != "" {
				r = recordIn(row.phase)
			}
			r.Claims[0].Volume = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"}}
			o := steps.Observation{Record: r, Claims: []steps.Claim{{Source: steps.Side{
				Real: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real-1"}}}}}}
			found := sourceUsers{movers: row.movers, at: site.Site{Home: !row.elsewhere,
				Access: remote.Access{Client: fake.NewClientset(attachment(row.volume, "home-1"))}}}
			require.NoError(t, found.attachedNodes(t.Context(), &o))
			(&Controller{}).noteSourceUsers(&o, &found)
			assert.Equal(t, row.attached, o.Claims[0].Attached)
			var nodes []string
			for _, node := range row.nodes {
				nodes = append(nodes, "node "+node+", which it is attached to")
			}
			assert.Equal(t, nodes, o.Attachments)
		})
	}
}

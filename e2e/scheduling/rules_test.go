package scheduling_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/hollow"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// annotate sets an annotation of a claim as the provisioner, whose marks nobody else may
// change; nil takes it off.
func (s *stage) annotate(claim, key string, value any) {
	s.t.Helper()
	quoted := "null"
	if value != nil {
		quoted = fmt.Sprintf("%q", value)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, quoted)
	client, err := kubernetes.NewForConfig(s.UserConfig("system:serviceaccount:"+system+":lodestone-provisioner", "system:masters"))
	require.NoError(s.t, err)
	_, err = client.CoreV1().PersistentVolumeClaims(s.namespace).Patch(s.t.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// settled touches a claim a moment after a change, as the provisioner does:
// kube-scheduler may have heard of the change before the extender.
func (s *stage) settled(claim string) {
	time.Sleep(500 * time.Millisecond)
	s.touch(claim)
}

func copyOf(source string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	}
}

// A pod of a volume that is being moved waits, and starts when the move is over:
// what is taken off the claim wakes it.
func TestPodWaitsWhileItsVolumeIsMoved(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.volume(s.claim("data", map[string]string{keys.Move: "move"}), s.remote)
		s.pod(named("web"), false, "data")
		s.awaitRefusal("web", filter.VolumeMoving)
		s.annotate("data", keys.Move, nil)
		s.settled("data")
		assert.Equal(s.t, s.node, s.awaitNode("web"))
	})
}

// A copy is made where its source is, and only once that has a volume.
func TestPodOfACopyGoesToTheSource(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		source := s.claim("data", nil)
		s.claim("copy", nil, copyOf("data"))
		s.pod(named("web"), false, "copy")
		s.awaitRefusal("web", filter.SourceNotBound)
		s.volume(source, s.remote)
		s.settled("copy")
		assert.Equal(s.t, s.node, s.awaitSelected("copy"))
	})
}

// kube-scheduler by itself knows nothing of an administrator's labels.
func TestLabelledVolumeConfinesItsPodsWhereItMust(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.foreign("archive", map[string]string{keys.Cluster: s.remote, keys.Locality: keys.LocalityRequired})
		s.pod(named("reader"), false, "archive")
		assert.Equal(s.t, s.node, s.awaitNode("reader"))

		s.volume(s.claim("data", nil), keys.Home)
		s.pod(named("both"), false, "archive", "data")
		s.awaitRefusal("both", filter.DataInSeveralClusters)
	})
}

// Two pods share a claim: the first choice holds for both.
func TestPodsThatShareAClaimMeetAtItsData(t *testing.T) {
	inEachMode(t, func(s *stage) {
		s.join(metav1.ConditionTrue, standard)
		shared := s.claim("shared", nil, func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		})
		s.pod(named("first"), true, "shared")
		assert.Equal(s.t, s.node, s.awaitSelected("shared"))
		s.volume(shared, s.remote)
		s.pod(named("second"), false, "shared")
		assert.Equal(s.t, s.node, s.awaitNode("first"))
		assert.Equal(s.t, s.node, s.awaitNode("second"))
	})
}

// kube-scheduler counts a claim without volume against the driver of its virtual
// class, which has no limit. The volume that is made for it needs a place at the
// driver of the real class; when a pod ends there is one again.
func TestNodeTakesNoMoreVolumesThanItsDriverAttaches(t *testing.T) {
	const driver = "disk.example.com"
	inEachMode(t, func(s *stage) {
		node := hollow.Node{Name: "small-" + s.remote, Drivers: map[string]int32{driver: 1}}
		_, err := hollow.Start(s.t.Context(), hollow.Options{Config: s.AdminConfig(), Nodes: []hollow.Node{node}})
		require.NoError(s.t, err)
		s.t.Cleanup(func() {
			_ = s.Client().CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		})
		virtual := s.class("virtual", keys.Driver, map[string]string{keys.LocalClass: s.class("disk", driver, nil)})
		ofDisk := func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &virtual }
		there := func(name string) corev1.Pod {
			pod := named(name)
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
			pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
			return pod
		}
		s.volume(s.claim("one", nil, ofDisk), keys.Home, func(volume *corev1.PersistentVolume) { volume.Spec.CSI.Driver = driver })
		s.pod(there("first"), false, "one")
		require.Equal(s.t, node.Name, s.awaitNode("first"))

		s.claim("two", nil, ofDisk)
		s.pod(there("second"), false, "two")
		s.awaitRefusal("second", filter.AttachLimit)
		require.NoError(s.t, s.Client().CoreV1().Pods(s.namespace).Delete(s.t.Context(), "first", metav1.DeleteOptions{}))
		assert.Equal(s.t, node.Name, s.awaitSelected("two"))
	})
}

package moves

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

// lastSeen is a pod as a watch tells of its end.
func lastSeen(uid, node, claim string, phase corev1.PodPhase, state corev1.ContainerState) *slim.Pod {
	return slim.NewPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "name-" + uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
		Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
	})
}

func TestAMoveKnowsHowPodsWent(t *testing.T) {
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	c := New(Config{Node: func(name string) *corev1.Node {
		if name != "west" {
			return nil
		}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Cluster: "west"}}}
	}})
	for _, pod := range []*slim.Pod{
		lastSeen("ended", "home-1", "data", corev1.PodSucceeded, ended),
		lastSeen("forced", "home-1", "data", corev1.PodRunning, runs),
		lastSeen("restarting", "home-1", "data", corev1.PodRunning, ended),
		lastSeen("said-to-have-failed", "home-1", "data", corev1.PodFailed, runs),
		lastSeen("elsewhere", "west", "data", corev1.PodRunning, runs),
		lastSeen("never-bound", "", "data", corev1.PodPending, corev1.ContainerState{}),
		lastSeen("other", "home-1", "other", corev1.PodRunning, runs),
	} {
		c.witness.gone(pod)
	}
	c.witness.gone(cache.DeletedFinalStateUnknown{Obj: lastSeen("missed", "home-1", "data", corev1.PodRunning, runs)})

	known := &record.Record{Namespace: "shop", UID: "m1", Pods: []record.Pod{{UID: "ended"}, {UID: "forced"}, {UID: "unheard-of"}},
		Claims: []record.Claim{{Name: "data", Source: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "storage", Name: "twin"}}}}}
	o := decide.Observation{Record: known}
	c.observeVanished(&o, nil)
	var unended []types.UID
	for _, pod := range o.Unended {
		unended = append(unended, pod.UID)
		assert.Equal(t, record.Pod{UID: pod.UID, Name: "name-" + string(pod.UID), Node: "home-1", Grace: 30}, pod)
	}
	assert.Equal(t, []types.UID{"forced", "restarting", "said-to-have-failed", "missed"}, unended)
	assert.Equal(t, map[types.UID]bool{"ended": true, "forced": false, "unheard-of": false}, o.Ended)

	c.witness.settle(dropped(known.Pods, nil))
	o = decide.Observation{Record: known}
	c.observeVanished(&o, nil)
	assert.Len(t, o.Unended, 3, "one that was waited for is not waited for again")
}

func TestAWitnessForgetsRatherThanGrow(t *testing.T) {
	w := &witness{}
	for i := range 3 * memorable {
		w.gone(lastSeen(fmt.Sprint("e", i), "home-1", "data", corev1.PodFailed, corev1.ContainerState{}))
		w.gone(lastSeen(fmt.Sprint("u", i), "home-1", "data", corev1.PodRunning, corev1.ContainerState{}))
	}
	require.Len(t, w.ended, memorable)
	require.Len(t, w.unended, memorable)
	assert.False(t, w.saw("e0"))
	assert.True(t, w.saw(types.UID(fmt.Sprint("e", 3*memorable-1))))
}

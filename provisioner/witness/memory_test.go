package witness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness/proof"
)

// user is a pod that uses a claim on a node.
func user(namespace, name, claim, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
		}}}
}

// lastSeen is a pod in the state in which a watch reports its deletion.
func lastSeen(uid, node, claim string, phase corev1.PodPhase, state corev1.ContainerState) *home.Pod {
	return home.NewPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "name-" + uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
		Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
	})
}

func TestAWitnessKnowsHowPodsWent(t *testing.T) {
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	w := Witness{Memory: &Memory{}, Node: func(name string) *corev1.Node {
		if name != "west" {
			return nil
		}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Cluster: "west"}}}
	}}
	for _, pod := range []*home.Pod{
		lastSeen("ended", "home-1", "data", corev1.PodSucceeded, ended),
		lastSeen("forced", "home-1", "data", corev1.PodRunning, runs),
		lastSeen("restarting", "home-1", "data", corev1.PodRunning, ended),
		lastSeen("said-to-have-failed", "home-1", "data", corev1.PodFailed, runs),
		lastSeen("elsewhere", "west", "data", corev1.PodRunning, runs),
		lastSeen("never-bound", "", "data", corev1.PodPending, corev1.ContainerState{}),
		lastSeen("other", "home-1", "other", corev1.PodRunning, runs),
		lastSeen("mover", "home-1", "data", corev1.PodRunning, runs),
	} {
		w.Memory.podChanged(pod, nil)
	}
	controller.Handler(w.Memory.podChanged).OnDelete(cache.DeletedFinalStateUnknown{Obj: lastSeen("missed", "home-1", "data",
		corev1.PodRunning, runs)})

	known := proof.Known{Pods: []proof.Pod{{UID: "ended"}, {UID: "forced"}, {UID: "unheard-of"}}}
	claims := []Claim{{keys.Home, "shop", "data"}, {keys.Home, "storage", "twin"}}
	isMover := func(cluster, name string) bool { return cluster == keys.Home && name == "name-mover" }
	var seen proof.Seen
	w.AddEnded(&seen, known, nil, claims, isMover)
	var unended []types.UID
	for _, pod := range seen.Unended {
		unended = append(unended, pod.UID)
		assert.Equal(t, proof.Pod{UID: pod.UID, Name: "name-" + string(pod.UID), Node: "home-1", Grace: 30}, pod)
	}
	assert.Equal(t, []types.UID{"forced", "restarting", "said-to-have-failed", "missed"}, unended)
	assert.Equal(t, map[types.UID]bool{"ended": true}, seen.Ended)

	w.Memory.Forget(proof.Forgotten(known, proof.Known{}))
	seen = proof.Seen{}
	w.AddEnded(&seen, known, nil, claims, isMover)
	assert.Len(t, seen.Unended, 3, "one that was waited for is not waited for again")
}

func TestAWitnessForgetsRatherThanGrow(t *testing.T) {
	w := &Memory{}
	for i := range 3 * maxRemembered {
		w.podChanged(lastSeen(fmt.Sprint("e", i), "home-1", "data", corev1.PodFailed, corev1.ContainerState{}), nil)
		w.podChanged(lastSeen(fmt.Sprint("u", i), "home-1", "data", corev1.PodRunning, corev1.ContainerState{}), nil)
	}
	require.Len(t, w.ended, maxRemembered)
	require.Len(t, w.unended, maxRemembered)
	assert.False(t, w.sawEnd("e0"))
	assert.True(t, w.sawEnd(types.UID(fmt.Sprint("e", 3*maxRemembered-1))))
}

func TestAWitnessSeesHowPodsGoInARemoteCluster(t *testing.T) {
	where := remoteNamespace{"west", "shop"}
	forced, ended, mover := user("shop", "forced", "twin", "west-1"), user("shop", "ended", "twin", "west-1"),
		user("shop", "mover", "twin", "west-1")
	other := user("shop", "other", "data", "west-1")
	ended.Status.Phase = corev1.PodSucceeded
	for _, pod := range []*corev1.Pod{forced, ended, mover, other} {
		pod.UID = types.UID(pod.Name)
	}
	client := fake.NewClientset(forced, ended, mover, other)
	var watchers Watchers
	defer watchers.Close()
	told := make(chan string, 100)
	changed := func(pod *home.Pod) { told <- pod.Name }
	watchers.Watch(t.Context(), site.Site{Access: remote.Access{Client: client}}, "west", "shop", changed)
	before := watchers[where].pods
	watchers.Watch(t.Context(), site.Site{Access: remote.Access{Client: client}}, "west", "shop", changed)
	require.Same(t, before, watchers[where].pods, "one watch is enough")
	require.Eventually(t, before.HasSynced, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return len(told) >= 4 }, 10*time.Second, time.Millisecond, "each is told")
	for _, pod := range []*corev1.Pod{forced, ended, mover, other} {
		require.NoError(t, client.CoreV1().Pods("shop").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	require.Eventually(t, func() bool {
		w := &watchers[where].memory
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ended)+len(w.unended) == 4
	}, 10*time.Second, time.Millisecond)

	w := Witness{Memory: &Memory{}}
	known := proof.Known{Pods: []proof.Pod{{Cluster: "west", UID: "ended", Node: "west-1"}, {Cluster: "west", UID: "forced", Node: "west-1"}}}
	look := func() (seen proof.Seen) {
		w.AddEnded(&seen, known, watchers, []Claim{{keys.Home, "shop", "data"}, {"west", "shop", "twin"}},
			func(cluster, name string) bool { return cluster == "west" && name == "mover" })
		return seen
	}
	assert.Equal(t, []proof.Pod{{Cluster: "west", UID: "forced", Name: "forced", Node: "west-1", Grace: 30}}, look().Unended)
	assert.Equal(t, map[types.UID]bool{"ended": true}, look().Ended)

	// New credentials come with a new client.
	watchers.Watch(t.Context(), site.Site{Access: remote.Access{Client: fake.NewClientset()}}, "west", "shop", changed)
	assert.NotSame(t, before, watchers[where].pods)
	assert.True(t, watchers.sawEnd("west", "ended"), "what was seen stays known")
	assert.False(t, watchers.sawEnd("east", "ended"), "one cluster does not say how the pods of another went")
	watchers.Forget(map[types.UID]bool{"forced": true})
	assert.Empty(t, look().Unended)
}

func TestOfThePodsOfAnotherClusterNoMoreIsHeldThanIsNeeded(t *testing.T) {
	pod := user("shop", "db", "twin", "west-1")
	kept, err := transformRemotePod(pod)
	require.NoError(t, err)
	assert.Equal(t, home.NewPod(pod), kept)
	for name, change := range map[string]func(*corev1.Pod){
		"a long name":     func(p *corev1.Pod) { p.Name = strings.Repeat("x", 1<<20) },
		"a long node":     func(p *corev1.Pod) { p.Spec.NodeName = strings.Repeat("x", 1<<20) },
		"many finalizers": func(p *corev1.Pod) { p.Finalizers = make([]string, 1<<20) },
		"many claims": func(p *corev1.Pod) {
			for range 1000 {
				p.Spec.Volumes = append(p.Spec.Volumes, p.Spec.Volumes[0])
				p.Spec.Volumes[len(p.Spec.Volumes)-1].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: rand.String(10)}
			}
		},
	} {
		huge := pod.DeepCopy()
		change(huge)
		kept, err := transformRemotePod(huge)
		require.NoError(t, err)
		assert.Equal(t, &home.Pod{}, kept, name)
	}

	var many []runtime.Object
	for i := range maxWatchedPods + 1 {
		one := user("shop", fmt.Sprint("db-", i), "twin", "west-1")
		many = append(many, one)
	}
	client, where := fake.NewClientset(many...), remoteNamespace{"west", "shop"}
	var watchers Watchers
	defer watchers.Close()
	at := site.Site{Access: remote.Access{Client: client}}
	watchers.Watch(t.Context(), at, "west", "shop", func(*home.Pod) {})
	require.Eventually(t, watchers[where].pods.HasSynced, 30*time.Second, time.Millisecond)
	watchers.Watch(t.Context(), at, "west", "shop", func(*home.Pod) {})
	assert.Nil(t, watchers[where].pods, "it is not watched any more")
	watchers.Watch(t.Context(), at, "west", "shop", func(*home.Pod) {})
	assert.Nil(t, watchers[where].pods, "nor again")
}

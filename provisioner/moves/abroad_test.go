package moves

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

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/clusters"
	"github.com/lodestone-storage/lodestone/provisioner/moves/decide"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/slim"
)

func TestAMoveSeesHowPodsGoInTheClusterOfItsSource(t *testing.T) {
	where := place{"west", "shop"}
	r := &record.Record{UID: "m1", Namespace: "shop", Phase: v1alpha1.MovePreCopy, Claims: []record.Claim{{Name: "data", Source: record.Copy{Ref: backing.Ref{Cluster: "west", Namespace: "shop", Name: "twin"}}}}}
	forced, ended, mover := user("shop", "forced", "twin", "west-1"), user("shop", "ended", "twin", "west-1"), user("shop", r.MoverName(0, record.Source), "twin", "west-1")
	other := user("shop", "other", "data", "west-1")
	ended.Status.Phase = corev1.PodSucceeded
	for _, pod := range []*corev1.Pod{forced, ended, mover, other} {
		pod.UID = types.UID(pod.Name)
	}
	client := fake.NewClientset(forced, ended, mover, other)
	var seen abroad
	defer seen.close()
	seen.watch(t.Context(), site{Access: clusters.Access{Client: client}}, where)
	before := seen[where].pods
	seen.watch(t.Context(), site{Access: clusters.Access{Client: client}}, where)
	require.Same(t, before, seen[where].pods, "one watch is enough")
	require.Eventually(t, before.HasSynced, 10*time.Second, time.Millisecond)
	for _, pod := range []*corev1.Pod{forced, ended, mover, other} {
		require.NoError(t, client.CoreV1().Pods("shop").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	require.Eventually(t, func() bool {
		w := &seen[where].witness
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.ended)+len(w.unended) == 4
	}, 10*time.Second, time.Millisecond)

	c := New(Config{Clusters: clusters.New(clusters.Config{})})
	r.Pods = []record.Pod{{Cluster: "west", UID: "ended", Node: "west-1"}, {Cluster: "west", UID: "forced", Node: "west-1"}}
	o := decide.Observation{Record: r}
	c.observeVanished(&o, seen)
	assert.Equal(t, []record.Pod{{Cluster: "west", UID: "forced", Name: "forced", Node: "west-1", Grace: 30}}, o.Unended)
	assert.Equal(t, map[types.UID]bool{"ended": true, "forced": false}, o.Ended)

	// New credentials come with a new client.
	seen.watch(t.Context(), site{Access: clusters.Access{Client: fake.NewClientset()}}, where)
	assert.NotSame(t, before, seen[where].pods)
	assert.True(t, seen.saw("ended"), "what was seen stays known")
	seen.settle(map[types.UID]bool{"forced": true})
	o = decide.Observation{Record: r}
	c.observeVanished(&o, seen)
	assert.Empty(t, o.Unended)
}

func TestOfThePodsOfAnotherClusterNoMoreIsHeldThanMovesNeed(t *testing.T) {
	pod := user("shop", "db", "twin", "west-1")
	kept, err := small(pod)
	require.NoError(t, err)
	assert.Equal(t, slim.NewPod(pod), kept)
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
		kept, err := small(huge)
		require.NoError(t, err)
		assert.Equal(t, &slim.Pod{}, kept, name)
	}

	var many []runtime.Object
	for i := range mostPods + 1 {
		one := user("shop", fmt.Sprint("db-", i), "twin", "west-1")
		many = append(many, one)
	}
	client, where := fake.NewClientset(many...), place{"west", "shop"}
	var seen abroad
	defer seen.close()
	at := site{Access: clusters.Access{Client: client}}
	seen.watch(t.Context(), at, where)
	require.Eventually(t, seen[where].pods.HasSynced, 30*time.Second, time.Millisecond)
	seen.watch(t.Context(), at, where)
	assert.Nil(t, seen[where].pods, "it is not watched any more")
	seen.watch(t.Context(), at, where)
	assert.Nil(t, seen[where].pods, "nor again")
}

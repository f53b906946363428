package filter_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// opened is a namespace whose pods may run in the listed remote clusters; in all
// if the list is empty.
func opened(clusters string) *snapshot.Namespace {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
	if clusters != "" {
		object.Annotations = map[string]string{keys.OffloadClusters: clusters}
	}
	entry, _ := snapshot.FromNamespace(object)
	return entry
}

func daemon(pod snapshot.Pod) snapshot.Pod {
	pod.Daemon = true
	return pod
}

func TestPodsLeaveHomeOnlyWhereTheirNamespaceMayGo(t *testing.T) {
	atHome := func(reason filter.Reason) map[string]filter.Reason {
		return map[string]filter.Reason{"home-1": reason, "home-2": reason}
	}
	with := func(refused map[string]filter.Reason, node string, reason filter.Reason) map[string]filter.Reason {
		refused[node] = reason
		return refused
	}
	closed := func(v *snapshot.Snapshot) { v.Namespaces.Set("app", nil) }
	only := func(clusters string) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) { v.Namespaces.Set("app", opened(clusters)) }
	}
	for name, test := range map[string]row{
		"a pod without claims stays at home with its namespace":      {pod: pod(), change: closed, refused: remotes(filter.NotOffloaded)},
		"a pod without claims goes only to the listed clusters":      {pod: pod(), change: only("east"), refused: map[string]filter.Reason{"west": filter.NotOpen}},
		"an unbound claim goes only to the listed clusters":          {pod: pod("unbound"), change: only("east"), refused: map[string]filter.Reason{"west": filter.NotOpen}},
		"a list of others keeps a pod at home":                       {pod: pod(), change: only("north"), refused: remotes(filter.NotOpen)},
		"a claim that is not ours does not let its pod leave":        {pod: pod("foreign"), change: closed, refused: remotes(filter.NotOffloaded)},
		"data in west does not let the pod of a closed namespace in": {pod: pod("in-west"), change: closed, refused: with(with(atHome(filter.DataElsewhere), "east", filter.DataElsewhere), "west", filter.NotOffloaded)},
		"nor that of one that lists others":                          {pod: pod("in-west"), change: only("east"), refused: with(with(atHome(filter.DataElsewhere), "east", filter.DataElsewhere), "west", filter.NotOpen)},
		"data at home needs no open namespace":                       {pod: pod("in-home"), change: closed, refused: remotes(filter.DataElsewhere)},
		"a pod of a DaemonSet stays at home":                         {pod: daemon(pod()), refused: remotes(filter.DaemonPod)},
		"… with claims too":                                          {pod: daemon(pod("unbound")), refused: remotes(filter.DaemonPod)},
		"without remote clusters there is no rule": {pod: daemon(pod()), indifferent: true, change: func(v *snapshot.Snapshot) {
			closed(v)
			v.Clusters.Replace(nil)
			v.Nodes.Delete("west")
			v.Nodes.Delete("east")
		}},
	} {
		t.Run(name, test.check)
	}
}

func TestANodeNotSeenYetTakesPodsOfAClosedNamespace(t *testing.T) {
	view := world()
	view.Namespaces.Set("app", nil)
	assert.Equal(t, filter.Accepted, filter.NewPlan(view, pod(), now).Judge(nodeOf(view, "new")), "it may be one of home, and the taint of virtual nodes holds")
}

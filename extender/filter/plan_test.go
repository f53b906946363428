package filter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a home cluster with two nodes of its own, one virtual node for each
// of west and east, and a namespace "app" whose pods may leave home.
func world() *snapshot.Snapshot {
	view := snapshot.New()
	for node, cluster := range map[string]string{"home-1": keys.Home, "home-2": keys.Home, "west": "west", "east": "east"} {
		view.Nodes.Set(node, cluster)
	}
	for _, cluster := range []string{"west", "east"} {
		view.Clusters.Set(cluster, &snapshot.Cluster{Ready: true, Offered: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}})
	}
	view.Namespaces.Set("app", opened(""))
	view.Classes.Set("lodestone", class(nil))
	view.Claims.Set("app/unbound", &snapshot.Claim{UID: "unbound", ClassName: "lodestone"})
	for _, cluster := range []string{keys.Home, "west"} {
		view.Claims.Set("app/in-"+cluster, &snapshot.Claim{UID: cluster, ClassName: "lodestone", VolumeName: "pv-" + cluster})
		view.Volumes.Set("pv-"+cluster, &snapshot.Volume{Cluster: cluster, ClaimUID: cluster})
	}
	return view
}

func class(parameters map[string]string) *snapshot.Class {
	parsed, _ := snapshot.FromStorageClass(&storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: "lodestone"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		Parameters:        parameters,
	})
	return parsed
}

func pod(claims ...string) snapshot.Pod {
	pod := snapshot.Pod{Namespace: "app", Name: "web", UID: "pod-uid"}
	for _, claim := range claims {
		pod.Volumes = append(pod.Volumes, snapshot.PodVolume{ClaimName: claim})
	}
	return pod
}

// everywhere is a reason for each of the world's nodes.
func everywhere(reason filter.Reason) map[string]filter.Reason {
	return map[string]filter.Reason{"home-1": reason, "home-2": reason, "west": reason, "east": reason}
}

func remotes(reason filter.Reason) map[string]filter.Reason {
	return map[string]filter.Reason{"west": reason, "east": reason}
}

func TestPlan(t *testing.T) {
	cluster := func(ready bool, offered ...v1alpha1.OfferedClass) *snapshot.Cluster {
		return &snapshot.Cluster{Ready: ready, Offered: offered}
	}
	unbound := func(claim snapshot.Claim) *snapshot.Claim {
		claim.UID, claim.ClassName = "unbound", "lodestone"
		return &claim
	}
	for name, test := range map[string]row{
		"a pod without claims goes anywhere":    {pod: pod(), indifferent: true},
		"a claim that is not known has no rule": {pod: pod("later"), indifferent: true},
		"a claim of another class is not ours": {pod: pod("other"), indifferent: true, change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/other", &snapshot.Claim{UID: "other", ClassName: "fast"})
		}},
		"a bound claim of a volume without cluster is not ours": {pod: pod("other"), indifferent: true, change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/other", &snapshot.Claim{UID: "other", ClassName: "fast", VolumeName: "pv-real"})
		}},
		"a claim that names a volume of someone else learns nothing": {pod: pod("thief"), indifferent: true, change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", ClassName: "lodestone", VolumeName: "pv-west"})
		}},

		"data in west keeps the pod there": {pod: pod("in-west"), refused: map[string]filter.Reason{
			"home-1": filter.DataElsewhere, "home-2": filter.DataElsewhere, "east": filter.DataElsewhere,
		}},
		"data at home keeps the pod there": {pod: pod("in-home"), refused: remotes(filter.DataElsewhere)},
		"data stays reachable in a cluster that takes no new volumes": {pod: pod("in-west"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", cluster(false))
		}, refused: map[string]filter.Reason{"home-1": filter.DataElsewhere, "home-2": filter.DataElsewhere, "east": filter.DataElsewhere}},
		"data in two clusters leaves no node": {pod: pod("in-west", "in-home"), refused: everywhere(filter.DataInSeveralClusters)},
		"two claims of one cluster are fine": {pod: pod("in-home", "in-home-too"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/in-home-too", &snapshot.Claim{UID: "too", VolumeName: "pv-too"})
			v.Volumes.Set("pv-too", &snapshot.Volume{Cluster: keys.Home, ClaimUID: "too"})
		}, refused: remotes(filter.DataElsewhere)},

		"an unbound claim goes to any ready cluster": {pod: pod("unbound")},
		"a new claim follows the data of the other":  {pod: pod("in-home", "unbound"), refused: remotes(filter.DataElsewhere)},
		"a new claim beside data in a cluster that is not ready has no place": {pod: pod("unbound", "in-west"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", cluster(false))
		}, refused: map[string]filter.Reason{
			"home-1": filter.DataElsewhere, "home-2": filter.DataElsewhere, "east": filter.DataElsewhere, "west": filter.ClusterNotReady,
		}},
		"the class allows only home": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.Clusters: "home"}))
		}, refused: remotes(filter.ClusterNotAllowed)},
		"the class allows only west": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.Clusters: "west"}))
		}, refused: map[string]filter.Reason{
			"home-1": filter.ClusterNotAllowed, "home-2": filter.ClusterNotAllowed, "east": filter.ClusterNotAllowed,
		}},
		"the namespace stays at home": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Namespaces.Set("app", nil)
		}, refused: remotes(filter.NotOffloaded)},
		"nothing is known of the node's cluster": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Delete("west")
		}, refused: map[string]filter.Reason{"west": filter.ClusterUnknown}},
		"a cluster is not ready": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", cluster(false, v1alpha1.OfferedClass{Name: "standard", Default: true}))
		}, refused: map[string]filter.Reason{"west": filter.ClusterNotReady}},
		"a cluster without storage": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", cluster(true))
		}, refused: map[string]filter.Reason{"west": filter.NoRealClass}},
		"a cluster without default class": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", cluster(true, v1alpha1.OfferedClass{Name: "standard"}))
		}, refused: map[string]filter.Reason{"west": filter.NoRealClass}},
		"the RemoteCluster names a class instead of a default": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", &snapshot.Cluster{Ready: true, DefaultClass: "standard", Offered: []v1alpha1.OfferedClass{{Name: "standard"}}})
		}},
		"the RemoteCluster names a class that is not there": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", &snapshot.Cluster{Ready: true, DefaultClass: "gone", Offered: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}})
		}, refused: map[string]filter.Reason{"west": filter.NoRealClass}},
		"the virtual class names a class that only east has": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.RemoteClass: "ssd"}))
			v.Clusters.Set("east", cluster(true, v1alpha1.OfferedClass{Name: "ssd"}))
		}, refused: map[string]filter.Reason{"west": filter.NoRealClass}},
		"the virtual class names a class for one cluster": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.RemoteClass + ".west": "ssd"}))
		}, refused: map[string]filter.Reason{"west": filter.NoRealClass}},
		"the claim chooses a listed class that only east has": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.Classes: "ssd"}))
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Choice: map[string]string{keys.Class: "ssd"}}))
			v.Clusters.Set("east", cluster(true, v1alpha1.OfferedClass{Name: "ssd"}))
		}, refused: map[string]filter.Reason{"west": filter.NoRealClass}},
		"the claim chooses a class that is not listed": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Choice: map[string]string{keys.Class: "ssd"}}))
		}, refused: everywhere(filter.ClassNotListed)},
		"the virtual class is invalid": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{"typo": "x"}))
		}, refused: everywhere(filter.ClassInvalid)},
		"an invalid class does not hold up claims that have their volume": {pod: pod("in-home"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{"typo": "x"}))
		}, refused: remotes(filter.DataElsewhere)},
		"a cluster refused the claim lately": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Refusals: []refusal.Refusal{{Cluster: "west", Until: now.Add(time.Second)}}}))
		}, refused: map[string]filter.Reason{"west": filter.RefusedLately}},
		"one node refused the claim lately": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Refusals: []refusal.Refusal{{Cluster: keys.Home, Node: "home-2", Until: now.Add(time.Second)}}}))
		}, refused: map[string]filter.Reason{"home-2": filter.RefusedLately}},
		"a refusal has ended": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Refusals: []refusal.Refusal{{Cluster: "west", Until: now}}}))
		}},
		"every claim of the pod counts": {pod: pod("unbound", "picky"), change: func(v *snapshot.Snapshot) {
			v.Classes.Set("home-only", class(map[string]string{keys.Clusters: "home"}))
			v.Claims.Set("app/picky", &snapshot.Claim{UID: "picky", ClassName: "home-only"})
		}, refused: remotes(filter.ClusterNotAllowed)},
	} {
		t.Run(name, test.check)
	}
}

func TestPlanOfNodeNotSeenYet(t *testing.T) {
	view := world()
	for name, test := range map[string]struct {
		pod  snapshot.Pod
		want filter.Reason
	}{
		"no claims": {pod: pod(), want: filter.Accepted},
		"bound: kube-scheduler has matched the volume": {pod: pod("in-west"), want: filter.Accepted},
		"unbound: its cluster is not known":            {pod: pod("unbound"), want: filter.NodeNotSeen},
		"data in two clusters":                         {pod: pod("in-west", "in-home"), want: filter.DataInSeveralClusters},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, filter.NewPlan(view, test.pod, now).Judge(nodeOf(view, "new")))
		})
	}
}

func TestReasonsAreConstantAndDistinct(t *testing.T) {
	names, sentences := map[string]bool{}, map[string]bool{}
	for _, reason := range filter.Reasons() {
		assert.NotEmpty(t, reason.String())
		assert.NotEmpty(t, reason.Sentence(), reason)
		names[reason.String()], sentences[reason.Sentence()] = true, true
	}
	assert.Len(t, names, len(filter.Reasons()))
	assert.Len(t, sentences, len(filter.Reasons()))
	assert.Empty(t, filter.Accepted.Sentence())
}

// nodeOf returns what is known of a node.
func nodeOf(view *snapshot.Snapshot, name string) (found snapshot.Node) {
	view.EachNode([]string{name}, func(_ int, node snapshot.Node) { found = node })
	return found
}

// The table of filter calls and what it is made of are one file: each row is read beside the
// others, and the builders of pods, claims and nodes serve this table alone.

package filter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a home cluster with two nodes of its own, one virtual node each for west and east, and a
// namespace "app" whose pods may run in remote clusters.
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

// everywhere returns a reason for each of the world's nodes.
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
		"a new claim beside data in a cluster that is not ready has no place": {pod: pod("unbound", "in-west"),
			change: func(v *snapshot.Snapshot) {
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
			v.Clusters.Set("west",
				&snapshot.Cluster{Ready: true, DefaultClass: "gone", Offered: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}})
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
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Refusals: []locality.Refusal{{Cluster: "west", Until: now.Add(time.Second)}}}))
		}, refused: map[string]filter.Reason{"west": filter.RefusedLately}},
		"one node refused the claim lately": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/unbound",
				unbound(snapshot.Claim{Refusals: []locality.Refusal{{Cluster: keys.Home, Node: "home-2", Until: now.Add(time.Second)}}}))
		}, refused: map[string]filter.Reason{"home-2": filter.RefusedLately}},
		"a refusal has ended": {pod: pod("unbound"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/unbound", unbound(snapshot.Claim{Refusals: []locality.Refusal{{Cluster: "west", Until: now}}}))
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

// outside returns a reason for all nodes of the world except those of one cluster.
func outside(cluster string, reason filter.Reason) map[string]filter.Reason {
	refused := everywhere(reason)
	for _, node := range map[string][]string{keys.Home: {"home-1", "home-2"}, "west": {"west"}, "east": {"east"}}[cluster] {
		delete(refused, node)
	}
	return refused
}

// row is a case of the rules: a pod, a changed world, and the nodes that are refused.
type row struct {
	pod         snapshot.Pod
	change      func(*snapshot.Snapshot)
	refused     map[string]filter.Reason
	indifferent bool
}

func (r row) check(t *testing.T) {
	t.Helper()
	view := world()
	if r.change != nil {
		r.change(view)
	}
	plan := filter.NewPlan(view, r.pod, now)
	assert.Equal(t, r.indifferent, plan.Indifferent())
	refused := map[string]filter.Reason{}
	for node := range everywhere(filter.Accepted) {
		if reason := plan.Judge(nodeOf(view, node)); reason != filter.Accepted {
			refused[node] = reason
		}
	}
	if r.refused == nil {
		r.refused = map[string]filter.Reason{}
	}
	assert.Equal(t, r.refused, refused)
}

// bind stores a claim "app/<name>" that has this volume.
func bind(name string, claim snapshot.Claim, volume snapshot.Volume) func(*snapshot.Snapshot) {
	return func(v *snapshot.Snapshot) {
		claim.UID, claim.VolumeName = name, "pv-of-"+name
		volume.ClaimUID = name
		v.Claims.Set("app/"+name, &claim)
		v.Volumes.Set(claim.VolumeName, &volume)
	}
}

// want stores an unbound claim "app/<name>" of the virtual class.
func want(name string, claim snapshot.Claim) func(*snapshot.Snapshot) {
	return func(v *snapshot.Snapshot) {
		claim.UID = name
		if claim.ClassName == "" {
			claim.ClassName = "lodestone"
		}
		v.Claims.Set("app/"+name, &claim)
	}
}

func all(changes ...func(*snapshot.Snapshot)) func(*snapshot.Snapshot) {
	return func(v *snapshot.Snapshot) {
		for _, change := range changes {
			change(v)
		}
	}
}

func TestPodsOfAVolumeThatIsMovedWait(t *testing.T) {
	moving := snapshot.Claim{Moving: true}
	west := snapshot.Volume{Cluster: "west"}
	for name, test := range map[string]row{
		"the volume of a mounted claim is moved": {pod: pod("data"), change: bind("data", moving, west),
			refused: everywhere(filter.VolumeMoving)},
		"a claim without volume is held as well": {pod: pod("data"), change: want("data", moving), refused: everywhere(filter.VolumeMoving)},
		"one of several claims is enough": {pod: pod("in-west", "data"), change: bind("data", moving, west),
			refused: everywhere(filter.VolumeMoving)},
		"a claim of any class is held": {pod: pod("data"), change: want("data", snapshot.Claim{Moving: true, ClassName: "fast"}),
			refused: everywhere(filter.VolumeMoving)},
		"the move is over": {pod: pod("data"), change: bind("data", snapshot.Claim{}, west),
			refused: outside("west", filter.DataElsewhere)},
		"a claim that is only near does not hold": {pod: near(pod(), "data"), change: bind("data", moving, west), indifferent: true},
		"a copy of a volume that is moved waits, too": {pod: pod("copy"),
			change: all(bind("data", moving, west), want("copy", snapshot.Claim{Source: "data"})), refused: everywhere(filter.VolumeMoving)},
	} {
		t.Run(name, test.check)
	}
}

func near(pod snapshot.Pod, claims ...string) snapshot.Pod {
	pod.Near = claims
	return pod
}

func TestACopyIsMadeWhereItsSourceIs(t *testing.T) {
	copyOf := func(source string) func(*snapshot.Snapshot) {
		return want("copy", snapshot.Claim{Source: source})
	}
	for name, test := range map[string]row{
		"the source is in west": {pod: pod("copy"), change: copyOf("in-west"), refused: outside("west", filter.SourceElsewhere)},
		"the source is at home": {pod: pod("copy"), change: copyOf("in-home"), refused: remotes(filter.SourceElsewhere)},
		"the source is not virtual": {pod: pod("copy"),
			change: all(copyOf("foreign"), bind("foreign", snapshot.Claim{}, snapshot.Volume{})), refused: remotes(filter.SourceElsewhere)},
		"the source is labelled with a cluster": {pod: pod("copy"),
			change:  all(copyOf("foreign"), bind("foreign", snapshot.Claim{}, snapshot.Volume{Prefers: "east"})),
			refused: outside("east", filter.SourceElsewhere)},
		"the source has no volume": {pod: pod("copy"), change: copyOf("unbound"), refused: everywhere(filter.SourceNotBound)},
		"there is no such source":  {pod: pod("copy"), change: copyOf("gone"), refused: everywhere(filter.SourceNotBound)},
		"the source is that of another namespace": {pod: pod("copy"), change: all(copyOf("secret"), func(v *snapshot.Snapshot) {
			v.Claims.Set("other/secret", &snapshot.Claim{UID: "west", VolumeName: "pv-west"})
		}), refused: everywhere(filter.SourceNotBound)},
		"the source names a volume of someone else": {pod: pod("copy"), change: all(copyOf("thief"), func(v *snapshot.Snapshot) {
			v.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", VolumeName: "pv-west"})
		}), refused: everywhere(filter.SourceNotBound)},
		"source and copy in one pod": {pod: pod("copy", "in-west"), change: copyOf("in-west"),
			refused: outside("west", filter.DataElsewhere)},
		"the copy beside data of another cluster": {pod: pod("copy", "in-home"), change: copyOf("in-west"),
			refused: everywhere(filter.DataInSeveralClusters)},
		"copies of sources in two clusters": {pod: pod("copy", "more"),
			change: all(copyOf("in-west"), want("more", snapshot.Claim{Source: "in-home"})), refused: everywhere(filter.DataInSeveralClusters)},
		"the source's cluster takes no new volumes": {pod: pod("copy"), change: all(copyOf("in-west"), func(v *snapshot.Snapshot) {
			v.Clusters.Set("west", &snapshot.Cluster{})
		}), refused: merged(outside("west", filter.SourceElsewhere), map[string]filter.Reason{"west": filter.ClusterNotReady})},
		"a copy that has its volume needs no source": {pod: pod("copy"), change: bind("copy", snapshot.Claim{}, snapshot.Volume{Cluster: "east"}),
			refused: outside("east", filter.DataElsewhere)},
		"a copy of a real class is not ours": {pod: pod("copy"), change: want("copy", snapshot.Claim{Source: "gone", ClassName: "fast"}),
			refused: remotes(filter.ClaimStaysHome)},
	} {
		t.Run(name, test.check)
	}
}

func TestAClaimFromASnapshotGoesWhereThatIsSaidToBe(t *testing.T) {
	from := func(cluster string) func(*snapshot.Snapshot) {
		return want("copy", snapshot.Claim{FromSnapshot: true, SourceCluster: cluster})
	}
	for name, test := range map[string]row{
		"it is in west":               {pod: pod("copy"), change: from("west"), refused: outside("west", filter.SourceElsewhere)},
		"it is at home":               {pod: pod("copy"), change: from("home"), refused: remotes(filter.SourceElsewhere)},
		"nobody has said where it is": {pod: pod("copy"), change: from(""), refused: everywhere(filter.SnapshotNotReady)},
		"beside data of another cluster": {pod: pod("copy", "in-home"), change: from("west"),
			refused: everywhere(filter.DataInSeveralClusters)},
		"beside a copy of another cluster": {pod: pod("copy", "more"),
			change: all(from("west"), want("more", snapshot.Claim{Source: "in-home"})), refused: everywhere(filter.DataInSeveralClusters)},
		"a claim of a real class is not our own": {pod: pod("copy"), change: want("copy", snapshot.Claim{FromSnapshot: true, ClassName: "fast"}),
			refused: remotes(filter.ClaimStaysHome)},
	} {
		t.Run(name, test.check)
	}
}

func merged(a, b map[string]filter.Reason) map[string]filter.Reason {
	for node, reason := range b {
		a[node] = reason
	}
	return a
}

func without(all map[string]filter.Reason, node string) map[string]filter.Reason {
	delete(all, node)
	return all
}

func TestVolumesThatAdministratorsLabel(t *testing.T) {
	required := snapshot.Volume{Cluster: "west", ByLabel: true}
	for name, test := range map[string]row{
		"a label is a preference, not a rule": {pod: pod("nfs"), change: bind("nfs", snapshot.Claim{}, snapshot.Volume{Prefers: "west"}),
			indifferent: true},
		"required, it is a rule": {pod: pod("nfs"), change: bind("nfs", snapshot.Claim{}, required),
			refused: outside("west", filter.DataElsewhere)},
		"and the pod's namespace must be open": {pod: pod("nfs"),
			change:  all(bind("nfs", snapshot.Claim{}, required), func(v *snapshot.Snapshot) { v.Namespaces.Set("app", nil) }),
			refused: merged(outside("west", filter.DataElsewhere), map[string]filter.Reason{"west": filter.NotOffloaded})},
		"beside virtual data of another cluster": {pod: pod("nfs", "in-home"), change: bind("nfs", snapshot.Claim{}, required),
			refused: everywhere(filter.DataInSeveralClusters)},
		"a preference gives way to data": {pod: pod("nfs", "in-home"), change: bind("nfs", snapshot.Claim{}, snapshot.Volume{Prefers: "west"}),
			refused: remotes(filter.DataElsewhere)},
		"a new claim follows the rule": {pod: pod("nfs", "unbound"), change: bind("nfs", snapshot.Claim{}, required),
			refused: outside("west", filter.DataElsewhere)},
	} {
		t.Run(name, test.check)
	}
	view := world()
	bind("nfs", snapshot.Claim{}, required)(view)
	assert.Equal(t, filter.NodeNotSeen, filter.NewPlan(view, pod("nfs"), now).Judge(nodeOf(view, "new")),
		"kube-scheduler knows nothing of the label")
}

func TestClaimsOfManyKinds(t *testing.T) {
	ephemeral := func(claim string) snapshot.Pod {
		p := pod()
		p.Volumes = []snapshot.PodVolume{{ClaimName: claim, Ephemeral: true}}
		return p
	}
	own := snapshot.Claim{OwnerUID: "pod-uid", OfPod: true}
	for name, test := range map[string]row{
		"an ephemeral claim cannot leave home": {pod: ephemeral("web-scratch"), change: want("web-scratch", own),
			refused: remotes(filter.EphemeralVolume)},
		"… but to clusters whose virtual node is Lodestone's": {pod: ephemeral("web-scratch"),
			change: all(want("web-scratch", own), func(v *snapshot.Snapshot) {
				west, _ := v.Clusters.Get("west")
				ours := *west
				ours.OwnNode = true
				v.Clusters.Set("west", &ours)
			}), refused: without(remotes(filter.EphemeralVolume), "west")},
		"… whoever mounts it": {pod: pod("web-scratch"),
			change: want("web-scratch", snapshot.Claim{OwnerUID: "other", OfPod: true}), refused: remotes(filter.EphemeralVolume)},
		"a claim that another kind of object owns can": {pod: pod("web-scratch"),
			change: want("web-scratch", snapshot.Claim{OwnerUID: "set"})},
		"an ephemeral claim of another pod does not count": {pod: ephemeral("web-scratch"),
			change: want("web-scratch", snapshot.Claim{OwnerUID: "other", OfPod: true}), indifferent: true},
		"an ephemeral claim that has its volume": {pod: ephemeral("web-scratch"),
			change: bind("web-scratch", own, snapshot.Volume{Cluster: "west"}), refused: outside("west", filter.DataElsewhere)},
		"a claim that several pods share keeps each of them": {pod: snapshot.Pod{Namespace: "app", Name: "second", UID: "second",
			Volumes: []snapshot.PodVolume{{ClaimName: "in-west"}}}, refused: outside("west", filter.DataElsewhere)},
		"a Lost claim is left to kube-scheduler": {pod: pod("lost"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/lost", &snapshot.Claim{UID: "lost", ClassName: "lodestone", VolumeName: "pv-gone"})
		}, indifferent: true},
		"a Lost claim does not hide the others": {pod: pod("lost", "in-west"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/lost", &snapshot.Claim{UID: "lost", ClassName: "lodestone", VolumeName: "pv-gone"})
		}, refused: outside("west", filter.DataElsewhere)},
		"three claims, two of them in different clusters": {pod: pod("unbound", "in-west", "in-home"),
			refused: everywhere(filter.DataInSeveralClusters)},
		"refusals of two claims leave what neither refused": {pod: pod("a", "b"), change: all(
			want("a", snapshot.Claim{Refusals: refusals(locality.Refusal{Cluster: "west"})}),
			want("b", snapshot.Claim{Refusals: refusals(locality.Refusal{Cluster: keys.Home, Node: "home-2"})}),
		), refused: map[string]filter.Reason{"west": filter.RefusedLately, "home-2": filter.RefusedLately}},
	} {
		t.Run(name, test.check)
	}
}

func refusals(r locality.Refusal) []locality.Refusal {
	r.Until = now.Add(time.Minute)
	return []locality.Refusal{r}
}

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
		"a pod without claims stays at home with its namespace": {pod: pod(), change: closed, refused: remotes(filter.NotOffloaded)},
		"a pod without claims goes only to the listed clusters": {pod: pod(), change: only("east"),
			refused: map[string]filter.Reason{"west": filter.NotOpen}},
		"an unbound claim goes only to the listed clusters": {pod: pod("unbound"), change: only("east"),
			refused: map[string]filter.Reason{"west": filter.NotOpen}},
		"a list of others keeps a pod at home": {pod: pod(), change: only("north"), refused: remotes(filter.NotOpen)},
		"a claim that is not ours does not let its pod leave": {pod: pod("foreign"), change: closed,
			refused: remotes(filter.NotOffloaded)},
		"data in west does not let the pod of a closed namespace in": {pod: pod("in-west"), change: closed,
			refused: with(with(atHome(filter.DataElsewhere), "east", filter.DataElsewhere), "west", filter.NotOffloaded)},
		"nor that of one that lists others": {pod: pod("in-west"), change: only("east"),
			refused: with(with(atHome(filter.DataElsewhere), "east", filter.DataElsewhere), "west", filter.NotOpen)},
		"data at home needs no open namespace": {pod: pod("in-home"), change: closed, refused: remotes(filter.DataElsewhere)},
		"a pod of a DaemonSet stays at home":   {pod: daemon(pod()), refused: remotes(filter.DaemonPod)},
		"… with claims too":                    {pod: daemon(pod("unbound")), refused: remotes(filter.DaemonPod)},
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
	assert.Equal(t, filter.Accepted, filter.NewPlan(view, pod(), now).Judge(nodeOf(view, "new")),
		"it may be one of home, and the taint of virtual nodes holds")
}

// kube-scheduler counts a claim without volume against the driver of its virtual
// class. The extender counts the volume that home's driver will make for it.
func TestANodeTakesNoMoreVolumesThanItsDriverCanAttach(t *testing.T) {
	limit := func(node string, volumes int) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) { v.Limits.Set(node, snapshot.Limits{"disk": volumes, "other": 1}) }
	}
	// runs puts a pod on home-1 with these claims.
	runs := func(name string, claims ...string) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) {
			use := snapshot.Use{Node: "home-1"}
			for _, claim := range claims {
				use.Claims = append(use.Claims, "app/"+claim)
			}
			v.Assigned.Set("app/"+name, use)
		}
	}
	disk := snapshot.Volume{Driver: "disk", Cluster: keys.Home}
	has := func(claim string) func(*snapshot.Snapshot) { return bind(claim, snapshot.Claim{}, disk) }
	comes := func(claim string) func(*snapshot.Snapshot) {
		return func(v *snapshot.Snapshot) {
			v.ClaimStore(clock).Set("app/"+claim, &snapshot.Claim{UID: claim, ClassName: "lodestone", SelectedNode: "home-1"})
		}
	}
	full := map[string]filter.Reason{"home-1": filter.AttachLimit}
	for name, test := range map[string]row{
		"a node with room":            {pod: pod("unbound"), change: all(limit("home-1", 2), has("a"), runs("one", "a"))},
		"a node that is full":         {pod: pod("unbound"), change: all(limit("home-1", 1), has("a"), runs("one", "a")), refused: full},
		"a node that can attach none": {pod: pod("unbound"), change: limit("home-1", 0), refused: full},
		"a limit of another driver": {pod: pod("unbound"), change: all(func(v *snapshot.Snapshot) {
			v.Limits.Set("home-1", snapshot.Limits{"other": 0})
		}, has("a"), runs("one", "a"))},
		"volumes of another driver": {pod: pod("unbound"),
			change: all(limit("home-1", 1), bind("a", snapshot.Claim{}, snapshot.Volume{Driver: "other"}), runs("one", "a"))},
		"volumes of no driver": {pod: pod("unbound"), change: all(limit("home-1", 1), bind("a", snapshot.Claim{}, snapshot.Volume{}),
			runs("one", "a"))},
		"volumes in remote clusters": {pod: pod("unbound"),
			change: all(limit("home-1", 1), bind("a", snapshot.Claim{}, snapshot.Volume{Driver: keys.Driver, Cluster: "west"}), runs("one", "a"))},
		"two claims, room for one": {pod: pod("unbound", "more"), change: all(limit("home-1", 1), want("more", snapshot.Claim{})),
			refused: full},
		"a volume that pods share is one": {pod: pod("unbound"), change: all(limit("home-1", 2), has("a"), runs("one", "a"), runs("two", "a"))},
		"a pod that ended": {pod: pod("unbound"), change: all(limit("home-1", 1), has("a"), runs("one", "a"),
			func(v *snapshot.Snapshot) { v.Assigned.Delete("app/one") })},
		"a volume that is being made": {pod: pod("unbound"), change: all(limit("home-1", 1), comes("a")), refused: full},
		"… for a claim of so long a time that it counts no more": {pod: pod("unbound"),
			change: all(limit("home-1", 1), func(v *snapshot.Snapshot) {
				v.ClaimStore(func() time.Time { return now.Add(-time.Minute) }).Set("app/a",
					&snapshot.Claim{UID: "a", ClassName: "lodestone", SelectedNode: "home-1"})
			})},
		"… and was made": {pod: pod("unbound"), change: all(limit("home-1", 1), comes("a"), func(v *snapshot.Snapshot) {
			v.ClaimStore(clock).Delete("app/a")
		})},
		"the pod's own claim is under way": {pod: pod("a"), change: all(limit("home-1", 1), comes("a"))},
		"the pod's own volume is there": {pod: pod("unbound", "a"), change: all(limit("home-1", 2), has("a"), runs("one", "a")),
			refused: remotes(filter.DataElsewhere)},
		"the pod's own volume comes along": {pod: pod("unbound", "a"), change: all(limit("home-1", 1), has("a")),
			refused: merged(remotes(filter.DataElsewhere), full)},
		"a claim of a pod is not known": {pod: pod("unbound"), change: all(limit("home-1", 1), runs("one", "later"))},
		"the volume of one is not known": {pod: pod("unbound"),
			change: all(limit("home-1", 1), runs("one", "thief"), func(v *snapshot.Snapshot) {
				v.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", VolumeName: "pv"})
			})},
		"a pod whose claims are all bound": {pod: pod("b"), change: all(limit("home-1", 0), has("b")), refused: remotes(filter.DataElsewhere)},
		"a claim of a real class under way": {pod: pod("unbound"), change: all(limit("home-1", 1), func(v *snapshot.Snapshot) {
			v.ClaimStore(clock).Set("app/a", &snapshot.Claim{UID: "a", ClassName: "disk", SelectedNode: "home-1"})
		}), refused: full},
		"a class of another driver": {pod: pod("unbound"), change: all(limit("home-1", 0), func(v *snapshot.Snapshot) {
			v.Classes.Set("lodestone", class(map[string]string{keys.LocalClass: "nfs"}))
		})},
		"no class that could make the volume": {pod: pod("unbound"), change: all(limit("home-1", 0), func(v *snapshot.Snapshot) {
			v.StorageClasses().Delete("disk")
		})},
	} {
		t.Run(name, func(t *testing.T) {
			test.change = all(realClasses, test.change)
			test.check(t)
		})
	}
}

func clock() time.Time { return now }

// realClasses stores the default class "disk" of driver disk, and "nfs" of
// another driver.
func realClasses(v *snapshot.Snapshot) {
	v.StorageClasses().Set("nfs", &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, Provisioner: "nfs"})
	v.StorageClasses().Set("disk", &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "disk",
	})
}

// The drivers of a node's claims are computed once; a change counts at once.
func TestAttachedVolumesAreCountedAnewWhenPodsComeAndGo(t *testing.T) {
	view := world()
	all(realClasses, bind("a", snapshot.Claim{}, snapshot.Volume{Driver: "disk"}),
		bind("b", snapshot.Claim{}, snapshot.Volume{Driver: "disk"}))(view)
	view.Limits.Set("home-1", snapshot.Limits{"disk": 2})
	for _, step := range []struct {
		what   string
		change func()
		want   filter.Reason
	}{
		{what: "two pods with a volume each", change: func() {
			view.Assigned.Set("app/one", snapshot.Use{Node: "home-1", Claims: []string{"app/a"}})
			view.Assigned.Set("app/two", snapshot.Use{Node: "home-1", Claims: []string{"app/b"}})
		}, want: filter.AttachLimit},
		{what: "nothing changes", change: func() {}, want: filter.AttachLimit},
		{what: "one moves to another node", change: func() {
			view.Assigned.Set("app/two", snapshot.Use{Node: "home-2", Claims: []string{"app/b"}})
		}, want: filter.Accepted},
		{what: "another pod comes with a claim that is not known yet", change: func() {
			view.Assigned.Set("app/three", snapshot.Use{Node: "home-1", Claims: []string{"app/late"}})
		}, want: filter.Accepted},
		{what: "the claim becomes known", change: func() {
			bind("late", snapshot.Claim{}, snapshot.Volume{Driver: "disk"})(view)
		}, want: filter.AttachLimit},
		{what: "the node gets a larger limit", change: func() { view.Limits.Set("home-1", snapshot.Limits{"disk": 3}) }, want: filter.Accepted},
	} {
		step.change()
		if got := filter.NewPlan(view, pod("unbound"), now).Judge(nodeOf(view, "home-1")); got != step.want {
			t.Errorf("%s: got %s, want %s", step.what, got, step.want)
		}
	}
}

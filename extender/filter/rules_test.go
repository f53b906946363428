package filter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/refusal"
)

// outside is the reason of all nodes of the world but those of one cluster.
func outside(cluster string, reason filter.Reason) map[string]filter.Reason {
	refused := everywhere(reason)
	for _, node := range map[string][]string{keys.Home: {"home-1", "home-2"}, "west": {"west"}, "east": {"east"}}[cluster] {
		delete(refused, node)
	}
	return refused
}

// row is a case of the rules: a pod in a changed world, and the nodes that are
// refused to it.
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
		"the volume of a mounted claim is moved":      {pod: pod("data"), change: bind("data", moving, west), refused: everywhere(filter.VolumeMoving)},
		"a claim without volume is held as well":      {pod: pod("data"), change: want("data", moving), refused: everywhere(filter.VolumeMoving)},
		"one of several claims is enough":             {pod: pod("in-west", "data"), change: bind("data", moving, west), refused: everywhere(filter.VolumeMoving)},
		"a claim of any class is held":                {pod: pod("data"), change: want("data", snapshot.Claim{Moving: true, ClassName: "fast"}), refused: everywhere(filter.VolumeMoving)},
		"the move is over":                            {pod: pod("data"), change: bind("data", snapshot.Claim{}, west), refused: outside("west", filter.DataElsewhere)},
		"a claim that is only near does not hold":     {pod: near(pod(), "data"), change: bind("data", moving, west), indifferent: true},
		"a copy of a volume that is moved waits, too": {pod: pod("copy"), change: all(bind("data", moving, west), want("copy", snapshot.Claim{Source: "data"})), refused: everywhere(filter.VolumeMoving)},
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
		"the source is in west":                 {pod: pod("copy"), change: copyOf("in-west"), refused: outside("west", filter.SourceElsewhere)},
		"the source is at home":                 {pod: pod("copy"), change: copyOf("in-home"), refused: remotes(filter.SourceElsewhere)},
		"the source is not virtual":             {pod: pod("copy"), change: all(copyOf("foreign"), bind("foreign", snapshot.Claim{}, snapshot.Volume{})), refused: remotes(filter.SourceElsewhere)},
		"the source is labelled with a cluster": {pod: pod("copy"), change: all(copyOf("foreign"), bind("foreign", snapshot.Claim{}, snapshot.Volume{Prefers: "east"})), refused: outside("east", filter.SourceElsewhere)},
		"the source has no volume":              {pod: pod("copy"), change: copyOf("unbound"), refused: everywhere(filter.SourceNotBound)},
		"there is no such source":               {pod: pod("copy"), change: copyOf("gone"), refused: everywhere(filter.SourceNotBound)},
		"the source is that of another namespace": {pod: pod("copy"), change: all(copyOf("secret"), func(v *snapshot.Snapshot) {
			v.Claims.Set("other/secret", &snapshot.Claim{UID: "west", VolumeName: "pv-west"})
		}), refused: everywhere(filter.SourceNotBound)},
		"the source names a volume of someone else": {pod: pod("copy"), change: all(copyOf("thief"), func(v *snapshot.Snapshot) {
			v.Claims.Set("app/thief", &snapshot.Claim{UID: "thief", VolumeName: "pv-west"})
		}), refused: everywhere(filter.SourceNotBound)},
		"source and copy in one pod":                 {pod: pod("copy", "in-west"), change: copyOf("in-west"), refused: outside("west", filter.DataElsewhere)},
		"the copy beside data of another cluster":    {pod: pod("copy", "in-home"), change: copyOf("in-west"), refused: everywhere(filter.DataInSeveralClusters)},
		"copies of sources in two clusters":          {pod: pod("copy", "more"), change: all(copyOf("in-west"), want("more", snapshot.Claim{Source: "in-home"})), refused: everywhere(filter.DataInSeveralClusters)},
		"the source's cluster takes no new volumes":  {pod: pod("copy"), change: all(copyOf("in-west"), func(v *snapshot.Snapshot) { v.Clusters.Set("west", &snapshot.Cluster{}) }), refused: merged(outside("west", filter.SourceElsewhere), map[string]filter.Reason{"west": filter.ClusterNotReady})},
		"a copy that has its volume needs no source": {pod: pod("copy"), change: bind("copy", snapshot.Claim{}, snapshot.Volume{Cluster: "east"}), refused: outside("east", filter.DataElsewhere)},
		"a copy of a real class is not ours":         {pod: pod("copy"), change: want("copy", snapshot.Claim{Source: "gone", ClassName: "fast"}), indifferent: true},
	} {
		t.Run(name, test.check)
	}
}

func TestAClaimFromASnapshotGoesWhereThatIsSaidToBe(t *testing.T) {
	from := func(cluster string) func(*snapshot.Snapshot) {
		return want("copy", snapshot.Claim{FromSnapshot: true, SourceCluster: cluster})
	}
	for name, test := range map[string]row{
		"it is in west":                          {pod: pod("copy"), change: from("west"), refused: outside("west", filter.SourceElsewhere)},
		"it is at home":                          {pod: pod("copy"), change: from("home"), refused: remotes(filter.SourceElsewhere)},
		"nobody has said where it is":            {pod: pod("copy"), change: from(""), refused: everywhere(filter.SnapshotNotReady)},
		"beside data of another cluster":         {pod: pod("copy", "in-home"), change: from("west"), refused: everywhere(filter.DataInSeveralClusters)},
		"beside a copy of another cluster":       {pod: pod("copy", "more"), change: all(from("west"), want("more", snapshot.Claim{Source: "in-home"})), refused: everywhere(filter.DataInSeveralClusters)},
		"a claim of a real class is not our own": {pod: pod("copy"), change: want("copy", snapshot.Claim{FromSnapshot: true, ClassName: "fast"}), indifferent: true},
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
		"a label is a preference, not a rule":    {pod: pod("nfs"), change: bind("nfs", snapshot.Claim{}, snapshot.Volume{Prefers: "west"}), indifferent: true},
		"required, it is a rule":                 {pod: pod("nfs"), change: bind("nfs", snapshot.Claim{}, required), refused: outside("west", filter.DataElsewhere)},
		"and the pod's namespace must be open":   {pod: pod("nfs"), change: all(bind("nfs", snapshot.Claim{}, required), func(v *snapshot.Snapshot) { v.Namespaces.Set("app", nil) }), refused: merged(outside("west", filter.DataElsewhere), map[string]filter.Reason{"west": filter.NotOffloaded})},
		"beside virtual data of another cluster": {pod: pod("nfs", "in-home"), change: bind("nfs", snapshot.Claim{}, required), refused: everywhere(filter.DataInSeveralClusters)},
		"a preference gives way to data":         {pod: pod("nfs", "in-home"), change: bind("nfs", snapshot.Claim{}, snapshot.Volume{Prefers: "west"}), refused: remotes(filter.DataElsewhere)},
		"a new claim follows the rule":           {pod: pod("nfs", "unbound"), change: bind("nfs", snapshot.Claim{}, required), refused: outside("west", filter.DataElsewhere)},
	} {
		t.Run(name, test.check)
	}
	view := world()
	bind("nfs", snapshot.Claim{}, required)(view)
	assert.Equal(t, filter.NodeNotSeen, filter.NewPlan(view, pod("nfs"), now).Judge(nodeOf(view, "new")), "kube-scheduler knows nothing of the label")
}

func TestClaimsOfManyKinds(t *testing.T) {
	ephemeral := func(claim string) snapshot.Pod {
		p := pod()
		p.Volumes = []snapshot.PodVolume{{ClaimName: claim, Ephemeral: true}}
		return p
	}
	own := snapshot.Claim{OwnerUID: "pod-uid", OfPod: true}
	for name, test := range map[string]row{
		"an ephemeral claim cannot leave home": {pod: ephemeral("web-scratch"), change: want("web-scratch", own), refused: remotes(filter.EphemeralVolume)},
		"… but to clusters whose virtual node is Lodestone's": {pod: ephemeral("web-scratch"), change: all(want("web-scratch", own), func(v *snapshot.Snapshot) {
			west, _ := v.Clusters.Get("west")
			ours := *west
			ours.OwnNode = true
			v.Clusters.Set("west", &ours)
		}), refused: without(remotes(filter.EphemeralVolume), "west")},
		"… whoever mounts it":                                  {pod: pod("web-scratch"), change: want("web-scratch", snapshot.Claim{OwnerUID: "other", OfPod: true}), refused: remotes(filter.EphemeralVolume)},
		"a claim that another kind of object owns can":         {pod: pod("web-scratch"), change: want("web-scratch", snapshot.Claim{OwnerUID: "set"})},
		"an ephemeral claim of another pod does not count":     {pod: ephemeral("web-scratch"), change: want("web-scratch", snapshot.Claim{OwnerUID: "other", OfPod: true}), indifferent: true},
		"an ephemeral claim that has its volume":               {pod: ephemeral("web-scratch"), change: bind("web-scratch", own, snapshot.Volume{Cluster: "west"}), refused: outside("west", filter.DataElsewhere)},
		"a claim that several pods share keeps each of them":   {pod: snapshot.Pod{Namespace: "app", Name: "second", UID: "second", Volumes: []snapshot.PodVolume{{ClaimName: "in-west"}}}, refused: outside("west", filter.DataElsewhere)},
		"a claim of a class that is not there yet has no rule": {pod: pod("odd"), change: want("odd", snapshot.Claim{ClassName: "later"}), indifferent: true},
		"a claim without class has no rule":                    {pod: pod("odd"), change: func(v *snapshot.Snapshot) { v.Claims.Set("app/odd", &snapshot.Claim{UID: "odd"}) }, indifferent: true},
		"a Lost claim is left to kube-scheduler": {pod: pod("lost"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/lost", &snapshot.Claim{UID: "lost", ClassName: "lodestone", VolumeName: "pv-gone"})
		}, indifferent: true},
		"a Lost claim does not hide the others": {pod: pod("lost", "in-west"), change: func(v *snapshot.Snapshot) {
			v.Claims.Set("app/lost", &snapshot.Claim{UID: "lost", ClassName: "lodestone", VolumeName: "pv-gone"})
		}, refused: outside("west", filter.DataElsewhere)},
		"three claims, two of them in different clusters": {pod: pod("unbound", "in-west", "in-home"), refused: everywhere(filter.DataInSeveralClusters)},
		"refusals of two claims leave what neither refused": {pod: pod("a", "b"), change: all(
			want("a", snapshot.Claim{Refusals: refusals(refusal.Refusal{Cluster: "west"})}),
			want("b", snapshot.Claim{Refusals: refusals(refusal.Refusal{Cluster: keys.Home, Node: "home-2"})}),
		), refused: map[string]filter.Reason{"west": filter.RefusedLately, "home-2": filter.RefusedLately}},
	} {
		t.Run(name, test.check)
	}
}

func refusals(r refusal.Refusal) []refusal.Refusal {
	r.Until = now.Add(time.Minute)
	return []refusal.Refusal{r}
}

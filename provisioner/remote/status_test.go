package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// acting is the state of a home cluster that acts in a remote one.
var acting = epochState{acts: true, status: metav1.ConditionTrue, reason: "InForce", message: "acts"}

func TestConditions(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for name, test := range map[string]struct {
		verdict                      verdict
		ready, reachable, authorized metav1.ConditionStatus
		reason, says                 string
		usable                       bool
	}{
		"all is well": {verdict: verdict{checked: true},
			ready: yes, reachable: yes, authorized: yes, reason: "Ready", says: "can be made", usable: true},
		"there is no usable kubeconfig": {verdict: verdict{unconfigured: "no Secret"},
			ready: no, reachable: unknown, authorized: no, reason: "BadKubeconfig", says: "no Secret"},
		"it was not asked yet": {verdict: verdict{},
			ready: no, reachable: unknown, authorized: unknown, reason: "Checking", says: "being asked"},
		"it does not answer": {verdict: verdict{checked: true, finding: finding{unreachable: "refused"}},
			ready: no, reachable: no, authorized: unknown, reason: "NotReachable", says: "refused"},
		"rights are missing": {verdict: verdict{checked: true, finding: finding{unauthorized: "may not list"}},
			ready: no, reachable: yes, authorized: no, reason: "NotAuthorized", says: "may not list"},
		"it is the home cluster": {verdict: verdict{checked: true, unwantedReason: "PointsHome", unwanted: "itself"},
			ready: no, reachable: yes, authorized: yes, reason: "PointsHome", says: "itself"},
		"a copy of home may act there": {verdict: verdict{checked: true, leaving: "held",
			epoch: epochState{status: no, reason: "RemoteAhead", message: "later mark"}},
			ready: no, reachable: yes, authorized: yes, reason: "HomeNotInForce", says: "later mark"},
		"it is being deleted: its volumes are still served": {verdict: verdict{checked: true, leaving: "held"},
			ready: no, reachable: yes, authorized: yes, reason: "Leaving", says: "held", usable: true},
		"its caches fill": {verdict: verdict{checked: true, unsynced: true},
			ready: no, reachable: yes, authorized: yes, reason: "Syncing", says: "being read"},
		"it is being deleted and its caches fill": {verdict: verdict{checked: true, unsynced: true, leaving: "held"},
			ready: no, reachable: yes, authorized: yes, reason: "Leaving", says: "held"},
		"the first obstacle is told": {
			verdict: verdict{checked: true, finding: finding{unreachable: "refused"}, unwanted: "itself", unwantedReason: "PointsHome",
				leaving: "held", unsynced: true},
			ready: no, reachable: no, authorized: unknown, reason: "NotReachable", says: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.verdict.epoch.status == "" {
				test.verdict.epoch = acting
			}
			conditions := test.verdict.conditions(7)
			for kind, want := range map[string]metav1.ConditionStatus{
				v1alpha1.Ready: test.ready, v1alpha1.Reachable: test.reachable, v1alpha1.Authorized: test.authorized,
				v1alpha1.HomeInForce: test.verdict.epoch.status,
			} {
				got := meta.FindStatusCondition(conditions, kind)
				require.NotNil(t, got, kind)
				assert.Equal(t, want, got.Status, kind)
				assert.NotEmpty(t, got.Reason, kind)
				assert.NotEmpty(t, got.Message, kind)
				assert.Equal(t, int64(7), got.ObservedGeneration, kind)
			}
			ready := meta.FindStatusCondition(conditions, v1alpha1.Ready)
			assert.Equal(t, test.reason, ready.Reason)
			assert.Contains(t, ready.Message, test.says)
			usable, _, _ := test.verdict.usable()
			assert.Equal(t, test.usable, usable)
		})
	}
}

func TestAClusterIsStartingUntilItIsKnownWhetherItCanBeUsed(t *testing.T) {
	for _, test := range []struct {
		name    string
		verdict verdict
		want    bool
	}{
		{name: "it was not asked yet", want: true},
		{name: "home watches whether a copy of it acts there", verdict: verdict{checked: true, epoch: takingOver("west")}, want: true},
		{name: "home is in doubt", verdict: verdict{checked: true, epoch: epochState{status: metav1.ConditionFalse, reason: "TwoHolders"}}},
		{name: "its caches fill", verdict: verdict{checked: true, unsynced: true, epoch: epochState{acts: true}}, want: true},
		{name: "all is well", verdict: verdict{checked: true, epoch: epochState{acts: true}}},
		{name: "there is no usable kubeconfig", verdict: verdict{unconfigured: "no Secret"}},
		{name: "it does not answer", verdict: verdict{checked: true, unsynced: true, finding: finding{unreachable: "refused"}}},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, (&Cluster{verdict: test.verdict}).Starting()) })
	}
}

func TestAStatusTellsWhichSpecItIsOf(t *testing.T) {
	c := &Cluster{id: "west", clusters: &Clusters{contents: &contents{}}, verdict: verdict{checked: true, unsynced: true}}
	seen := remote("west", "w", 0)
	for generation := range int64(3) {
		seen.Generation = generation + 1
		status := c.status(seen, 2)
		assert.Equal(t, seen.Generation, status.ObservedGeneration)
		assert.Equal(t, 2, status.Volumes)
		seen.Status = *status
		assert.Equal(t, *status, *c.status(seen, 2), "nothing is to be written again")
	}
}

func remote(name, uid string, minute int) *v1alpha1.RemoteCluster {
	return &v1alpha1.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC))},
		Status:     v1alpha1.RemoteClusterStatus{ClusterUID: uid},
	}
}

// made returns a RemoteCluster without status that peer made for a cluster.
func made(uid string) *v1alpha1.RemoteCluster {
	object := remote("west", "", 1)
	object.Annotations = map[string]string{keys.ClusterUID: uid}
	return object
}

func TestUnwanted(t *testing.T) {
	for name, test := range map[string]struct {
		self    *v1alpha1.RemoteCluster
		others  []*v1alpha1.RemoteCluster
		leadsTo string
		volumes int
		carried []string
		want    string
		says    string
	}{
		"a cluster of its own":                 {self: remote("west", "", 1), leadsTo: "uid-west"},
		"a cluster seen before":                {self: remote("west", "uid-west", 1), leadsTo: "uid-west", volumes: 3},
		"a cluster that did not say who it is": {self: remote("west", "uid-west", 1), volumes: 3},
		"the home cluster": {self: remote("west", "", 1), leadsTo: "uid-home", want: "PointsHome",
			says: "home cluster"},
		"the home cluster, though it holds volumes": {self: remote("west", "uid-west", 1), leadsTo: "uid-home", volumes: 3, want: "PointsHome",
			says: "home cluster"},
		"another cluster while it holds volumes": {self: remote("west", "uid-west", 1), leadsTo: "uid-east", volumes: 3,
			want: "OtherCluster", says: "3 volumes"},
		"made anew, and another cluster than its volumes carry": {self: remote("west", "", 1), leadsTo: "uid-east", volumes: 3,
			carried: []string{"uid-west"}, want: "OtherCluster", says: "3 volumes"},
		"made anew, and the cluster that its volumes carry": {self: remote("west", "", 1), leadsTo: "uid-west", volumes: 3,
			carried: []string{"uid-west"}},
		"another cluster than peer made it for": {self: made("uid-west"), leadsTo: "uid-east", want: "OtherCluster", says: "peer"},
		"the cluster that peer made it for":     {self: made("uid-west"), leadsTo: "uid-west"},
		"another cluster once it holds none":    {self: remote("west", "uid-west", 1), leadsTo: "uid-east"},
		"an older object stands for it": {self: remote("west", "", 2),
			others: []*v1alpha1.RemoteCluster{remote("east", "uid-x", 1)}, leadsTo: "uid-x", want: "Duplicate", says: `"east"`},
		"a younger object stands for it too": {self: remote("west", "", 1),
			others: []*v1alpha1.RemoteCluster{remote("east", "uid-x", 2)}, leadsTo: "uid-x"},
		"of two made in one second the first by name": {self: remote("west", "", 1),
			others: []*v1alpha1.RemoteCluster{remote("east", "uid-x", 1)}, leadsTo: "uid-x", want: "Duplicate", says: `"east"`},
		"… and only that one": {self: remote("east", "", 1), others: []*v1alpha1.RemoteCluster{remote("west", "uid-x", 1)},
			leadsTo: "uid-x"},
		"an older object for another cluster": {self: remote("west", "", 2), others: []*v1alpha1.RemoteCluster{remote("east", "uid-y", 1)},
			leadsTo: "uid-x"},
		"an older object that leads nowhere yet": {self: remote("west", "", 2), others: []*v1alpha1.RemoteCluster{remote("east", "", 1)},
			leadsTo: "uid-x"},
		"itself in the list": {self: remote("west", "uid-x", 2), others: []*v1alpha1.RemoteCluster{remote("west", "uid-x", 1)}, leadsTo: "uid-x"},
	} {
		t.Run(name, func(t *testing.T) {
			reason, message := unwanted(test.self, test.leadsTo, "uid-home", test.others, holdings{count: test.volumes, uids: test.carried})
			assert.Equal(t, test.want, reason)
			assert.Contains(t, message, test.says)
			assert.Equal(t, test.want == "", message == "", "a reason has a sentence")
		})
	}
}

// contents are the same for every cluster.
type contents struct {
	Contents
	volumes, snapshots int
	known              bool
}

func (c *contents) Volumes(string) int { return c.volumes }

func (*contents) Health(string) *v1alpha1.VolumeHealth { return nil }

func (*contents) ClusterUIDs(string) []string { return nil }

func (c *contents) Snapshots(string) (int, bool) { return c.snapshots, c.known }

func TestSnapshotsKeepTheirCluster(t *testing.T) {
	has := &contents{volumes: 2, known: true}
	r := &Clusters{contents: has}
	assert.Empty(t, r.snapshotsInUse("west"))
	assert.Equal(t, 2, r.holdings("west").count)
	has.snapshots = 3
	assert.Contains(t, r.snapshotsInUse("west"), "3 VolumeSnapshots")
	assert.Equal(t, 5, r.holdings("west").count)
	has.snapshots, has.known = 0, false
	assert.Contains(t, r.snapshotsInUse("west"), "not known yet")
	has.known = true
	assert.Empty(t, r.snapshotsInUse("west"))
	assert.Equal(t, 2, r.holdings("west").count)
}

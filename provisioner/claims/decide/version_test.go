package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// versionIn makes the claim one from version v2 of VolumeReplica shop/copy, whose versions are in a cluster, of the driver of all
// classes. The claim names that version.
func versionIn(place string, alter ...func(*steps.Version)) change {
	return func(o *steps.Observation) {
		o.Claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeReplica", Name: "copy"}
		o.Claim.Spec.Resources.Requests = gibibytes("1Gi")
		annotated(keys.ReplicaVersion, "v2")(o)
		namespace := "shop"
		if place == keys.Home {
			namespace = "lodestone-storage"
		}
		v := &steps.Version{
			Replica: &record.Record{Namespace: "shop", Name: "copy",
				Part: record.Part{Head: backing.Ref{Cluster: place, Namespace: namespace, Name: "head"}}},
			Sealed: &record.Content{Name: "v2", UID: "s2", Volume: volumesnapshot.Volume{Driver: driver}},
			Place:  namespace,
			There: &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "v2", UID: "s2"},
				Status: volumesnapshot.SnapshotStatus{RestoreSize: ptr.To(resource.MustParse("1Gi"))}},
		}
		for _, a := range alter {
			a(v)
		}
		o.Source = &steps.Source{Version: v}
		for _, id := range []string{keys.Home, "west", "east"} {
			driven(id, driver)(o)
		}
	}
}

func fromVersion(b *steps.Backing) {
	b.Claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(volumesnapshot.Group), Kind: volumesnapshot.Kind, Name: "v2"}
}

func unnamed(o *steps.Observation) { delete(o.Claim.Annotations, keys.ReplicaVersion) }

func TestNextOfAClaimFromAVersion(t *testing.T) {
	const idle, waits, gone = "Idle", "VersionNotReady", "VersionGone"
	west := func(alter ...func(*steps.Version)) []change {
		return []change{on("west-1"), annotated(keys.Routed, "west"), versionIn("west", alter...)}
	}
	with := func(given []change, more ...change) []change { return append(given, more...) }
	bad := func(v *steps.Version) { v.There.UID = "another" }
	rows := map[string]row{
		"at home the twin is made without a stand-in": {given: []change{on("node-1"), versionIn(keys.Home)}, verb: "Create", cluster: keys.Home},
		"a shadow is made from the version there":     {given: west(), verb: "Create", cluster: "west"},
		"… and published once it is admitted":         {given: with(west(), have("west", fromVersion)), verb: "Publish", cluster: keys.Home},
		"… though the version went once it has its volume": {given: with(west(bad), have("west", fromVersion, made)), verb: "Publish",
			cluster: keys.Home},
		"a version elsewhere sends the claim away": {given: []change{on("node-1"), versionIn("west")}, verb: "Reschedule", cluster: keys.Home,
			tell: "SourceElsewhere", refuse: "home/ SourceElsewhere"},
		"a class of another driver is refused": {
			given: west(func(v *steps.Version) { v.Sealed.Volume.Driver = "other.csi.dev" }), verb: "Reschedule", cluster: keys.Home,
			tell: "SourceOfAnotherDriver", refuse: "west/ SourceOfAnotherDriver"},
		"a shadow whose source was dropped goes, and the place is refused": {given: with(west(), have("west")), verb: "Remove", cluster: "west",
			tell: "SourceIgnored", refuse: "west/ SourceIgnored"},
		"it is said before a node is chosen where to go": {given: []change{versionIn("west")}, verb: "Locate", cluster: keys.Home},
		"… and which version it gets": {given: []change{versionIn("west"), annotated(keys.SourceCluster, "west"), unnamed}, verb: "Locate",
			cluster: keys.Home},
		"… also if a node was chosen already": {given: with(west(), unnamed), verb: "Locate", cluster: keys.Home},
		"… once, and it is looked at again": {given: []change{versionIn("west"), annotated(keys.SourceCluster, "west")}, verb: idle,
			after: true},
		"… and taken back if it is wrong": {given: []change{versionIn("west", bad), annotated(keys.SourceCluster, "west")}, verb: "Locate",
			cluster: keys.Home, tell: gone},
	}
	for name, state := range map[string]struct {
		alter func(*steps.Version)
		tell  string
	}{
		"is of a replica that is not there": {func(v *steps.Version) { *v = steps.Version{} }, waits},
		"is not sealed, or was trimmed":     {func(v *steps.Version) { v.Sealed = nil }, gone},
		"is in a cluster that is away":      {func(v *steps.Version) { v.Away = "it does not answer" }, waits},
		"is not seen there":                 {func(v *steps.Version) { v.There = nil }, waits},
		"is another there":                  {bad, gone},
		"is being deleted there":            {func(v *steps.Version) { v.There.DeletionTimestamp = ending }, gone},
		"is in the place of another":        {func(v *steps.Version) { v.Place = "bank" }, gone},
		"is larger": {func(v *steps.Version) { v.There.Status.RestoreSize = ptr.To(resource.MustParse("2Gi")) },
			"InvalidClaim"},
		"is of several claims": {func(v *steps.Version) { v.Replica.Others = []record.Part{{Claim: "wal"}} }, gone},
	} {
		rows["nothing is made while the version "+name] = row{given: west(state.alter), verb: idle, tell: state.tell, after: true}
	}
	check(t, rows)
	step := decide.Next(observe(versionIn("west", func(v *steps.Version) { v.Sealed = nil }), unnamed))
	assert.Equal(t, waits, step.Tell.Reason, "nothing is sealed yet")
	assert.Equal(t, steps.RecordSource{In: "west", Version: "v2"}, as[steps.RecordSource](decide.Next(observe(versionIn("west"), unnamed))))
	assert.Equal(t, steps.RecordSource{In: "west"}, as[steps.RecordSource](decide.Next(observe(versionIn("west")))), "what it names stays")
	made := routeOf(decide.Next(observe(on("node-1"), versionIn(keys.Home))))
	assert.Equal(t, types.NamespacedName{Namespace: "lodestone-storage", Name: "v2"}, made.Source)
	assert.True(t, made.FromSnapshot)
}

func TestAClaimOfSeveralSaysOfWhichAndWhen(t *testing.T) {
	group := func(v *steps.Version) {
		v.Replica.Claim, v.Replica.Others = "data", []record.Part{{Claim: "wal"}}
	}
	said := func(given ...change) string {
		step := decide.Next(observe(append([]change{versionIn("west", group)}, given...)...))
		if step.Tell == nil {
			return ""
		}
		return step.Tell.Text
	}
	assert.Contains(t, said(), "is of claims data, wal: say in annotation lodestone.dev/replica-claim of which of them")
	assert.Contains(t, said(annotated(keys.ReplicaClaim, "log")), "say in annotation lodestone.dev/replica-claim")
	assert.Contains(t, said(annotated(keys.ReplicaClaim, "wal"), unnamed), "names the same version, so that all are of one moment")
	assert.Empty(t, said(annotated(keys.ReplicaClaim, "wal")))
	r := &record.Record{Part: record.Part{Claim: "data"}}
	claim := &corev1.PersistentVolumeClaim{}
	assert.Equal(t, 0, decide.PartOf(r, claim))
	r.Others = []record.Part{{Claim: "wal"}}
	assert.Equal(t, -1, decide.PartOf(r, claim))
	claim.Annotations = map[string]string{keys.ReplicaClaim: "wal"}
	assert.Equal(t, 1, decide.PartOf(r, claim))
}

func TestAClaimThatWaitsForAVersionForLongIsLookedAtSeldom(t *testing.T) {
	for age, after := range map[time.Duration]time.Duration{0: time.Second, 30 * time.Second: 3 * time.Second, time.Hour: steps.Slow} {
		step := decide.Next(observe(versionIn("west"), annotated(keys.SourceCluster, "west"), func(o *steps.Observation) {
			o.Claim.CreationTimestamp = metav1.NewTime(o.Now.Add(-age))
		}))
		assert.Equal(t, after, step.After, age)
	}
}

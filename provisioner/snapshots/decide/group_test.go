package decide_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/snapshots/decide"
)

type groupChange func(*decide.GroupObservation)

// observeGroup returns the observation of a content whose snapshot of shop/a and shop/b in west is not
// taken yet, with changes.
func observeGroup(changes ...groupChange) decide.GroupObservation {
	o := decide.GroupObservation{
		HomeID: "h1", State: decide.State{Known: true, Usable: true, Seen: true}, Cluster: "west", Namespace: "shop",
		Content: &volumesnapshot.GroupContent{
			ObjectMeta: metav1.ObjectMeta{Name: "content", UID: "g1", Finalizers: []string{volumesnapshot.GroupContentFinalizer, "other"}},
			Spec: volumesnapshot.GroupContentSpec{
				Snapshot:       corev1.ObjectReference{Namespace: "shop", Name: "friday", UID: "f1"},
				DeletionPolicy: volumesnapshot.Delete, Driver: keys.Driver,
			},
		},
	}
	for _, name := range []string{"a", "b"} {
		one := observe()
		ref := backing.Ref{Cluster: "west", Namespace: "shop", Name: name, UID: types.UID("b-" + name)}
		one.Virtual.Annotations[keys.Backing], one.Shadow.UID = ref.String(), ref.UID
		o.Content.Spec.Source.VolumeHandles = append(o.Content.Spec.Source.VolumeHandles, ref.String())
		o.Members = append(o.Members, decide.GroupMember{Ref: ref, Virtual: one.Virtual, Shadow: one.Shadow, Real: one.Real})
	}
	for _, c := range changes {
		c(&o)
	}
	return o
}

func groupTaken(o *decide.GroupObservation) {
	o.There = decide.WantedGroup(*o, volumesnapshot.GroupVersions[0], "")
	o.There.UID = "s1"
}

func groupMarked(o *decide.GroupObservation) {
	groupTaken(o)
	delete(o.There.Annotations, keys.Unpublished)
}

func groupReady(o *decide.GroupObservation) {
	groupMarked(o)
	o.There.Status = volumesnapshot.GroupSnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: &now}
	for i := range o.Members {
		o.Members[i].Taken = []*volumesnapshot.Snapshot{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-" + o.Members[i].Ref.Name,
				UID: types.UID("m-" + o.Members[i].Ref.Name)},
			Status: volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: &now,
				RestoreSize: ptr.To(resource.MustParse("1Gi"))},
		}}
	}
}

func groupReported(o *decide.GroupObservation) {
	groupReady(o)
	o.Content.Status = decide.NextOfGroup(*o).Status
}

func groupDeleted(o *decide.GroupObservation) {
	o.Content.DeletionTimestamp = &now
	o.Content.Annotations = map[string]string{volumesnapshot.GroupBeingDeleted: "yes"}
}

func TestNextOfGroup(t *testing.T) {
	away := func(o *decide.GroupObservation) { o.Usable, o.Message = false, "it does not answer" }
	gone := func(o *decide.GroupObservation) { o.There = nil }
	absent := func(o *decide.GroupObservation) {
		o.Seen, o.Absent, o.Problem = false, true, "it has no VolumeGroupSnapshots: install them"
	}
	handle := func(handle string) groupChange {
		return func(o *decide.GroupObservation) { o.Content.Spec.Source.VolumeHandles[1] = handle }
	}
	second := func(alter func(*decide.GroupMember)) groupChange {
		return func(o *decide.GroupObservation) { alter(&o.Members[1]) }
	}
	for name, test := range map[string]struct {
		given []groupChange
		verb  decide.Verb
		says  string // error in the status
		proof bool
		taken bool
	}{
		"a snapshot is taken":                       {verb: decide.Take},
		"one that was taken is marked":              {given: []groupChange{groupTaken}, verb: decide.Mark},
		"… and reported, without what is not ready": {given: []groupChange{groupMarked}, verb: decide.Report},
		"… and all of it when it is ready":          {given: []groupChange{groupReady}, verb: decide.Report, taken: true},
		"… and left alone then":                     {given: []groupChange{groupReported}, verb: decide.Idle},
		"it outlives the absence of its cluster":    {given: []groupChange{groupReported, away}, verb: decide.Idle},
		"it is not taken a second time": {given: []groupChange{groupReported, gone}, verb: decide.Report,
			says: "the data is gone"},
		"another is not taken for it": {given: []groupChange{groupReported, func(o *decide.GroupObservation) { o.There.UID = "later" }},
			verb: decide.Report, says: "the data is gone"},
		"one of that name of somebody else": {given: []groupChange{groupTaken, func(o *decide.GroupObservation) {
			o.There.Labels[keys.ContentUID] = "g0"
		}}, verb: decide.Report, says: "another's"},
		"volumes of two remote clusters": {given: []groupChange{handle("east/shop/b/b-b")}, verb: decide.Report,
			says: "several clusters, east, west"},
		"volumes of two namespaces": {given: []groupChange{handle("west/shop2/b/b-b")}, verb: decide.Report, says: "several namespaces"},
		"a volume that is none":     {given: []groupChange{handle("nonsense")}, verb: decide.Report, says: "names nothing"},
		"a volume of home":          {given: []groupChange{handle("home/shop/b/b-b")}, verb: decide.Report, says: "names nothing"},
		"snapshots that were there": {given: []groupChange{existing}, verb: decide.Report, says: "make a VolumeSnapshotContent of each"},
		"a cluster that has none":   {given: []groupChange{absent}, verb: decide.Report, says: "cluster west cannot take it: it has no"},
		"a cluster that is away":    {given: []groupChange{away}, verb: decide.Report, says: "does not answer"},
		"a volume of another claim's namespace": {given: []groupChange{second(func(m *decide.GroupMember) {
			m.Virtual.Spec.ClaimRef.Namespace = "bank"
		})}, verb: decide.Report, says: `namespace "shop"`},
		"a real claim that is gone": {given: []groupChange{second(func(m *decide.GroupMember) { m.Shadow = nil })}, verb: decide.Report,
			says: "gone"},
		"a real claim that is another": {given: []groupChange{second(func(m *decide.GroupMember) { m.Shadow.UID = "b9" })},
			verb: decide.Report, says: "PersistentVolume pvc-1 names"},
		"a real claim without a volume": {given: []groupChange{second(func(m *decide.GroupMember) { m.Real = nil })}, verb: decide.Report,
			says: "no volume yet"},
		"a volume without a driver": {given: []groupChange{second(func(m *decide.GroupMember) { m.Real.Spec.CSI = nil })},
			verb: decide.Report, says: "no CSI driver"},
		"volumes of two drivers": {given: []groupChange{second(func(m *decide.GroupMember) { m.Real.Spec.CSI.Driver = "other.csi.dev" })},
			verb: decide.Report, says: "several CSI drivers"},
		"a volume that was left out": {given: []groupChange{groupReady, second(func(m *decide.GroupMember) { m.Taken = nil })},
			verb: decide.Report, says: "without a snapshot of real claim shop/b"},
		"a member that somebody forged": {given: []groupChange{groupReady, second(func(m *decide.GroupMember) {
			m.Taken = append(m.Taken, m.Taken[0])
		})}, verb: decide.Report, says: "2 VolumeSnapshots say"},
		"a member that is not ready": {given: []groupChange{groupReady, second(func(m *decide.GroupMember) {
			m.Taken[0].Status.ReadyToUse = nil
		})}, verb: decide.Report, says: "waiting until VolumeSnapshot shop/snapshot-b"},

		"one that goes is deleted":            {given: []groupChange{groupReported, groupDeleted}, verb: decide.Delete},
		"… but not if it is to be kept":       {given: []groupChange{groupReported, groupDeleted, groupKept}, verb: decide.Release},
		"… nor while a claim is made from it": {given: []groupChange{groupReported, groupDeleted, groupUsed}, verb: decide.Idle},
		"… nor while its cluster is away":     {given: []groupChange{groupReported, groupDeleted, away}, verb: decide.Idle},
		"… and nobody else's is": {given: []groupChange{groupTaken, groupDeleted, groupOther}, verb: decide.Release,
			proof: true},
		"one that is gone is let go": {given: []groupChange{groupReported, groupDeleted, gone}, verb: decide.Release,
			proof: true},
		"one that could never be taken is let go": {given: []groupChange{groupDeleted, absent}, verb: decide.Release, proof: true},
		"one that was taken is not, without an answer": {given: []groupChange{groupReported, groupDeleted, absent},
			verb: decide.Idle},
		"one that the user did not delete stays": {given: []groupChange{groupReported, groupDeleted, func(o *decide.GroupObservation) {
			o.Content.Annotations = nil
		}}, verb: decide.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			o := observeGroup(test.given...)
			if _, why := decide.Place(o.Content); why != "" {
				o.Cluster, o.Namespace = "", ""
			}
			step := decide.NextOfGroup(o)
			require.Equal(t, test.verb, step.Verb, "%+v", step)
			assert.Equal(t, test.proof, step.Gone)
			assert.Equal(t, test.taken, step.Taken)
			if test.says != "" {
				require.NotNil(t, step.Status.Error)
				assert.Contains(t, *step.Status.Error.Message, test.says)
				assert.False(t, *step.Status.ReadyToUse)
			}
		})
	}
}

func existing(o *decide.GroupObservation) {
	o.Content.Spec.Source = volumesnapshot.GroupContentSource{Handles: &volumesnapshot.GroupHandles{Group: "west/shop/x/y"}}
}
func groupKept(o *decide.GroupObservation)  { o.Content.Spec.DeletionPolicy = volumesnapshot.Retain }
func groupUsed(o *decide.GroupObservation)  { o.Members[0].Waiting = "restored" }
func groupOther(o *decide.GroupObservation) { o.There.Labels[keys.HomeID] = "h2" }

func TestEachVolumeOfAGroupHasTheSnapshotOfItsOwnClaim(t *testing.T) {
	o := observeGroup(groupReady)
	step := decide.NextOfGroup(o)
	assert.Equal(t, "west/shop/groupsnapshot-g1/s1", *step.Status.Handle)
	require.Len(t, step.Status.Members, 2)
	for i, name := range []string{"a", "b"} {
		taken := step.Status.Members[i]
		assert.Equal(t, o.Content.Spec.Source.VolumeHandles[i], taken.VolumeHandle)
		assert.Equal(t, "west/shop/snapshot-"+name+"/m-"+name, taken.SnapshotHandle)
		assert.Equal(t, int64(1<<30), *taken.RestoreSize)
		assert.Equal(t, now.UnixNano(), *taken.CreationTime)
	}
}

// TestASnapshotTakenWithOthersIsNeitherTakenNorDeletedByItself is about the contents that the snapshot
// controller makes for the members of a group.
func TestASnapshotTakenWithOthersIsNeitherTakenNorDeletedByItself(t *testing.T) {
	of := func(changes ...change) decide.Observation {
		o := observe()
		o.Content.Annotations = map[string]string{volumesnapshot.MemberOf: "west/shop/groupsnapshot-g1/s1"}
		for _, c := range changes {
			c(&o)
		}
		return o
	}
	told := func(o *decide.Observation) {
		o.Ref = backing.Ref{Cluster: "west", Namespace: "shop", Name: "snapshot-a", UID: "m-a"}
		o.Content.Status.SnapshotHandle = ptr.To(o.Ref.String())
		o.There = &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snapshot-a", UID: "m-a"},
			Status: volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true)}}
	}
	assert.Equal(t, decide.Idle, decide.Next(of()).Verb, "which one it is is not written yet")
	step := decide.Next(of(told))
	assert.Equal(t, decide.Report, step.Verb)
	assert.True(t, *step.Status.ReadyToUse)
	assert.Equal(t, "west/shop/snapshot-a/m-a", *step.Status.SnapshotHandle)
	step = decide.Next(of(told, func(o *decide.Observation) { o.There = nil }))
	assert.Contains(t, *step.Status.Error.Message, "the data is gone")
	going := of(told)
	going.Content.DeletionTimestamp = &now
	assert.Equal(t, decide.Idle, decide.Next(going).Verb, "nobody has deleted its snapshot")
	going.Content.Annotations[volumesnapshot.BeingDeleted] = "yes"
	step = decide.Next(going)
	assert.Equal(t, decide.Release, step.Verb)
	assert.False(t, step.Gone, "it goes with its group")
}

// TestAKillAtEachStepLeavesOneGroupAndThenNone stops before and after each step of the life of a
// snapshot of several volumes in turn, also in the middle of those that are several requests.
func TestAKillAtEachStepLeavesOneGroupAndThenNone(t *testing.T) {
	// Take, Mark, Report, Report when it is ready; Delete, Release.
	const steps = 6
	for failAt := range steps + 1 {
		for _, done := range []string{"nothing", "the labels", "all"} {
			t.Run(fmt.Sprintf("step %d, %s done", failAt, done), func(t *testing.T) {
				o, made, count, labelled := observeGroup(), 0, 0, false
				work := func() {
					for idle := 0; idle < 2; {
						step := decide.NextOfGroup(o)
						if step.Verb == decide.Idle {
							idle++
							continue
						}
						killed := count == failAt
						count++
						require.Less(t, count, 4*steps, "it does not come to rest")
						if killed && done == "nothing" {
							continue
						}
						switch {
						case step.Verb == decide.Take:
							labelled = true
						case step.Verb == decide.Report && step.Taken, step.Verb == decide.Release:
							labelled = false
						}
						if killed && done == "the labels" {
							continue
						}
						switch step.Verb {
						case decide.Take:
							if o.There == nil {
								made++
								groupTaken(&o)
							}
						case decide.Mark:
							delete(o.There.Annotations, keys.Unpublished)
						case decide.Report:
							o.Content.Status = step.Status
							uid := o.There.UID
							groupReady(&o)
							o.There.UID = uid
						case decide.Delete:
							o.There = nil
						case decide.Release:
							o.Content.Finalizers = nil
						case decide.Idle:
						}
					}
				}
				work()
				require.NotNil(t, o.There)
				assert.Equal(t, 1, made)
				assert.True(t, *o.Content.Status.ReadyToUse)
				assert.Len(t, o.Content.Status.Members, 2)
				assert.False(t, labelled)
				groupDeleted(&o)
				work()
				assert.Nil(t, o.There)
				assert.Empty(t, o.Content.Finalizers)
			})
		}
	}
}

func TestClaimsOfSeveralPlacesAreToldApart(t *testing.T) {
	claim := func(name, volume, app string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	volumes := map[string]*corev1.PersistentVolume{"plain": {}}
	for _, place := range []string{"home", "west", "east"} {
		volumes[place] = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			keys.Backing: place + "/shop/data/b1"}}}
	}
	for name, row := range map[string]struct {
		claims []*corev1.PersistentVolumeClaim
		says   string
	}{
		"none":                    {},
		"of one cluster":          {claims: []*corev1.PersistentVolumeClaim{claim("a", "west", "db"), claim("b", "west", "db")}},
		"at home, virtual or not": {claims: []*corev1.PersistentVolumeClaim{claim("a", "home", "db"), claim("b", "plain", "db")}},
		"of two remote clusters": {claims: []*corev1.PersistentVolumeClaim{claim("a", "west", "db"), claim("b", "east", "db"),
			claim("c", "east", "db")}, says: "cluster east of b and 1 more, cluster west of a,"},
		"one that is not virtual beside one in a remote cluster": {
			claims: []*corev1.PersistentVolumeClaim{claim("a", "plain", "db"), claim("b", "west", "db")},
			says:   "the home cluster of a, cluster west of b,"},
		"one that is not selected": {claims: []*corev1.PersistentVolumeClaim{claim("a", "home", "web"), claim("b", "west", "db")}},
		"one without a volume":     {claims: []*corev1.PersistentVolumeClaim{claim("a", "", "db"), claim("b", "west", "db")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &volumesnapshot.GroupSnapshot{Spec: volumesnapshot.GroupSnapshotSpec{Source: volumesnapshot.GroupSnapshotSource{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}
			says := decide.InSeveralPlaces(s, row.claims, func(name string) *corev1.PersistentVolume { return volumes[name] })
			if row.says == "" {
				assert.Empty(t, says)
			} else {
				assert.Contains(t, says, row.says)
			}
		})
	}
}

package decide_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
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

type change func(*decide.Observation)

var now = metav1.Now()

// observe returns the observation of a content whose snapshot of shop/data in west is not
// taken yet, with changes.
func observe(changes ...change) decide.Observation {
	o := decide.Observation{
		HomeID: "h1", State: decide.State{Known: true, Usable: true, Seen: true},
		Content: &volumesnapshot.Content{
			ObjectMeta: metav1.ObjectMeta{Name: "content", UID: "c1", Finalizers: []string{volumesnapshot.ContentFinalizer, "other"}},
			Spec: volumesnapshot.ContentSpec{
				Snapshot: corev1.ObjectReference{Namespace: "shop", Name: "friday", UID: "f1"}, DeletionPolicy: volumesnapshot.Delete,
				Driver: keys.Driver,
				Source: volumesnapshot.ContentSource{VolumeHandle: ptr.To("west/shop/data/b1")},
			},
		},
		Ref: backing.Ref{Cluster: "west", Namespace: "shop", Name: "data", UID: "b1"},
		Virtual: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{keys.Backing: "west/shop/data/b1"}},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop"}},
		},
		Shadow: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "b1"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
		Real: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.dev"}}}},
	}
	for _, c := range changes {
		c(&o)
	}
	return o
}

func taken(o *decide.Observation) {
	o.There = decide.Wanted(*o, "")
	o.There.UID = "s1"
}

func marked(o *decide.Observation) { taken(o); delete(o.There.Annotations, keys.Unpublished) }

func ready(o *decide.Observation) {
	marked(o)
	o.There.Status = volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: &now,
		RestoreSize: ptr.To(resource.MustParse("1Gi"))}
}

func reported(o *decide.Observation) { ready(o); o.Content.Status = decide.Next(*o).Status }

func given(o *decide.Observation) {
	o.Ref = backing.Ref{Cluster: "west", Namespace: "shop", Name: "old", UID: "s0"}
	o.Content.Spec.Source = volumesnapshot.ContentSource{SnapshotHandle: ptr.To(o.Ref.String())}
	o.Virtual, o.Shadow, o.Real = nil, nil, nil
	o.There = &volumesnapshot.Snapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", UID: "s0"},
		Status: volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true)}}
}

func deleted(o *decide.Observation) {
	o.Content.DeletionTimestamp = &now
	o.Content.Annotations = map[string]string{volumesnapshot.BeingDeleted: "yes"}
}

func unasked(o *decide.Observation)  { deleted(o); o.Content.Annotations = nil }
func retained(o *decide.Observation) { o.Content.Spec.DeletionPolicy = volumesnapshot.Retain }
func away(o *decide.Observation)     { o.Usable, o.Message = false, "it does not answer" }
func unknown(o *decide.Observation)  { o.Known = false }
func unseen(o *decide.Observation)   { o.Seen, o.There = false, nil }
func gone(o *decide.Observation)     { o.There = nil }
func heal(o *decide.Observation, uid types.UID) {
	o.Virtual.Annotations[keys.Backing], o.Shadow.UID = "west/shop/data/"+string(uid), uid
}
func healed(o *decide.Observation) { heal(o, "b2") }
func source(alter func(*decide.Observation)) change {
	return func(o *decide.Observation) { alter(o) }
}

func TestNext(t *testing.T) {
	for name, test := range map[string]struct {
		given []change
		verb  decide.Verb
		says  string // error in the status
		proof bool
	}{
		"a snapshot is taken":          {verb: decide.Take},
		"one that was taken is marked": {given: []change{taken}, verb: decide.Mark},
		"… and reported":               {given: []change{marked}, verb: decide.Report},
		"… and again when it is ready": {given: []change{ready}, verb: decide.Report},
		"… and left alone then":        {given: []change{reported}, verb: decide.Idle},
		"it outlives its volume": {given: []change{reported, source(func(o *decide.Observation) {
			o.Virtual, o.Shadow, o.Real = nil, nil, nil
		})}, verb: decide.Idle},
		"… and the absence of its cluster": {given: []change{reported, away}, verb: decide.Idle},
		"it is not taken a second time":    {given: []change{reported, gone}, verb: decide.Report, says: "the data is gone"},
		"… nor is another taken for it": {given: []change{reported, source(func(o *decide.Observation) { o.There.UID = "later" })},
			verb: decide.Report, says: "the data is gone"},
		"one that is being deleted is no more": {given: []change{reported, source(func(o *decide.Observation) {
			o.There.DeletionTimestamp = &now
		})}, verb: decide.Report},
		"one of that name of somebody else": {given: []change{taken, source(func(o *decide.Observation) {
			o.There.Labels[keys.ContentUID] = "c0"
		})}, verb: decide.Report, says: "another's"},
		"a volume that is none": {given: []change{source(func(o *decide.Observation) { o.Ref = backing.Ref{} })},
			verb: decide.Report, says: "names nothing"},
		"a volume that is not known": {given: []change{source(func(o *decide.Observation) { o.Virtual = nil })},
			verb: decide.Report, says: `namespace "shop"`},
		"the volume of another namespace": {given: []change{source(func(o *decide.Observation) {
			o.Virtual.Spec.ClaimRef.Namespace = "bank"
		})}, verb: decide.Report, says: `namespace "shop"`},
		"a real claim that is gone": {given: []change{source(func(o *decide.Observation) { o.Shadow = nil })},
			verb: decide.Report, says: "gone"},
		"a real claim that is another": {given: []change{source(func(o *decide.Observation) { o.Shadow.UID = "b2" })},
			verb: decide.Report, says: "PersistentVolume pvc-1 names"},
		"the handle of the one before, healed": {given: []change{healed}, verb: decide.Take},
		"… and healed again": {given: []change{healed, source(func(o *decide.Observation) { heal(o, "b3") })},
			verb: decide.Take},
		"… with the old real claim": {given: []change{healed, source(func(o *decide.Observation) { o.Shadow.UID = "b1" })},
			verb: decide.Report, says: "PersistentVolume pvc-1 names"},
		"a volume whose data is elsewhere": {given: []change{source(func(o *decide.Observation) {
			o.Virtual.Annotations[keys.Backing] = "east/shop/data/b1"
		})}, verb: decide.Report, says: "PersistentVolume pvc-1 names"},
		"… or that names nothing": {given: []change{source(func(o *decide.Observation) {
			o.Virtual.Annotations, o.Shadow.UID = nil, ""
		})}, verb: decide.Report, says: "PersistentVolume pvc-1 names"},
		"one taken before the healing stays": {given: []change{reported, healed}, verb: decide.Idle},
		"… and is deleted when it is wanted": {given: []change{reported, healed, deleted}, verb: decide.Delete},
		"a real claim that waits for its pod": {given: []change{source(func(o *decide.Observation) {
			o.Shadow.Status.Phase = corev1.ClaimPending
		})}, verb: decide.Report, says: "no volume yet"},
		"a volume of no driver": {given: []change{source(func(o *decide.Observation) { o.Real.Spec.CSI = nil })},
			verb: decide.Report, says: "no CSI driver"},
		"a cluster that is away":             {given: []change{away}, verb: decide.Report, says: "does not answer"},
		"a cluster that nobody knows":        {given: []change{unknown}, verb: decide.Report, says: "create it again"},
		"a cluster of which nothing is seen": {given: []change{unseen}, verb: decide.Idle},
		"a cluster without snapshots": {given: []change{unseen, source(func(o *decide.Observation) {
			o.Problem = "it has no VolumeSnapshots"
		})}, verb: decide.Report, says: "no VolumeSnapshots"},
		"what a cluster says of a failure": {given: []change{marked, source(func(o *decide.Observation) {
			o.There.Status.Error = &volumesnapshot.Failure{Message: ptr.To("disk full")}
		})}, verb: decide.Report, says: "cluster west: disk full"},
		"a snapshot that exists is followed": {given: []change{given}, verb: decide.Report},
		"… unless it is another": {given: []change{given, source(func(o *decide.Observation) { o.There.UID = "s9" })},
			verb: decide.Report, says: "the data is gone"},
		"a deleted one is deleted there":      {given: []change{reported, deleted}, verb: decide.Delete},
		"… once the snapshot controller says": {given: []change{reported, unasked}, verb: decide.Idle},
		"… not while a claim is made from it": {given: []change{reported, deleted, source(func(o *decide.Observation) {
			o.Waiting = "restored"
		})}, verb: decide.Idle},
		"… and waited for": {given: []change{reported, deleted, source(func(o *decide.Observation) {
			o.There.DeletionTimestamp = &now
		})}, verb: decide.Idle},
		"… and the content goes when it is":   {given: []change{reported, deleted, gone}, verb: decide.Release, proof: true},
		"… but not while its cluster is away": {given: []change{reported, deleted, gone, away}, verb: decide.Idle},
		"… or nothing is seen there":          {given: []change{reported, deleted, unseen}, verb: decide.Idle},
		"… or nobody knows it":                {given: []change{reported, deleted, unknown}, verb: decide.Idle},
		"that of somebody else is left alone": {given: []change{taken, deleted, source(func(o *decide.Observation) {
			o.There.Labels[keys.HomeID] = "h2"
		})}, verb: decide.Release, proof: true},
		"one that was never marked goes too":  {given: []change{taken, deleted}, verb: decide.Delete},
		"one to be kept is let go":            {given: []change{reported, deleted, retained}, verb: decide.Release},
		"one that exists is deleted if asked": {given: []change{given, deleted}, verb: decide.Delete},
		"… but not before anybody had it": {given: []change{given, unasked, source(func(o *decide.Observation) {
			o.Content.Spec.Snapshot.UID = ""
		})}, verb: decide.Release},
		"a content that is let go is left": {given: []change{reported, deleted, source(func(o *decide.Observation) {
			o.Content.Finalizers = []string{"other"}
		})}, verb: decide.Idle},
		"a content of nothing is let go": {given: []change{deleted, source(func(o *decide.Observation) { o.Ref = backing.Ref{} })},
			verb: decide.Release},
	} {
		t.Run(name, func(t *testing.T) {
			step := decide.Next(observe(test.given...))
			assert.Equal(t, test.verb, step.Verb)
			assert.Equal(t, test.proof, step.Gone)
			said := ""
			if step.Status.Error != nil {
				said = *step.Status.Error.Message
			}
			if test.says == "" {
				assert.Empty(t, said)
			} else {
				assert.Contains(t, said, test.says)
				assert.False(t, *step.Status.ReadyToUse)
			}
		})
	}
}

func TestWhatAClusterSaysIsSaidAtHomeAndNoMore(t *testing.T) {
	status := decide.Next(observe(ready)).Status
	assert.Equal(t, "west/shop/snapshot-c1/s1", *status.SnapshotHandle)
	assert.Equal(t, now.UnixNano(), *status.CreationTime)
	assert.Equal(t, int64(1<<30), *status.RestoreSize)
	assert.True(t, *status.ReadyToUse)
	status = decide.Next(observe(ready, func(o *decide.Observation) {
		o.There.Status.RestoreSize = ptr.To(resource.MustParse("-1"))
	})).Status
	assert.Nil(t, status.RestoreSize)
}

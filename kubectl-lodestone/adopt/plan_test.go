package adopt_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/adopt"
	"github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

const home = "3f2a91c0"

var now = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)

func claim(name string, change ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{keys.HomeID: home, keys.ClaimUID: "u"},
			Annotations: map[string]string{keys.Claim: "shop/" + name}, Finalizers: []string{keys.BackingFinalizer}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func version(t *testing.T, of string, number int64, change ...func(*volumesnapshot.Snapshot)) volumesnapshot.Snapshot {
	t.Helper()
	seal, err := (&volumesnapshot.Seal{Namespace: "shop", Name: of, UID: "u", Primary: keys.Home, Number: number, Class: "fast",
		Cut: now.Add(time.Duration(number-10) * time.Minute), Size: resource.MustParse("1Gi"),
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}).Encode()
	require.NoError(t, err)
	s := volumesnapshot.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: of + "-v" + string(rune('0'+number)),
			Labels: map[string]string{keys.HomeID: home, keys.ReplicaOf: "r"}, Annotations: map[string]string{keys.Seal: seal}},
		Status: volumesnapshot.SnapshotStatus{ReadyToUse: ptr.To(true), RestoreSize: ptr.To(resource.MustParse("2Gi"))},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func TestEachClaimOfALostHomeIsKeptMadeOrLeftForAReason(t *testing.T) {
	label := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Labels[key] = value }
	}
	facts := adopt.Facts{HomeID: home, Classes: []string{"fast"}, Claims: []corev1.PersistentVolumeClaim{
		claim("a-here"),
		claim("b-leaving", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }),
		claim("c-moving", label(keys.MoveOf, "m")),
		claim("d-unused", func(c *corev1.PersistentVolumeClaim) { c.Annotations[keys.Unpublished] = "true" }),
		claim("e-other", func(c *corev1.PersistentVolumeClaim) { c.Annotations[keys.Claim] = "shop/e" }),
		claim("head", label(keys.ReplicaOf, "r")),
		claim("k-slot", label(keys.ReplicaOf, "r"), func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = version(t, "data", 3).Annotations
		}),
		claim("h-owners", func(c *corev1.PersistentVolumeClaim) { c.Labels, c.Annotations = nil, nil }),
		claim("i-before", func(c *corev1.PersistentVolumeClaim) {
			c.Labels, c.Annotations = nil, map[string]string{keys.AdoptedFrom: "i-before-v1"}
		}),
	}, Snapshots: []volumesnapshot.Snapshot{
		version(t, "a-here", 1),
		version(t, "f-lost", 1), version(t, "f-lost", 3), version(t, "f-lost", 2),
		version(t, "f-lost", 5, func(s *volumesnapshot.Snapshot) { s.Status.ReadyToUse = nil }),
		version(t, "f-lost", 6, func(s *volumesnapshot.Snapshot) { s.DeletionTimestamp = &metav1.Time{Time: now} }),
		version(t, "f-lost", 7, func(s *volumesnapshot.Snapshot) { s.Labels[keys.HomeID] = "another" }),
		version(t, "f-lost", 8, func(s *volumesnapshot.Snapshot) { delete(s.Labels, keys.ReplicaOf) }),
		version(t, "g-forged", 1, func(s *volumesnapshot.Snapshot) { s.Annotations[keys.Seal] = `{"name":"../etc","class":"fast"}` }),
		version(t, "h-owners", 1), version(t, "i-before", 1),
		version(t, "j-class", 1, func(s *volumesnapshot.Snapshot) {
			seal, err := volumesnapshot.DecodeSeal(s.Annotations[keys.Seal])
			require.NoError(t, err)
			seal.Class = "gone"
			s.Annotations[keys.Seal], err = seal.Encode()
			require.NoError(t, err)
		}),
	}}
	var got [][2]string
	var made adopt.Line
	for _, line := range adopt.Plan(facts) {
		got = append(got, [2]string{line.Claim, line.Text(now)})
		if line.Verb == adopt.Make {
			made = line
		}
	}
	const finalizer = "take the finalizer lodestone.dev/backing off"
	assert.Equal(t, [][2]string{
		{"a-here", "kept: its data is here"},
		{"b-leaving", "left: it is being deleted"},
		{"c-moving", "left: it is the copy of a move that was not over, and need not be whole; to keep or delete it " + finalizer},
		{"d-unused", "left: no pod has ever used it; to delete it " + finalizer},
		{"e-other", "kept: its data is here, and pods knew it as claim e of namespace shop"},
		{"f-lost", "made of version 3, which has what was written in the home cluster until 2026-11-27T08:53:00Z (7m ago), of class fast"},
		{"g-forged-v1", `left: the VolumeSnapshot of that name is a version, and does not say of what: a version says that it is of claim ` +
			`"../etc", which is no name`},
		{"h-owners", "left: a claim of that name is there already: delete that one, and run the command again"},
		{"i-before", "left: it was made of VolumeSnapshot i-before-v1 before"},
		{"j-class", "left: storage class gone of its copy is gone: make it again, and run the command again"},
		{"k-slot", "left: it has version 3 of claim data, with what was written in the home cluster until 2026-11-27T08:53:00Z: to keep it " +
			"take its label lodestone.dev/replica off, and have pods use it under its own name"},
	}, got)
	assert.Equal(t, "f-lost-v3", made.NewClaim().Spec.DataSource.Name)
	assert.Equal(t, "2Gi", ptr.To(made.NewClaim().Spec.Resources.Requests[corev1.ResourceStorage]).String(), "a snapshot may need more")

	facts.Before = now.Add(-8 * time.Minute)
	for _, line := range adopt.Plan(facts) {
		if line.Claim == "f-lost" {
			assert.Equal(t, "f-lost-v2", line.Version, "no later than that")
		}
	}
}

// grouped says of versions that they are of claims data and wal at one moment.
func grouped(t *testing.T) func(*volumesnapshot.Snapshot) {
	t.Helper()
	return func(s *volumesnapshot.Snapshot) {
		seal, err := volumesnapshot.DecodeSeal(s.Annotations[keys.Seal])
		require.NoError(t, err)
		seal.Group = []string{"data", "wal"}
		s.Annotations[keys.Seal], err = seal.Encode()
		require.NoError(t, err)
	}
}

func TestClaimsOfOneMomentAreMadeOfTheSameVersion(t *testing.T) {
	of := func(name string, number int64) volumesnapshot.Snapshot { return version(t, name, number, grouped(t)) }
	made := func(name, from string) corev1.PersistentVolumeClaim {
		return claim(name, func(c *corev1.PersistentVolumeClaim) {
			c.Labels, c.Annotations = nil, map[string]string{keys.AdoptedFrom: from}
		})
	}
	const with = "left: its version of 2026-11-27T08:52:00Z is of one moment with claim "
	for name, row := range map[string]struct {
		claims    []corev1.PersistentVolumeClaim
		snapshots []volumesnapshot.Snapshot
		want      map[string]string
	}{
		"the newest whole one": {snapshots: []volumesnapshot.Snapshot{of("data", 1), of("wal", 1), of("data", 2), of("wal", 2), of("data", 3)},
			want: map[string]string{"data": "made of version 2", "wal": "made of version 2"}},
		"a later one of one of them does not count, and is named": {
			snapshots: []volumesnapshot.Snapshot{of("data", 2), of("wal", 2), version(t, "data", 4)},
			want:      map[string]string{"data": "VolumeSnapshot data-v4 has this claim alone until", "wal": "made of version 2"}},
		"none is whole": {snapshots: []volumesnapshot.Snapshot{of("data", 2), of("wal", 3)}, want: map[string]string{
			"data": "left: no version of claims data, wal, which are of one moment, is whole here",
			"wal":  "left: no version of claims data, wal, which are of one moment, is whole here"}},
		"one was made before": {claims: []corev1.PersistentVolumeClaim{made("data", "data-v1")},
			snapshots: []volumesnapshot.Snapshot{of("data", 1), of("wal", 1), of("data", 2), of("wal", 2)},
			want:      map[string]string{"data": "left: it was made of VolumeSnapshot data-v1 before", "wal": "made of version 1"}},
		"one was made of what is gone": {claims: []corev1.PersistentVolumeClaim{made("data", "data-v0")},
			snapshots: []volumesnapshot.Snapshot{of("data", 2), of("wal", 2)},
			want:      map[string]string{"data": "left: it was made of VolumeSnapshot data-v0 before", "wal": with + "data"}},
		"the data of one is here": {claims: []corev1.PersistentVolumeClaim{claim("data")},
			snapshots: []volumesnapshot.Snapshot{of("data", 2), of("wal", 2)},
			want:      map[string]string{"data": "kept: its data is here", "wal": with + "data"}},
		"a name is taken": {claims: []corev1.PersistentVolumeClaim{claim("wal", func(c *corev1.PersistentVolumeClaim) { c.Labels = nil })},
			snapshots: []volumesnapshot.Snapshot{of("data", 2), of("wal", 2)},
			want:      map[string]string{"data": with + "wal", "wal": "left: a claim of that name is there already"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := adopt.Plan(adopt.Facts{HomeID: home, Classes: []string{"fast"}, Claims: row.claims, Snapshots: row.snapshots})
			require.Len(t, lines, len(row.want))
			for _, line := range lines {
				assert.Contains(t, line.Text(now), row.want[line.Claim], line.Claim)
			}
		})
	}
}

func TestAHomeThatIsHeardOfIsNotAdopted(t *testing.T) {
	judge := func(status metav1.ConditionStatus, leaving bool) error {
		h := &v1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: home}}
		if status != "" {
			h.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Connected, Status: status}}
		}
		if leaving {
			h.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return adopt.Judge(h)
	}
	require.ErrorContains(t, judge(metav1.ConditionTrue, false), "it renews its heartbeat")
	require.ErrorContains(t, judge(metav1.ConditionUnknown, false), "not known yet")
	require.ErrorContains(t, judge("", false), "not known yet")
	require.NoError(t, judge(metav1.ConditionFalse, false))
	require.NoError(t, judge(metav1.ConditionTrue, true), "its rights have ended: go on")
}

func TestOnlyTheHomeThatTheOwnerNamesSucceedsALostOne(t *testing.T) {
	of := func(name, succeeds string, leaving bool) v1alpha1.HomeCluster {
		h := v1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.HomeClusterSpec{Succeeds: succeeds,
			Namespaces: v1alpha1.NamespacePolicy{Names: []string{"shop"}}}}
		if leaving {
			h.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return h
	}
	for name, row := range map[string]struct {
		homes []v1alpha1.HomeCluster
		heir  string
		says  string
	}{
		"nobody is named":           {homes: []v1alpha1.HomeCluster{of(home, "", false), of("new", "", false)}},
		"one of another lost home":  {homes: []v1alpha1.HomeCluster{of("new", "else", false)}},
		"the lost one names itself": {homes: []v1alpha1.HomeCluster{of(home, home, false)}},
		"one":                       {homes: []v1alpha1.HomeCluster{of("other", "", false), of("new", home, false)}, heir: "new"},
		"two": {homes: []v1alpha1.HomeCluster{of("new", home, false), of("newer", home, false)},
			says: "HomeClusters new and newer both have " + home + " in spec.succeeds"},
		"one that would ask for other namespaces": {says: "lists no names of namespaces",
			homes: []v1alpha1.HomeCluster{{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: v1alpha1.HomeClusterSpec{Succeeds: home}}}},
		"one that is going": {homes: []v1alpha1.HomeCluster{of("new", home, true)}, says: "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			heir, err := adopt.Successor(home, row.homes)
			if row.says != "" {
				require.ErrorContains(t, err, row.says)
				return
			}
			require.NoError(t, err)
			if row.heir == "" {
				assert.Nil(t, heir)
				return
			}
			assert.Equal(t, row.heir, heir.Name)
		})
	}
}

func TestOfTwoCopiesOfAClaimTheNewestVersionIsTaken(t *testing.T) {
	of := func(replica string) func(*volumesnapshot.Snapshot) {
		return func(s *volumesnapshot.Snapshot) { s.Name, s.Labels[keys.ReplicaOf] = replica+s.Name, replica }
	}
	facts := adopt.Facts{HomeID: home, Classes: []string{"fast"}, Snapshots: []volumesnapshot.Snapshot{
		version(t, "data", 4, of("r")), version(t, "data", 5, of("s")), version(t, "data", 3, of("s")), version(t, "data", 2, of("r"))}}
	lines := adopt.Plan(facts)
	require.Len(t, lines, 1)
	assert.Equal(t, adopt.Make, lines[0].Verb)
	assert.Equal(t, "sdata-v5", lines[0].Version)
	facts.Before = now.Add(-5*time.Minute - time.Second)
	lines = adopt.Plan(facts)
	require.Len(t, lines, 1)
	assert.Equal(t, "rdata-v4", lines[0].Version)
}

// TestNoClaimIsMadeOfAVersionWhereItsDataIs: after a failover a claim is where its versions are, and may have another name there.
func TestNoClaimIsMadeOfAVersionWhereItsDataIs(t *testing.T) {
	moved := func(c *corev1.PersistentVolumeClaim) { c.Annotations[keys.Claim] = "shop/data" }
	before := func(c *corev1.PersistentVolumeClaim) {
		c.Labels, c.Annotations[keys.AdoptedFrom] = nil, ""
	}
	for name, row := range map[string]struct {
		claim corev1.PersistentVolumeClaim
		want  map[string]string
	}{
		"under its own name": {claim("data"), map[string]string{"data": "kept: its data is here"}},
		"under another":      {claim("pvc-u-1", moved), map[string]string{"pvc-u-1": "and pods knew it as claim data of namespace shop"}},
		"a run before kept it": {claim("data", before),
			map[string]string{"data": "left: its data is here, in claim data, which was kept before"}},
		"a run before kept it under another": {claim("pvc-u-1", moved, before),
			map[string]string{"data": "left: its data is here, in claim pvc-u-1, which was kept before"}},
		"it is the copy of a move": {claim("pvc-u-1", moved, func(c *corev1.PersistentVolumeClaim) { c.Labels[keys.MoveOf] = "m" }),
			map[string]string{"pvc-u-1": "left: it is the copy of a move", "data": "made of version 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := adopt.Plan(adopt.Facts{HomeID: home, Classes: []string{"fast"}, Claims: []corev1.PersistentVolumeClaim{row.claim},
				Snapshots: []volumesnapshot.Snapshot{version(t, "data", 1)}})
			require.Len(t, lines, len(row.want))
			for _, line := range lines {
				assert.Contains(t, line.Text(now), row.want[line.Claim], line.Claim)
				assert.False(t, line.Again, "nobody is told to delete it")
			}
		})
	}
}

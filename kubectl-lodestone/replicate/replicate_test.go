package replicate

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// known is claim data of namespace shop, whose data is at home and whose copy is to be in west.
func known(changes ...func(*facts)) facts {
	f := facts{
		claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone"), VolumeName: "pvc-1"},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("10Gi")}}},
		class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
			Parameters:        map[string]string{keys.Classes: "fast,slow"}},
		volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{
			keys.Backing: "home/lodestone-storage/pvc-1/uid"}}},
		namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}},
		to:        "west", remote: &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: "west"}},
		offered: []v1alpha1.OfferedClass{{Name: "fast", Provisioner: "fast.test", Default: true, Free: ptr.To(resource.MustParse("4Gi"))}},
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func atHome(f *facts) {
	f.to, f.remote, f.snapshotsKnown = keys.Home, nil, true
	f.volume.Annotations[keys.Backing] = "west/shop/data/uid"
	f.snapshots = []volumesnapshot.Class{{Driver: "fast.test", DeletionPolicy: volumesnapshot.Delete}}
}

func TestWhatForbidsACopyIsSaidBefore(t *testing.T) {
	const no = "claim shop/data is not replicated: "
	for name, row := range map[string]struct {
		of    facts
		class string
		says  string
	}{
		"nothing":         {of: known()},
		"nothing at home": {of: known(atHome)},
		"what the user may not read": {of: known(func(f *facts) {
			f.class, f.volume, f.namespace, f.remote, f.offered = nil, nil, nil, nil, nil
		}), class: "unknown"},
		"it is being deleted": {of: known(func(f *facts) { f.claim.DeletionTimestamp = &metav1.Time{} }), says: no + "it is being deleted"},
		"it has no class": {of: known(func(f *facts) { f.claim.Spec.StorageClassName = nil }), says: no + "it has no storage class, and only " +
			"volumes of virtual classes have copies; kubectl lodestone import makes existing data such a volume"},
		"its class is not virtual": {of: known(func(f *facts) { f.class.Provisioner = "fast.test" }), says: no + `its storage class "lodestone" ` +
			`is not a virtual one, and only volumes of those have copies; kubectl lodestone import makes existing data such a volume`},
		"its data is there": {of: known(func(f *facts) { f.volume.Annotations[keys.Backing] = "west/shop/data/uid" }), says: no +
			`its data is in cluster "west" itself, and a copy beside it would be lost with it; name another cluster with --to`},
		"it has a copy there": {of: known(func(f *facts) {
			f.replicas = []v1alpha1.VolumeReplica{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "copy"}, Spec: v1alpha1.VolumeReplicaSpec{
				Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}}}}}
		}), says: no + `VolumeReplica "copy" keeps a copy of it in cluster "west" already; kubectl lodestone replicate status copy -n shop shows ` +
			`it, and kubectl edit volumereplica copy -n shop changes its RPO`},
		"a copy elsewhere, and one of another claim": {of: known(func(f *facts) {
			f.replicas = []v1alpha1.VolumeReplica{{Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"data"},
				Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}}}}, {Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{"log"},
				Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}}}}}
		})},
		"the cluster leaves": {of: known(func(f *facts) { f.remote.DeletionTimestamp = &metav1.Time{} }), says: no +
			`RemoteCluster "west" is being deleted and takes no new volumes; name another cluster with --to`},
		"the namespace is closed": {of: known(func(f *facts) { f.namespace.Labels = nil }), says: no +
			`namespace "shop" is not open to remote clusters: kubectl label namespace shop lodestone.dev/offload=enabled`},
		"the namespace is open to others": {of: known(func(f *facts) {
			f.namespace.Annotations = map[string]string{keys.OffloadClusters: "east"}
		}), says: no + `namespace "shop" is not open to cluster "west": its annotation lodestone.dev/clusters lists "east"; add the ` +
			`cluster there`},
		"the class keeps out of it": {of: known(func(f *facts) { f.class.Parameters[keys.Clusters] = "east" }), says: no + `storage class ` +
			`"lodestone" keeps its volumes out of cluster "west": add it to its parameter lodestone.dev/clusters`},
		"a class that is not listed": {of: known(), class: "other", says: no + `storage class "lodestone" does not list real class "other" in ` +
			`its parameter lodestone.dev/classes: name one that it lists with --class, such as fast, slow`},
		"a class that is not there": {of: known(), class: "slow", says: no + `cluster "west" has no real storage class "slow": create it there ` +
			`(a virtual class does not count), or name another in the virtual class`},
		"home has no snapshots of it": {of: known(atHome, func(f *facts) { f.snapshots[0].DeletionPolicy = volumesnapshot.Retain })},
	} {
		t.Run(name, func(t *testing.T) {
			why, _ := row.of.forbids(row.class)
			assert.Equal(t, row.says, why)
		})
	}
}

func TestTheFlagsBecomeAVolumeReplica(t *testing.T) {
	o := newOptions()
	o.To, o.Bandwidth, o.Class = "west", "50Mi", "fast"
	made, err := o.object("shop", []string{"data"})
	require.NoError(t, err)
	assert.Equal(t, "data-west", made.Name)
	assert.Equal(t, v1alpha1.VolumeReplicaSpec{Claims: []string{"data"},
		Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west", ClassName: "fast"}}, RPO: &metav1.Duration{Duration: 15 * time.Minute},
		Versions:       v1alpha1.ReplicaVersions{Keep: 4},
		BandwidthLimit: ptr.To(resource.MustParse("50Mi"))}, made.Spec)
	kept := newOptions()
	kept.To, kept.Daily, kept.Scrub = "west", 7, 168*time.Hour
	of, err := kept.object("shop", []string{"data"})
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.ReplicaVersions{Keep: 4, Daily: 7}, of.Spec.Versions)
	assert.Equal(t, &metav1.Duration{Duration: 168 * time.Hour}, of.Spec.ScrubEvery)
	long := string(bytes.Repeat([]byte("c"), 253))
	made, err = o.object("shop", []string{long})
	require.NoError(t, err)
	assert.Len(t, made.Name, 253)

	_, real := known().forbids("")
	assert.Equal(t, "would make VolumeReplica "+made.Name+": it copies claim data from home to class fast in west, so that the newest of 4 "+
		"versions is at most 15m old, and sends at most 50Mi bytes a second\nthe first copy sends up to 10Gi (as large as the volume is; how "+
		"much of it is used is not known at home) and takes that room in west, and each later version what has changed; class fast has 4.0 GiB "+
		"free there, which is less than that"+maySlots+"\nif all of that is sent it takes at least 3m24s, by that limit; how much longer is "+
		"not known: no finished move of this namespace from home to west says how fast the way is", plan(wanted{made, []part{{known(), real}}}))
	unbound := known(func(f *facts) {
		f.volume, f.claim.Status.Capacity = nil, nil
		f.claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	})
	made.Spec.Standbys[0].ClassName, made.Spec.BandwidthLimit = "", nil
	assert.Equal(t, "would make VolumeReplica "+made.Name+": it copies claim data to the class that a new claim would get in west, so that "+
		"the newest of 4 versions is at most 15m old\nthe first copy sends up to 1Gi (what the claim asks for, which has no volume yet) and "+
		"takes that room in west, and each later version what has changed"+maySlots+"\nhow long that takes is not known: while the claim has "+
		"no volume it is not known which way the data takes, and no --bandwidth-limit is given", plan(wanted{made, []part{{unbound, nil}}}))

	wal := known(func(f *facts) { f.claim.Name = "wal" })
	made, err = o.object("shop", []string{"data", "wal"})
	require.NoError(t, err)
	assert.Equal(t, "data-west", made.Name)
	text := plan(wanted{made, []part{{known(), real}, {wal, real}}})
	assert.Contains(t, text,
		"would make VolumeReplica data-west: it copies claims data, wal from home, all of one moment, to class fast in west, so")
	assert.Contains(t, text, "\nthe first copy of claim data sends up to 10Gi")
	assert.Contains(t, text, "\nthe first copy of claim wal sends up to 10Gi")
	quick := known(func(f *facts) { f.moves = []v1alpha1.VolumeMove{moved("m", 0)} })
	assert.Contains(t, plan(wanted{made, []part{{quick, real}, {quick, real}}}),
		"\nif all of that is sent it takes about 6m49s, by that limit: move m from home to west sent more")
	assert.Empty(t, apart([]part{{known(), real}, {wal, real}}))
	wal.volume = wal.volume.DeepCopy()
	wal.volume.Annotations[keys.Backing] = "east/shop/wal/uid"
	assert.Equal(t, `the data of claim data is in cluster "home" and that of claim wal in cluster "east", and no snapshot of both is of one `+
		"moment: move them together (kubectl lodestone move), or leave --group out", apart([]part{{known(), real}, {wal, real}}))
	assert.True(t, sameClaims([]string{"wal", "data"}, []string{"data", "wal"}))
	assert.True(t, sameClaims([]string{"wal", "data"}, []string{"data"}))
	assert.False(t, sameClaims([]string{"data"}, []string{"data", "wal"}))
}

// maySlots is what is said of a class of which it is not known whether it has snapshots.
const maySlots = "\nif that class has no snapshots there, versions are in two claims that are written in turn: both take that room, so " +
	"twice as much in all, and 2 versions are kept at most"

func TestItIsSaidBeforeThatVersionsAreInSlots(t *testing.T) {
	o := newOptions()
	o.To = keys.Home
	made, err := o.object("shop", []string{"data"})
	require.NoError(t, err)
	without := known(atHome, func(f *facts) { f.snapshots = nil })
	_, real := without.forbids("")
	text := "\nversions are in two claims there that are written in turn, without snapshots: both take that room, so twice as much in all, " +
		"and no test can be made of a version (failover --test)"
	assert.Contains(t, plan(wanted{made, []part{{without, real}}}), text)
	assert.NotContains(t, plan(wanted{made, []part{{known(atHome), real}}}), "written in turn")
	o.Slots = true
	made, err = o.object("shop", []string{"data"})
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.ReplicaVersions{Keep: 2, In: v1alpha1.InSlots}, made.Spec.Versions)
	assert.Contains(t, plan(wanted{made, []part{{known(atHome), real}}}), text)
}

func TestAReplicaIsChosenByItsNameOrByItsClaim(t *testing.T) {
	of := func(name, claim string) v1alpha1.VolumeReplica {
		return v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VolumeReplicaSpec{Claims: []string{claim}}}
	}
	all := []v1alpha1.VolumeReplica{of("data-west", "data"), of("data", "log"), of("wal-west", "wal"), of("wal-east", "wal")}
	for reference, want := range map[cli.Reference]string{
		{Name: "data"}:                         "data",
		{Kind: cli.Claim, Name: "data"}:        "data-west",
		{Kind: cli.Replica, Name: "data"}:      "data",
		{Name: "log"}:                          "data",
		{Kind: cli.Replica, Name: "data-west"}: "data-west",
	} {
		found, err := choose(all, reference)
		require.NoError(t, err)
		assert.Equal(t, want, found.Name, reference)
	}
	_, err := choose(all, cli.Reference{Name: "wal"})
	require.EqualError(t, err, `claim "wal" has several copies: name one of wal-east, wal-west`)
	found, err := choose(all, cli.Reference{Kind: cli.Replica, Name: "log"})
	require.NoError(t, err)
	assert.Nil(t, found)
	require.EqualError(t, named.Missing(cli.Reference{Name: "dta"}, "shop", all), `namespace "shop" has no VolumeReplica "dta" and no `+
		`VolumeReplica of a claim "dta"; there are: data, data-west, wal-east, wal-west`)
	require.EqualError(t, named.Missing(cli.Reference{Kind: cli.Claim, Name: "dta"}, "shop", nil), `namespace "shop" has no `+
		`VolumeReplicas; kubectl lodestone replicate status -A shows those of other namespaces`)
}

func TestWhatMayBeTheOnlyCopyIsNotDeleted(t *testing.T) {
	c := replica.Copy{Namespace: "shop", Name: "data-east", Claim: "data", Primary: "west"}
	reachable := func(status metav1.ConditionStatus) *v1alpha1.RemoteCluster {
		return &v1alpha1.RemoteCluster{Status: v1alpha1.RemoteClusterStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.Reachable, Status: status}}}}
	}
	assert.Empty(t, onlyCopy(c, reachable(metav1.ConditionTrue)))
	assert.Empty(t, onlyCopy(c, reachable(metav1.ConditionUnknown)))
	for _, remote := range []*v1alpha1.RemoteCluster{nil, reachable(metav1.ConditionFalse)} {
		assert.Equal(t, `cluster "west", which has the data of claim shop/data, does not answer or is gone, so the copy may be all that is left `+
			`of it: `+c.Use()+`; kubectl delete volumereplica data-east -n shop removes it all the same`, onlyCopy(c, remote))
	}
}

func TestCopiesAreListedWithWhatIsWrong(t *testing.T) {
	now := time.Now()
	well := v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "wal-east"}, Spec: v1alpha1.VolumeReplicaSpec{
		Claims: []string{"wal"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "east"}}, RPO: &metav1.Duration{Duration: time.Hour}},
		Status: v1alpha1.VolumeReplicaStatus{Primary: "west", Conditions: []metav1.Condition{{Type: v1alpha1.ReplicaHealthy,
			Status: metav1.ConditionTrue, Reason: "Sealed"}}, Standbys: []v1alpha1.ReplicaStandbyStatus{{Cluster: "east", Class: "fast",
			Sent: 1 << 20, Sealed: &metav1.Time{Time: now.Add(-7 * time.Minute)},
			Versions: []v1alpha1.ReplicaVersion{{Name: "replica-u-v12-1795742003", Consistency: v1alpha1.VersionFrozen}}}}}}
	bad := *well.DeepCopy()
	bad.Name, bad.Spec.Claims[0], bad.Status.Standbys, bad.Status.Primary = "data-east", "data", nil, ""
	bad.Status.Conditions[0] = metav1.Condition{Type: v1alpha1.ReplicaHealthy, Status: metav1.ConditionFalse, Reason: "NoSnapshots",
		Message: "no snapshot can be taken"}
	var out bytes.Buffer
	require.NoError(t, show(&out, []v1alpha1.VolumeReplica{well, bad}, false, false, now))
	assert.Equal(t, `REPLICA     CLAIM   DATA     STANDBY   VERSION   LAG      RPO   STATE
data-east   data    <none>   east      <none>    <none>   1h    NoSnapshots
wal-east    wal     west     east      12        7m       1h    Sealed

data-east: no snapshot can be taken
`, out.String())
	out.Reset()
	well.Status.Standbys[0].Runnable, well.Status.Standbys[0].RunnableMessage = "False", "pod db-0 fits no node"
	require.NoError(t, show(&out, []v1alpha1.VolumeReplica{well}, true, true, now))
	assert.Equal(t, `NAMESPACE   REPLICA    CLAIM   DATA   STANDBY   VERSION   LAG   RPO   STATE    CLASS   VERSIONS   CONSISTENCY   RUNNABLE   SENT      POINT
shop        wal-east   wal     west   east      12        7m    1h    Sealed   fast    1          Frozen        False      1.0 MiB   <none>

shop/wal-east: cluster east could not run the pods of claim "wal" now: pod db-0 fits no node
`, out.String())
}

func TestTheFlagsSayHowTheApplicationIsFrozen(t *testing.T) {
	o := newOptions()
	o.To, o.Freeze, o.Thaw, o.FreezeIn, o.FreezeFor = "west", `["touch","/run/frozen"]`, `["rm","-f","/run/frozen"]`, "db", time.Minute
	require.NoError(t, o.checkFreeze())
	made, err := o.object("shop", []string{"data"})
	require.NoError(t, err)
	assert.Equal(t, v1alpha1.ConsistencyFrozen, made.Spec.Consistency)
	assert.Equal(t, &v1alpha1.ReplicaHooks{Freeze: []string{"touch", "/run/frozen"}, Thaw: []string{"rm", "-f", "/run/frozen"},
		Container: "db", Timeout: &metav1.Duration{Duration: time.Minute}}, made.Spec.Hooks)
	_, real := known().forbids("")
	assert.Contains(t, plan(wanted{made, []part{{known(), real}}}),
		"\nwhile a snapshot is taken the application is frozen, for 1m at most, by "+
			`"touch /run/frozen" and "rm -f /run/frozen" in container db of each pod that mounts a claim`)
}

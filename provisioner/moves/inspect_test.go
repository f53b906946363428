package moves

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

func TestDataIsOnANodeThatItsVolumeIsBoundTo(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-1", Labels: map[string]string{corev1.LabelHostname: "home-1"}}}
	on := func(name string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
			}}},
		}}}}
	}
	assert.True(t, isConfinedTo(on("home-1"), node))
	assert.False(t, isConfinedTo(on("home-2"), node))
	assert.False(t, isConfinedTo(&corev1.PersistentVolume{}, node), "one that is bound to no node may be copied for one")
	assert.False(t, isConfinedTo(nil, node))
}

func TestAClaimIsMovedOnlyIfItsRealClaimIsItsOwn(t *testing.T) {
	for name, test := range map[string]struct{ owner, made, says string }{
		"it is": {owner: "u1"},
		"it is, and is bound to the volume that the claim's volume names": {owner: "u1", made: "real"},
		// The source is deleted in the end.
		"it is another's": {owner: "u0", says: "is not its own (label lodestone.dev/claim-uid there)"},
		// The mover would mount what the twin is bound to, and pods use another volume.
		"it is bound to another volume": {owner: "u1", made: "other",
			says: "is bound to volume real, and not to that of the claim"},
	} {
		t.Run(name, func(t *testing.T) {
			twin := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: "pvc-u0", UID: "b",
					Labels: map[string]string{keys.ClaimUID: test.owner, keys.HomeID: "h1"}, Annotations: map[string]string{}},
				Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "real"},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			}
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
			if test.made != "" {
				twin.Annotations[keys.Unpublished], volume.Annotations[keys.BackingVolume] = "true", test.made
			}
			real := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real"}}
			c := &Controller{sites: site.New(remote.Access{Client: fake.NewClientset(twin, real)}, nil),
				Config: Config{Place: backing.Place{HomeID: "h1"}}}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
			_, err := c.inspectSource(t.Context(), claim, volume, backing.RefTo(keys.Home, twin))
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.says)
			assert.ErrorAs(t, err, new(refusal))
		})
	}
}

func TestAMoveSaysWhetherItsDataIsThereAlready(t *testing.T) {
	reason := func(why error) string {
		r := &record.Record{Phase: v1alpha1.MovePrepare, Began: map[v1alpha1.MovePhase]time.Time{}, Claims: []record.Claim{{Name: "data"}}}
		judgement, err := refusedRecord(r, why)
		require.NoError(t, err)
		require.Equal(t, v1alpha1.MoveFailed, judgement.Phase)
		status := &v1alpha1.VolumeMoveStatus{}
		conditions(judgement, status)
		accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.MoveAccepted)
		require.Equal(t, metav1.ConditionFalse, accepted.Status)
		assert.Equal(t, why.Error(), accepted.Message)
		return accepted.Reason
	}
	assert.Equal(t, "Refused", reason(refuse("the pod may not be stopped")))
	assert.Equal(t, v1alpha1.MoveAlreadyThere, reason(alreadyThere{"the data is there already"}))
	_, err := refusedRecord(&record.Record{}, errors.New("a cluster does not answer"))
	assert.Error(t, err, "what may pass is no judgement")
}

func TestTheFirstNameThatNobodyHasIsTaken(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"}}
	client := fake.NewClientset()
	at := site.Site{Access: remote.Access{Client: client}}
	for n := range maxNames {
		key, err := firstFreeName(t.Context(), at, "there", claim, "west")
		require.NoError(t, err)
		require.Equal(t, types.NamespacedName{Namespace: "there", Name: backing.Moved("u1", n+1)}, key)
		_, err = client.CoreV1().PersistentVolumeClaims("there").Create(t.Context(),
			&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := firstFreeName(t.Context(), at, "there", claim, "west")
	var refused refusal
	require.ErrorAs(t, err, &refused, "a cluster that has every name keeps nobody asking for ever")
	assert.ErrorContains(t, err, "there/pvc-u1-1 to pvc-u1-32")
}

func TestOnlyNodesOfThisVersionFindClaimsUnderOtherNames(t *testing.T) {
	for name, test := range map[string]struct {
		labels []map[string]string
		want   bool
	}{
		"no node":                         {},
		"a node of another program":       {labels: []map[string]string{{keys.Cluster: "west"}}},
		"a node of an earlier version":    {labels: []map[string]string{{keys.Cluster: "west", keys.VirtualNodeRole: ""}}},
		"one of this version beside one":  {labels: []map[string]string{{keys.Cluster: "west"}, {keys.Claims: keys.ClaimsOfVolumes}}, want: true},
		"a node that says something else": {labels: []map[string]string{{keys.Claims: "by-name"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{StandIns: func(string) (nodes []*corev1.Node) {
				for _, labels := range test.labels {
					nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
				}
				return nodes
			}})
			assert.Equal(t, test.want, c.findsClaims("west"))
		})
	}
}

func TestWhatIsToBeDoneAboutANameDependsOnWhoseItIs(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}
	own := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{keys.ClaimUID: "u1", keys.HomeID: "h1"}}}
	assert.Contains(t, adviceOnTakenName(own, claim, "h1"), "move it home first")
	own.Labels[keys.MoveOf] = "m1"
	assert.Contains(t, adviceOnTakenName(own, claim, "h1"), "kubectl lodestone move finalize pvc/")
	own.Annotations = map[string]string{keys.Unpublished: "true"}
	assert.Contains(t, adviceOnTakenName(own, claim, "h1"), "wait until it is removed")
	assert.Contains(t, adviceOnTakenName(&corev1.PersistentVolumeClaim{}, claim, "h1"), "remove that claim there")
}

func TestASecretOfAnObjectStoreThatCannotBeUsedRefusesTheMove(t *testing.T) {
	secret := func(name, url string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name},
			Data: map[string][]byte{"url": []byte(url), "AWS_ACCESS_KEY_ID": []byte("id")}}
	}
	c := New(Config{Client: fake.NewClientset(secret("good", "s3:https://s3/bucket"), secret("bad", "http://s3/bucket")), Namespace: "system"})
	good, err := c.repositoryOfSecret(t.Context(), "west", "good")
	require.NoError(t, err)
	assert.Equal(t, "s3:https://s3/bucket", good.URL)
	assert.Equal(t, map[string]string{"AWS_ACCESS_KEY_ID": "id"}, good.Credentials)
	for name, want := range map[string]string{"bad": "Secret system/bad, which RemoteCluster west names",
		"none": "there is no Secret system/none"} {
		_, err := c.repositoryOfSecret(t.Context(), "west", name)
		var why refusal
		require.ErrorAs(t, err, &why)
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "move again")
	}
}

func TestAClaimThatContentCannotTravelThroughRefusesTheMove(t *testing.T) {
	good := func() *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "moves"},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
	}
	for name, row := range map[string]struct {
		change func(c *corev1.PersistentVolumeClaim)
		want   string
	}{
		"good":             {change: func(*corev1.PersistentVolumeClaim) {}},
		"for one node":     {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadWriteOnce }, "not ReadWriteMany"},
		"to be read alone": {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = corev1.ReadOnlyMany }, "not ReadWriteMany"},
		"not bound":        {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }, "not bound"},
		"lost":             {func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, "not bound"},
		"going":            {func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, "being deleted"},
		"a device": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) },
			"block device"},
		"a twin": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{keys.ClaimUID: "u"} },
			"somebody's volume"},
		"one with our finalizer": {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{keys.BackingFinalizer} },
			"somebody's volume"},
		"a target that is not yet": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{keys.MoveOf: "u"} },
			"somebody's volume"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := good()
			row.change(claim)
			wrong := whyUnusableRepository(claim)
			if row.want == "" {
				require.Empty(t, wrong)
				return
			}
			assert.Contains(t, wrong, row.want)
		})
	}

	known := &record.Claim{
		Source: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "storage", Name: "a"}},
		Target: record.Copy{Ref: backing.Ref{Cluster: keys.Home, Namespace: "other", Name: "a"}},
	}
	c := New(Config{Client: fake.NewClientset(good())})
	_, err := c.repositoryOfClaim(t.Context(), "west", "moves", known)
	var why refusal
	require.ErrorAs(t, err, &why)
	assert.Equal(t, "RemoteCluster west has the content of moves travel through a claim (spec.moveRepository), and claim other/moves in "+
		"cluster home does not exist: create it, or take the field out, and move again", err.Error())
	known.Target.Ref.Namespace = "storage"
	found, err := c.repositoryOfClaim(t.Context(), "west", "moves", known)
	require.NoError(t, err)
	assert.Equal(t, &moverapi.Repository{Claim: "moves"}, found)
}

// owned is a pod that uses claim data and has a controller.
func owned(kind, version, owner, node string) *corev1.Pod {
	pod := user("shop", owner+"-1", "data", node)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: owner, UID: "o", Controller: ptr.To(true)}}
	return pod
}

func TestAPodOfAJobThatRunsRefusesAMove(t *testing.T) {
	done := owned("Job", "batch/v1", "nightly", "home-1")
	done.Status.Phase = corev1.PodSucceeded
	for name, row := range map[string]struct {
		pod     *corev1.Pod
		refused bool
	}{
		"it runs":             {owned("Job", "batch/v1", "nightly", "home-1"), true},
		"it has no node":      {owned("Job", "batch/v1", "nightly", ""), false},
		"it has ended":        {done, false},
		"a StatefulSet's":     {owned("StatefulSet", "apps/v1", "db", "home-1"), false},
		"somebody else's Job": {owned("Job", "example.com/v1", "nightly", "home-1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{Client: fake.NewClientset(row.pod), Records: NewRecords(), Node: func(string) *corev1.Node { return nil }})
			r := recordIn("Prepare")
			r.Namespace = "shop"
			_, err := c.inspectPods(t.Context(), r)
			if !row.refused {
				require.NoError(t, err)
				return
			}
			var why refusal
			require.ErrorAs(t, err, &why)
			assert.Contains(t, string(why), `pod nightly-1 of Job nightly`)
			assert.Contains(t, string(why), `kubectl patch job nightly -n shop -p '{"spec":{"suspend":true}}'`)
		})
	}
}

func TestClaimsOfAMoveHaveTheirDataInOneCluster(t *testing.T) {
	in := func(name, cluster string) record.Claim {
		return record.Claim{Name: name, Source: record.Copy{Ref: backing.Ref{Cluster: cluster}}}
	}
	west, east := in("data", "west"), in("log", "east")
	require.NoError(t, requireOneSource(nil, &west))
	require.NoError(t, requireOneSource([]record.Claim{in("log", "west")}, &west))
	var why refusal
	require.ErrorAs(t, requireOneSource([]record.Claim{west}, &east), &why)
	for _, says := range []string{`"data" is in cluster west`, `"log" in cluster east`, "one after another"} {
		assert.Contains(t, string(why), says)
	}
}

func TestARefusalOfASecondMoveNamesBothWaysOut(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	for phase, says := range map[v1alpha1.MovePhase]string{
		v1alpha1.MovePreCopy: `claim "data" is being moved by VolumeMove first (PreCopy): wait until that has let go of it, or end it with kubectl ` +
			`lodestone move abort first -n shop, and move again`,
		v1alpha1.MoveCommit: `claim "data" is being moved by VolumeMove first (Commit): wait until that has let go of it, which kubectl lodestone ` +
			`move status first -n shop shows, and move again`,
	} {
		assert.EqualError(t, busyWith(claim, &record.Record{Namespace: "shop", Name: "first", Phase: phase}), says)
	}
}

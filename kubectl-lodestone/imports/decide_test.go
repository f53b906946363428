package imports

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// The objects of these tests: real volume "real" of claim shop/data (UID c1), to
// become virtual claim shop/data (UID n1) with twin t1.
const storage = "lodestone-storage"

var target = types.NamespacedName{Namespace: "shop", Name: "data"}

type alter func(*Home)

// home returns an import that has not begun.
func home(changes ...alter) Home {
	h := Home{Storage: storage, HomeID: "h1"}
	h.Real = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "r1", Annotations: map[string]string{}}}
	h.Real.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "c1"}
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	h.Real.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	h.Real.Status.Phase = corev1.VolumeBound
	h.Holder = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c1"}}
	h.Holder.Spec.VolumeName, h.Holder.Status.Phase = "real", corev1.ClaimBound
	for _, change := range changes {
		change(&h)
	}
	return h
}

func begun(h *Home) {
	h.Record = &Record{Policy: h.Real.Spec.PersistentVolumeReclaimPolicy, From: Holder{Namespace: "shop", Name: "data", UID: "c1"},
		Claim: virtualClaim(target, "lodestone", homeID(h.Real), h.Holder, h.Real)}
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func lostPolicy(h *Home) {
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
}
func used(h *Home)     { h.Users = []string{"app"} }
func attached(h *Home) { h.Node = "node-1" }
func going(h *Home)    { h.Holder.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(1, 0))) }
func gone(h *Home)     { h.Holder, h.Real.Status.Phase = nil, corev1.VolumeReleased }
func abroad(h *Home)   { h.Holder.Labels = map[string]string{keys.HomeID: "h2"} }
func healed(h *Home)   { h.Real.Labels = map[string]string{keys.Healing: "h2"} }
func chosen(h *Home)   { h.NamespaceGiven = true }
func retained(h *Home) {
	h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func elsewhere(h *Home) {
	h.Real.Spec.ClaimRef.Namespace = "bank"
	if h.Holder != nil {
		h.Holder.Namespace = "bank"
	}
}
func protected(h *Home) { h.Holder.Finalizers = []string{keys.BackingFinalizer} }

func made(h *Home) {
	h.Claim = h.Record.Claim.DeepCopy()
	h.Claim.UID, h.Claim.Status.Phase = "n1", corev1.ClaimPending
}

func freed(h *Home) {
	h.Real.Spec.ClaimRef = &corev1.ObjectReference{Namespace: storage, Name: "pvc-n1"}
	h.Real.Status.Phase = corev1.VolumeAvailable
}

func twinned(h *Home) {
	h.Twin = backing.Twin(reference(h.Claim), h.Real, h.twinName(), "h1")
	h.Twin.UID = "t1"
}

func bound(h *Home) {
	h.Real.Spec.ClaimRef.UID, h.Real.Status.Phase, h.Twin.Status.Phase = "t1", corev1.VolumeBound, corev1.ClaimBound
	h.Holder = h.Twin
}
func restored(h *Home) { h.Real.Spec.PersistentVolumeReclaimPolicy = h.Record.Policy }

func published(h *Home) {
	h.Virtual = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-n1",
		Annotations: map[string]string{keys.BackingVolume: "real", keys.Backing: "home/x/y/t1"}}}
}
func claimBound(h *Home) { h.Claim.Status.Phase = corev1.ClaimBound }
func cleared(h *Home)    { delete(h.Claim.Annotations, keys.Import) }

// old is the virtual volume that stood for a twin that was kept.
func old(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) alter {
	return func(h *Home) {
		h.Holder.Namespace, h.Holder.Name = storage, "pvc-o1"
		h.Holder.Labels = map[string]string{keys.HomeID: "h1", keys.ClaimUID: "o1"}
		h.Old = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-o1"}}
		h.Old.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "o1"}
		h.Old.Spec.PersistentVolumeReclaimPolicy, h.Old.Status.Phase = policy, phase
	}
}

func kept(h *Home) { old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)(h) }

func TestNextAtHome(t *testing.T) {
	for name, test := range map[string]struct {
		given []alter
		want  Step
		code  cli.ExitCode
	}{
		"its claim goes":                        {given: []alter{begun}, want: Delete},
		"… not while a pod uses it":             {given: []alter{begun, used}, code: cli.Refused},
		"… nor while it is attached":            {given: []alter{begun, attached}, code: cli.Refused},
		"… nor before the volume outlives it":   {given: []alter{begun, lostPolicy}, want: Keep},
		"its claim is going":                    {given: []alter{begun, going}, want: Wait},
		"… and a pod holds it":                  {given: []alter{begun, going, used}, want: Wait},
		"a twin that was kept loses its volume": {given: []alter{begun, kept}, want: DropOld},
		"… not if that is in use": {
			given: []alter{begun, old(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)}, code: cli.Refused},
		"… not if it would delete the data": {
			given: []alter{begun, old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)}, code: cli.Refused},
		"a twin that is going is let go":        {given: []alter{begun, going, protected}, want: LetGo},
		"its claim is gone":                     {given: []alter{begun, gone}, want: Make},
		"another claim has the name":            {given: []alter{begun, gone, made, cleared}, code: cli.Refused},
		"… which is seen before its claim goes": {given: []alter{begun, made, cleared}, code: cli.Refused},
		"another home has its claim":            {given: []alter{begun, abroad}, code: cli.Refused},
		"another home heals its claim":          {given: []alter{begun, healed}, code: cli.Refused},
		"another claim has the volume":          {given: []alter{begun, func(h *Home) { h.Holder.UID = "other" }}, code: cli.Refused},
		"the virtual claim is there":            {given: []alter{begun, gone, made}, want: Free},
		"the volume waits for the twin":         {given: []alter{begun, gone, made, freed}, want: Twin},
		"the twin waits for the volume":         {given: []alter{begun, gone, made, freed, twinned}, want: Wait},
		"the twin is somebody else's": {given: []alter{begun, gone, made, freed, twinned, func(h *Home) { h.Twin.Labels = nil }},
			code: cli.Refused},
		"the twin has the volume":     {given: []alter{begun, gone, made, freed, twinned, bound}, want: Restore},
		"the policy is as it was":     {given: []alter{begun, gone, made, freed, twinned, bound, restored}, want: Publish},
		"the virtual volume is there": {given: []alter{begun, gone, made, freed, twinned, bound, restored, published}, want: Wait},
		"the virtual claim is bound":  {given: []alter{begun, gone, made, freed, twinned, bound, restored, published, claimBound}, want: Clear},
		"all but the record is done": {given: []alter{begun, gone, made, freed, twinned, bound, restored, published, claimBound, cleared},
			want: End},
		"somebody deletes the volume": {given: []alter{begun, func(h *Home) { h.Real.DeletionTimestamp = ptr.To(metav1.Now()) }},
			code: cli.Refused},
		"somebody deleted the virtual claim after its twin was bound": {given: []alter{begun, gone, made, freed, twinned, bound, restored,
			func(h *Home) { h.Holder, h.Claim, h.Twin = h.Twin, nil, nil }}, want: Keep},
		"… and that twin goes then": {given: []alter{begun, gone, made, freed, twinned, bound,
			func(h *Home) { h.Holder, h.Claim, h.Twin = h.Twin, nil, nil }}, want: Delete},
		"… unless its virtual claim is there": {given: []alter{begun, gone, made, freed, twinned, bound,
			func(h *Home) { h.Holder, h.Owner, h.Claim, h.Twin = h.Twin, h.Claim, nil, nil }}, code: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			step, what, err := home(test.given...).Next()
			assert.Equal(t, test.code, cli.ExitCodeOf(err), "%v", err)
			assert.Equal(t, test.want, step)
			assert.Equal(t, step == Wait, what != "", what)
		})
	}
}

func TestTheVirtualClaimIsAsTheRealOneWas(t *testing.T) {
	h := home()
	h.Holder.Labels = map[string]string{"team": "a", keys.HomeID: "h1"}
	h.Holder.Annotations = map[string]string{"note": "b", "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n",
		keys.Claim: "x/y"}
	h.Holder.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	h.Holder.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := virtualClaim(target, "lodestone", homeID(h.Real), h.Holder, h.Real)
	assert.Equal(t, map[string]string{"team": "a"}, claim.Labels)
	assert.Equal(t, map[string]string{"note": "b", keys.Import: "home/real/r1"}, claim.Annotations)
	assert.Equal(t, h.Holder.Spec.AccessModes, claim.Spec.AccessModes)
	assert.Equal(t, "1Gi", ptr.To(claim.Spec.Resources.Requests[corev1.ResourceStorage]).String())
	h.Holder.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("9Gi")
	claim = virtualClaim(target, "lodestone", "id", h.Holder, h.Real)
	assert.Equal(t, "2Gi", ptr.To(claim.Spec.Resources.Requests[corev1.ResourceStorage]).String(), "never more than there is")

	begun(&h)
	text, err := h.Record.text()
	require.NoError(t, err)
	h.Real.Annotations[keys.Import] = text
	read, err := recordOf(h.Real)
	require.NoError(t, err)
	assert.Equal(t, h.Record.From, read.From)
	h.Real.Annotations[keys.Import] = "{}"
	_, err = recordOf(h.Real)
	assert.ErrorContains(t, err, "cannot be read")
}

func class(t *testing.T, clusters string) virtualclass.Class {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{}}
	if clusters != "" {
		class.Parameters[keys.Clusters] = clusters
	}
	parsed, err := virtualclass.Parse(class)
	require.NoError(t, err)
	return parsed
}

func TestUndoGoesWhileNothingIsGone(t *testing.T) {
	recorded := func(h *Home) { h.Record.Old = "pvc-o1" }
	for name, test := range map[string]struct {
		given []alter
		want  cli.ExitCode
	}{
		"its claim is there": {given: []alter{begun}},
		"it never had one": {given: []alter{func(h *Home) { h.Holder = nil }, begun, func(h *Home) {
			h.Record.From = Holder{}
		}}},
		"somebody else took the name":   {given: []alter{begun, made, cleared}},
		"its claim is going":            {given: []alter{begun, going}, want: cli.Refused},
		"its claim is gone":             {given: []alter{begun, gone}, want: cli.Refused},
		"the virtual claim is there":    {given: []alter{begun, made}, want: cli.Refused},
		"the volume of before is there": {given: []alter{begun, kept, recorded}},
		"the volume of before is going": {given: []alter{begun, kept, recorded, func(h *Home) {
			h.Old.DeletionTimestamp = ptr.To(metav1.Now())
		}}, want: cli.Refused},
		"the volume of before is gone": {given: []alter{begun, kept, recorded, func(h *Home) { h.Old = nil }}, want: cli.Refused},
		"another one stands for the data then": {given: []alter{begun, kept, recorded, func(h *Home) { h.Old.Name = "pvc-o2" }},
			want: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			err := home(test.given...).checkUndo()
			assert.Equal(t, test.want, cli.ExitCodeOf(err), "%v", err)
		})
	}
}

func TestJudgeAtHome(t *testing.T) {
	unclaimed := func(h *Home) { h.Holder, h.Real.Spec.ClaimRef, h.Real.Status.Phase = nil, nil, corev1.VolumeAvailable }
	there := func(h *Home) {
		h.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	}
	for name, test := range map[string]struct {
		given    []alter
		clusters string
		want     cli.ExitCode
		says     string
	}{
		"a claim of its own name": {given: []alter{there}},
		"what policy Retain kept": {given: []alter{kept}},
		"a real volume that was kept": {given: []alter{gone, func(h *Home) {
			h.Real.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}}},
		"a volume that nobody used yet": {given: []alter{unclaimed}},
		"… but the name is taken":       {given: []alter{unclaimed, there}, want: cli.Refused},
		"a pod uses it":                 {given: []alter{used}, want: cli.Refused},
		"it is attached":                {given: []alter{attached}, want: cli.Refused},
		"it is being deleted":           {given: []alter{going}, want: cli.Refused},
		"its data is being deleted":     {given: []alter{gone}, want: cli.Refused},
		"its claim is not bound":        {given: []alter{func(h *Home) { h.Holder.Status.Phase = corev1.ClaimLost }}, want: cli.Refused},
		"it is virtual": {given: []alter{func(h *Home) { h.Real.Annotations[keys.Backing] = "west/a/b/c" }},
			want: cli.Refused},
		"it is the twin of a claim": {given: []alter{kept, func(h *Home) { h.Owner = &corev1.PersistentVolumeClaim{} }},
			want: cli.Refused},
		"the claim that it is the twin of is Lost": {given: []alter{kept, func(h *Home) { h.Owner = lost() }}, want: cli.Refused,
			says: "claim shop/wal, which is Lost: delete that one"},
		"it is a twin in the making": {given: []alter{func(h *Home) {
			h.Holder.Annotations = map[string]string{keys.Unpublished: "true"}
		}}, want: cli.Refused},
		"its virtual volume is in use": {given: []alter{old(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)},
			want: cli.Refused},
		"its virtual volume deletes the data": {given: []alter{old(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)},
			want: cli.Refused},
		"it belongs to a pod": {given: []alter{func(h *Home) {
			h.Holder.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod"}}
		}}, want: cli.Refused},
		"it belongs to another home":        {given: []alter{abroad, protected}, want: cli.Refused},
		"another home has its claim healed": {given: []alter{gone, retained, healed}, want: cli.Refused},
		"it is in another namespace":        {given: []alter{elsewhere}, want: cli.Refused},
		"… which the user named":            {given: []alter{elsewhere, chosen}},
		"it was in another namespace":       {given: []alter{gone, retained, elsewhere}, want: cli.Refused},
		"… which the user named too":        {given: []alter{gone, retained, elsewhere, chosen}},
		"a twin of another namespace": {given: []alter{kept, func(h *Home) { h.Old.Spec.ClaimRef.Namespace = "bank" }},
			want: cli.Refused},
		"a twin that says so itself": {given: []alter{kept, func(h *Home) {
			h.Old, h.Holder.Annotations = nil, map[string]string{keys.Claim: "bank/data"}
		}}, want: cli.Refused},
		"the class is of another cluster":      {clusters: "west", want: cli.Refused},
		"the class is of this cluster as well": {clusters: "west,home"},
	} {
		t.Run(name, func(t *testing.T) {
			err := home(test.given...).Check(class(t, test.clusters), target)
			assert.Equal(t, test.want, cli.ExitCodeOf(err), "%v", err)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
			}
		})
	}
	assert.Equal(t, cli.Refused, cli.ExitCodeOf(home(there).Check(class(t, ""), types.NamespacedName{Namespace: "shop", Name: "other"})),
		"another name that is taken")
}

// lost is a claim whose volume is gone.
func lost() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "wal"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimLost}}
}

// change alters an import from a remote cluster for a test.
type change func(*Remote)

func awayMarked(a *Remote) {
	a.Shadow.Finalizers = []string{keys.BackingFinalizer}
	a.Shadow.Labels = map[string]string{keys.HomeID: "h1"}
	a.Shadow.Annotations = map[string]string{keys.Claim: "shop/data"}
}
func awayOld(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) change {
	return func(a *Remote) {
		a.Old = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-o1"}}
		a.Old.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
		a.Old.Spec.PersistentVolumeReclaimPolicy, a.Old.Status.Phase = policy, phase
	}
}
func awayMade(a *Remote) {
	a.Claim = virtualClaim(a.Target, "lodestone", remoteID("west", a.Shadow), nil, a.Real)
	a.Claim.UID, a.Claim.Status.Phase = "n1", corev1.ClaimPending
}
func awayOwned(a *Remote) { a.Shadow.Labels[keys.ClaimUID] = "n1" }
func awayPublished(a *Remote) {
	a.Virtual = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Backing: remoteID("west",
		a.Shadow)}}}
}
func awayClaimBound(a *Remote) { a.Claim.Status.Phase = corev1.ClaimBound }
func awayCleared(a *Remote)    { delete(a.Claim.Annotations, keys.Import) }
func awayGoing(a *Remote)      { a.Shadow.DeletionTimestamp = ptr.To(metav1.Now()) }
func awayNoted(a *Remote)      { a.Shadow.Annotations[keys.Import] = "h1" }

// away returns an import from cluster west that has not begun, with changes.
func away(changes ...change) Remote {
	a := Remote{Cluster: "west", HomeID: "h1", Target: target, Real: home().Real, Shadow: home().Holder}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func TestNextAndJudgeOfAnImportFromARemoteCluster(t *testing.T) {
	for name, test := range map[string]struct {
		given []change
		want  Step
		code  cli.ExitCode
		says  string
	}{
		"it is protected first": {want: Mark},
		"it is no longer unpublished": {given: []change{awayMarked, func(a *Remote) { a.Shadow.Annotations[keys.Unpublished] = "true" }},
			want: Mark},
		"what was kept loses its old volume": {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)},
			want: DropOld},
		"… also one that was declared lost": {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
			func(a *Remote) { a.Old.Annotations = map[string]string{keys.Lost: "2026-01-01T00:00:00Z"} }}, want: DropOld},
		"… which is going": {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain),
			func(a *Remote) { a.Old.DeletionTimestamp = ptr.To(metav1.Now()) }}, want: Wait},
		"… not if it is in use": {given: []change{awayMarked, awayOld(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)},
			code: cli.Refused},
		"… not if its data goes": {given: []change{awayMarked, awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)},
			code: cli.Refused},
		"the virtual claim is made":  {given: []change{awayMarked}, want: Make},
		"the name is taken":          {given: []change{awayMarked, awayMade, awayCleared}, code: cli.Refused},
		"the claim there is told":    {given: []change{awayMarked, awayMade}, want: Own},
		"the virtual volume is made": {given: []change{awayMarked, awayMade, awayOwned}, want: Publish},
		"the virtual claim is bound": {given: []change{awayMarked, awayMade, awayOwned, awayPublished}, want: Wait},
		"the record goes":            {given: []change{awayMarked, awayMade, awayOwned, awayPublished, awayClaimBound}, want: Clear},
		"all is done": {given: []change{awayMarked, awayMade, awayOwned, awayPublished, awayClaimBound, awayCleared},
			want: Done},
		"the claim there is let alone": {given: []change{awayMarked, awayMade, awayOwned, awayPublished, awayClaimBound, awayCleared, awayNoted},
			want: End},
		"it is virtual there": {given: []change{func(a *Remote) { a.Real.Annotations[keys.Backing] = "east/a/b/c" }}, code: cli.Refused},
		"a pod uses it":       {given: []change{func(a *Remote) { a.Users = []string{"app"} }}, code: cli.Refused},
		"it is being deleted": {given: []change{awayGoing}, code: cli.Refused},
		"… also later":        {given: []change{awayMarked, awayMade, awayGoing}, code: cli.Refused},
		"it is not bound": {given: []change{func(a *Remote) { a.Shadow.Status.Phase, a.Real = corev1.ClaimPending, nil }},
			code: cli.Refused},
		"it belongs to another home": {given: []change{awayMarked, func(a *Remote) { a.Shadow.Labels[keys.HomeID] = "h2" }}, code: cli.Refused},
		"it belongs to a claim": {given: []change{awayMarked, func(a *Remote) { a.Owner = &corev1.PersistentVolumeClaim{} }},
			code: cli.Refused},
		"it belongs to a claim that is Lost": {given: []change{awayMarked, func(a *Remote) { a.Owner = lost() }}, code: cli.Refused,
			says: "claim shop/wal, which is Lost: delete that one"},
		"it belongs to a pod": {given: []change{func(a *Remote) { a.Shadow.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod"}} }},
			code: cli.Refused},
		"it is not there": {given: []change{func(a *Remote) { a.Shadow = nil }}, code: cli.Failed},
		"the virtual claim is deleted": {given: []change{awayMarked, awayMade, func(a *Remote) {
			a.Claim.DeletionTimestamp = ptr.To(metav1.Now())
		}}, want: Wait},
	} {
		t.Run(name, func(t *testing.T) {
			step, what, err := away(test.given...).Next()
			assert.Equal(t, test.code, cli.ExitCodeOf(err), "%v", err)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
			}
			assert.Equal(t, test.want, step)
			assert.Equal(t, step == Wait, what != "", what)
		})
	}
}

func TestUndoOfAnImportFromARemoteCluster(t *testing.T) {
	retain := awayOld(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	owner := func(a *Remote) { a.Owner = &corev1.PersistentVolumeClaim{} }
	for name, test := range map[string]struct {
		given []change
		want  Step
		code  cli.ExitCode
	}{
		"nothing is there to undo":                  {want: Done},
		"the claim there is let go":                 {given: []change{awayMarked, awayNoted}, want: Unmark},
		"… first, while the virtual claim is there": {given: []change{awayMarked, awayNoted, awayMade, awayOwned}, want: Unmark},
		"then the virtual claim goes":               {given: []change{awayMade}, want: Unmake},
		"… which is going": {given: []change{awayMade, func(a *Remote) {
			a.Claim.DeletionTimestamp = ptr.To(metav1.Now())
		}}, want: Done},
		"another claim of its name stays":              {given: []change{awayMade, awayCleared}, want: Done},
		"what home kept there stays kept":              {given: []change{awayMarked, retain}, want: Done},
		"… and is not orphaned with a claim under way": {given: []change{awayMarked, awayMade}, code: cli.Refused},
		"there is a virtual volume": {given: []change{awayMarked, awayNoted, awayMade, awayOwned, awayPublished},
			code: cli.Refused},
		"its virtual claim is no longer that of import": {given: []change{awayMarked, awayNoted, awayMade, awayOwned, awayCleared, owner},
			code: cli.Refused},
		"it is being deleted": {given: []change{awayMarked, awayNoted, awayGoing}, code: cli.Refused},
		"another home has it": {given: []change{awayMarked, awayNoted, func(a *Remote) { a.Shadow.Labels[keys.HomeID] = "h2" }},
			code: cli.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			step, err := away(test.given...).NextUndo()
			assert.Equal(t, test.code, cli.ExitCodeOf(err), "%v", err)
			assert.Equal(t, test.want, step)
		})
	}
}

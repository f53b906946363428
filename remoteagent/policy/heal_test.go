package policy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/remoteagent/policy"
)

type turn func(*policy.Healing)

// healing returns a shadow that has its real volume, after some changes.
func healing(turns ...turn) policy.Healing {
	h := policy.Healing{
		Volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "real"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
				ClaimRef:                      &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "old"},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "fast",
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "data", UID: "old", Finalizers: []string{keys.BackingFinalizer},
				Labels:      map[string]string{keys.HomeID: "h1", keys.ClaimUID: "u1", "team": "a"},
				Annotations: map[string]string{keys.Claim: "shop/data", "pv.kubernetes.io/bind-completed": "yes", "note": "b"},
			},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: "real", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.HomeID: "h1"}}},
	}
	for _, t := range turns {
		t(&h)
	}
	return h
}

var when = ptr.To(metav1.NewTime(time.Unix(1_000_000, 0)))

func deleted(h *policy.Healing)     { h.Claim.DeletionTimestamp = when }
func unpublished(h *policy.Healing) { h.Claim.Annotations[keys.Unpublished] = "true" }
func pending(h *policy.Healing)     { h.Claim.Status.Phase = corev1.ClaimPending }
func letGo(h *policy.Healing)       { h.Claim.Finalizers = []string{"kubernetes.io/pvc-protection"} }
func noShadow(h *policy.Healing)    { h.Claim = nil }
func retained(h *policy.Healing) {
	h.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func volumeGoing(h *policy.Healing)  { h.Volume.DeletionTimestamp = when }
func noNamespace(h *policy.Healing)  { h.Namespace = nil }
func leavingSpace(h *policy.Healing) { h.Namespace.DeletionTimestamp = when }
func unwanted(h *policy.Healing)     { h.Refusal = &policy.Refusal{Reason: "NotHealed", Message: "no"} }

func foreign(h *policy.Healing)    { h.Namespace.Labels = map[string]string{keys.HomeID: "h2"} }
func unreadable(h *policy.Healing) { h.Unreadable = errors.New("no JSON") }

// recorded: healing has begun.
func recorded(h *policy.Healing) {
	h.Record = ptr.To(policy.RecordOf(h.Volume, h.Claim))
	retained(h)
}

// anew: a new shadow has the name, and the volume still names the old one.
func anew(h *policy.Healing) {
	h.Claim = h.Record.Shadow(h.Volume)
	h.Claim.UID, h.Claim.Status.Phase = "new", corev1.ClaimPending
}

func given(h *policy.Healing) { h.Volume.Spec.ClaimRef.UID = "new" }
func touched(h *policy.Healing) {
	delete(h.Claim.Annotations, keys.Healing)
	h.Claim.Status.Phase = corev1.ClaimBound
}

func TestHeal(t *testing.T) {
	for name, test := range map[string]struct {
		turns []turn
		cure  policy.Cure
		tell  string
	}{
		"a shadow that is well is left alone":            {cure: policy.Rest},
		"one that somebody deleted is recorded":          {turns: []turn{deleted}, cure: policy.Begin},
		"… not if it was never published":                {turns: []turn{deleted, unpublished}, cure: policy.Rest},
		"… nor if it is not bound":                       {turns: []turn{deleted, pending}, cure: policy.Rest},
		"… nor if home, or somebody, took our finalizer": {turns: []turn{deleted, letGo}, cure: policy.Rest},
		"… nor without the label of a home cluster": {turns: []turn{deleted, func(h *policy.Healing) {
			delete(h.Claim.Labels, keys.HomeID)
		}}, cure: policy.Rest},
		"… nor if the volume names another": {turns: []turn{deleted, given}, cure: policy.Rest},
		"… nor if the claim names another volume": {turns: []turn{deleted, func(h *policy.Healing) { h.Claim.Spec.VolumeName = "other" }},
			cure: policy.Rest},
		"… nor if the volume is deleted, too":    {turns: []turn{deleted, volumeGoing}, cure: policy.Rest},
		"… nor against the rules, which is told": {turns: []turn{deleted, unwanted}, cure: policy.Rest, tell: "NotHealed"},
		"a volume without a claim is left alone": {turns: []turn{noShadow}, cure: policy.Rest},
		"then the shadow is let go":              {turns: []turn{deleted, recorded}, cure: policy.LetGo},
		"… not before the volume outlives it": {turns: []turn{deleted, recorded, func(h *policy.Healing) {
			h.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}}, cure: policy.Insist},
		"… and not if the rules have changed":   {turns: []turn{deleted, recorded, unwanted}, cure: policy.Undo, tell: "NotHealed"},
		"… nor if the volume is deleted by now": {turns: []turn{deleted, recorded, volumeGoing}, cure: policy.Abide, tell: "NotHealed"},
		"a pod that uses it is waited for":      {turns: []turn{deleted, recorded, letGo}, cure: policy.Abide},
		"then it is made anew":                  {turns: []turn{recorded, noShadow}, cure: policy.Rebuild},
		"… not if the rules have changed since": {turns: []turn{recorded, noShadow, unwanted}, cure: policy.Abide, tell: "NotHealed"},
		"… not before the volume stays": {turns: []turn{recorded, noShadow, func(h *policy.Healing) {
			h.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}}, cure: policy.Insist},
		"… not before its namespace is there":     {turns: []turn{recorded, noShadow, noNamespace}, cure: policy.Abide},
		"… nor while that is being deleted":       {turns: []turn{recorded, noShadow, leavingSpace}, cure: policy.Abide},
		"… nor in one that was not made for home": {turns: []turn{recorded, noShadow, foreign}, cure: policy.Abide, tell: "NotHealed"},
		"… and if there will be none that is told": {turns: []turn{recorded, noShadow, noNamespace, unwanted}, cure: policy.Abide,
			tell: "NotHealed"},
		"a claim that somebody made meanwhile is told of": {turns: []turn{recorded, anew, func(h *policy.Healing) { h.Claim.Labels = nil }},
			cure: policy.Abide, tell: "NameTaken"},
		"the volume is given to the new shadow":           {turns: []turn{recorded, anew}, cure: policy.Give},
		"… not to one that is deleted again":              {turns: []turn{recorded, anew, deleted}, cure: policy.LetGo},
		"… which may go at any time":                      {turns: []turn{recorded, anew, deleted, unwanted}, cure: policy.LetGo},
		"… nor in a namespace that was not made for home": {turns: []turn{recorded, anew, foreign}, cure: policy.Abide, tell: "NotHealed"},
		"… nor in one without a label": {turns: []turn{recorded, anew, func(h *policy.Healing) { h.Namespace.Labels = nil }},
			cure: policy.Abide, tell: "NotHealed"},
		"… nor while its namespace is being deleted": {turns: []turn{recorded, anew, leavingSpace}, cure: policy.Abide},
		"… nor against the rules":                    {turns: []turn{recorded, anew, unwanted}, cure: policy.Abide, tell: "NotHealed"},
		"one that nothing protects is protected":     {turns: []turn{recorded, anew, given, letGo}, cure: policy.Protect},
		"… also once it is bound":                    {turns: []turn{recorded, anew, given, touched, letGo}, cure: policy.Protect},
		"a record that cannot be read is told of":    {turns: []turn{unreadable}, cure: policy.Abide, tell: "NotHealed"},
		"a twin is none of ours": {turns: []turn{deleted, unwanted, func(h *policy.Healing) {
			h.Namespace.Labels = nil
		}}, cure: policy.Rest},
		"what an import left is told of": {turns: []turn{deleted, func(h *policy.Healing) {
			delete(h.Claim.Labels, keys.ClaimUID)
		}}, cure: policy.Rest, tell: "NotHealed"},
		"then Kubernetes is told": {turns: []turn{recorded, anew, given}, cure: policy.Touch},
		"… but not before it has seen the volume": {turns: []turn{recorded, anew, given, func(h *policy.Healing) {
			h.Volume.Status.Phase = corev1.VolumeReleased
		}}, cure: policy.Abide},
		"then the shadow is waited for":                    {turns: []turn{recorded, anew, given, touched, pending}, cure: policy.Abide},
		"then all is as before":                            {turns: []turn{recorded, anew, given, touched}, cure: policy.End},
		"a new shadow that is deleted again is healed too": {turns: []turn{recorded, anew, given, touched, deleted}, cure: policy.LetGo},
		"a volume that names no claim is told of": {turns: []turn{recorded, noShadow, func(h *policy.Healing) {
			h.Volume.Spec.ClaimRef = nil
		}}, cure: policy.Abide, tell: "NotHealed"},
	} {
		t.Run(name, func(t *testing.T) {
			step := policy.Heal(healing(test.turns...))
			assert.Equal(t, test.cure, step.Cure)
			tell := ""
			if step.Warning != nil {
				tell = step.Warning.Reason
			}
			assert.Equal(t, test.tell, tell)
		})
	}
}

func TestRecord(t *testing.T) {
	h := healing(deleted, recorded)
	text, err := h.Record.Encode()
	require.NoError(t, err)
	h.Volume.Annotations = map[string]string{keys.HealingRecord: text}
	read, err := policy.ReadRecord(h.Volume)
	require.NoError(t, err)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, read.ReclaimPolicy)
	shadow := read.Shadow(h.Volume)
	assert.Equal(t, h.Claim.Labels, shadow.Labels)
	assert.Equal(t, map[string]string{keys.Claim: "shop/data", "note": "b", keys.Healing: "true"}, shadow.Annotations,
		"what Kubernetes noted of the old one is not kept")
	assert.Equal(t, []string{keys.BackingFinalizer}, shadow.Finalizers)
	assert.Equal(t, "real", shadow.Spec.VolumeName)
	assert.Equal(t, "1Gi", ptr.To(shadow.Spec.Resources.Requests[corev1.ResourceStorage]).String())
	assert.Equal(t, h.Claim.Spec.StorageClassName, shadow.Spec.StorageClassName)

	more := healing(deleted, func(h *policy.Healing) {
		h.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
		h.Claim.Annotations["essay"] = strings.Repeat("x", 100_000)
	}, recorded)
	assert.Equal(t, "2Gi", more.Record.Request.String(), "a volume is not bound to a claim for more than it has")
	assert.Equal(t, map[string]string{keys.Claim: "shop/data"}, more.Record.Annotations)
	assert.Equal(t, map[string]string{keys.HomeID: "h1", keys.ClaimUID: "u1"}, more.Record.Labels)

	for name, text := range map[string]string{
		"no JSON":             "hello",
		"no such policy":      `{"reclaimPolicy":"Burn","labels":{"lodestone.dev/home":"h1","lodestone.dev/claim-uid":"u1"}}`,
		"a claim of nobody's": `{"reclaimPolicy":"Delete"}`,
	} {
		h.Volume.Annotations[keys.HealingRecord] = text
		_, err := policy.ReadRecord(h.Volume)
		assert.Error(t, err, name)
	}
	delete(h.Volume.Annotations, keys.HealingRecord)
	none, err := policy.ReadRecord(h.Volume)
	assert.NoError(t, err)
	assert.Nil(t, none)
}

func TestMend(t *testing.T) {
	home := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: "h1"},
		Spec: remotev1alpha1.HomeClusterSpec{Namespaces: remotev1alpha1.NamespacePolicy{Maximum: ptr.To[int32](1)}}}
	request := &remotev1alpha1.NamespaceRequest{ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop"},
		Status: remotev1alpha1.NamespaceRequestStatus{Conditions: []metav1.Condition{
			{Type: remotev1alpha1.Ready, Status: metav1.ConditionTrue}}}}
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{keys.HomeID: "h1"},
		Annotations: map[string]string{keys.MadeFor: "h1/shop"}}}
	going, foreign := made.DeepCopy(), made.DeepCopy()
	going.DeletionTimestamp, foreign.Annotations = when, nil
	foreignGoing := foreign.DeepCopy()
	foreignGoing.DeletionTimestamp = when
	leaving, ended, narrowed := home.DeepCopy(), request.DeepCopy(), home.DeepCopy()
	leaving.DeletionTimestamp, ended.DeletionTimestamp = when, when
	narrowed.Spec.Namespaces.Names = []string{"lab-*"}
	for name, test := range map[string]struct {
		home      *remotev1alpha1.HomeCluster
		request   *remotev1alpha1.NamespaceRequest
		namespace *corev1.Namespace
		count     int
		stuck     string
		gone      bool
		says      string
	}{
		"a namespace that was given":              {home: home, request: request, namespace: made, count: 1},
		"one that is to be made again":            {home: home, request: request, namespace: going, count: 1},
		"one that is gone and will be made again": {home: home, request: request},
		"a home cluster that is not known":        {request: request, namespace: made, says: "served no longer"},
		"… whose claim is there still": {request: request, namespace: made,
			says: "take its finalizer lodestone.dev/backing off"},
		"… whose claim is gone": {request: request, gone: true,
			says: "take label lodestone.dev/healing and annotation lodestone.dev/healing-record off its volume"},
		"… which asks no longer, and the claim is gone": {home: home, gone: true, says: "give that the reclaim policy"},
		"one that is being removed":                     {home: leaving, request: request, namespace: made, says: "served no longer"},
		"a namespace that home does not ask for":        {home: home, namespace: made, says: "asks for the namespace no longer"},
		"one that it gives up":                          {home: home, request: ended, namespace: made, says: "asks for the namespace no longer"},
		"a namespace of somebody else": {home: home, request: request, namespace: foreign,
			says: "was not made for home cluster h1"},
		"one that is being deleted": {home: home, request: request, namespace: foreignGoing,
			says: "was not made for home cluster h1"},
		"one that would not be given again": {home: narrowed, request: request, namespace: going, count: 1, says: "lab-*"},
		"… for there would be too many":     {home: home, request: request, namespace: going, count: 2, says: "its owner allows 1"},
		"… while it is there all is well":   {home: narrowed, request: request, namespace: made, count: 2},
		"one that another claim keeps from going": {home: home, request: request, namespace: going, count: 1, stuck: "wait",
			says: "claim wait"},
		"one that is gone and would not be given again": {home: narrowed, request: request, says: "lab-*"},
	} {
		t.Run(name, func(t *testing.T) {
			refusal := policy.PermitRebuild(policy.Rebuilding{
				Home: test.home, Request: test.request, Namespace: test.namespace, Count: test.count, BlockedBy: test.stuck, Gone: test.gone})
			assert.Equal(t, test.says == "", refusal == nil, "%+v", refusal)
			if refusal != nil {
				assert.Contains(t, refusal.Message, test.says)
			}
		})
	}
	assert.True(t, policy.BlocksNamespace(healing(pending).Claim))
	assert.True(t, policy.BlocksNamespace(healing(unpublished).Claim))
	assert.False(t, policy.BlocksNamespace(healing().Claim))
	assert.False(t, policy.BlocksNamespace(healing(pending, letGo).Claim))
}

// world is what Kubernetes does after the steps, as far as it matters here.
type world struct {
	h    policy.Healing
	uids int
	// inUse: a pod uses the claim.
	inUse bool
	lost  string
}

// react is what the controllers of Kubernetes do by themselves.
func (w *world) react() {
	v, c := w.h.Volume, w.h.Claim
	if c != nil && c.DeletionTimestamp != nil && !slices.Contains(c.Finalizers, keys.BackingFinalizer) && !w.inUse {
		w.h.Claim, c = nil, nil
	}
	if w.h.Namespace != nil && w.h.Namespace.DeletionTimestamp != nil {
		w.inUse = false // its pods are deleted
		switch {
		case c == nil:
			w.h.Namespace = nil
		case c.DeletionTimestamp == nil:
			c.DeletionTimestamp = when
		}
	}
	holds := c != nil && c.UID == v.Spec.ClaimRef.UID && c.Spec.VolumeName == v.Name
	switch {
	case !holds:
		v.Status.Phase = corev1.VolumeReleased
		if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			w.lost = "the real volume was deleted with its data"
		}
	default:
		v.Status.Phase = corev1.VolumeBound
		c.Status.Phase = corev1.ClaimBound
	}
}

// take takes a step of the agent.
func (w *world) take(cure policy.Cure) {
	v, c := w.h.Volume, w.h.Claim
	switch cure {
	case policy.Begin:
		recorded(&w.h)
	case policy.Insist:
		retained(&w.h)
	case policy.LetGo:
		c.Finalizers = nil
	case policy.Rebuild:
		if c != nil {
			w.lost = "a second claim of one name"
		}
		w.uids++
		w.h.Claim = w.h.Record.Shadow(v)
		w.h.Claim.UID, w.h.Claim.Status.Phase = types.UID(fmt.Sprint("new-", w.uids)), corev1.ClaimPending
	case policy.Give:
		if w.h.Refusal != nil || w.h.Namespace == nil || w.h.Namespace.Labels[keys.HomeID] != "h1" {
			w.lost = "a volume given to somebody else"
		}
		v.Spec.ClaimRef.UID = c.UID
	case policy.Protect:
		c.Finalizers = append(c.Finalizers, keys.BackingFinalizer)
	case policy.Touch:
		delete(c.Annotations, keys.Healing)
	case policy.End, policy.Undo:
		if c == nil || c.UID != v.Spec.ClaimRef.UID || !slices.Contains(c.Finalizers, keys.BackingFinalizer) {
			w.lost = "a volume that nothing holds may be deleted"
		}
		v.Spec.PersistentVolumeReclaimPolicy, w.h.Record = w.h.Record.ReclaimPolicy, nil
	default:
	}
}

// disturb is what people do.
func (w *world) disturb(r *rand.Rand) {
	switch r.IntN(11) {
	case 0:
		if w.h.Claim != nil && w.h.Claim.DeletionTimestamp == nil {
			w.h.Claim.DeletionTimestamp = when
		}
	case 1:
		if w.h.Namespace != nil && r.IntN(3) == 0 {
			w.h.Namespace.DeletionTimestamp = when
		}
	case 2:
		w.inUse = w.h.Claim != nil && w.h.Claim.DeletionTimestamp == nil
	case 3:
		w.inUse = false
	case 4:
		w.h.Refusal = nil
		if r.IntN(2) == 0 {
			unwanted(&w.h)
		}
	case 5:
		if w.h.Namespace == nil {
			w.h.Namespace = healing().Namespace
			if r.IntN(3) == 0 {
				w.h.Namespace.Labels = nil // somebody else's
			}
		}
	case 6:
		if w.h.Claim == nil && w.h.Namespace != nil && w.h.Namespace.DeletionTimestamp == nil && r.IntN(4) == 0 {
			w.h.Claim = &corev1.PersistentVolumeClaim{}
			w.h.Claim.UID = "stranger"
		}
	case 7:
		if w.h.Claim != nil && w.h.Claim.UID == "stranger" {
			w.h.Claim = nil
		}
	case 8:
		if w.h.Record != nil && w.h.Claim != nil {
			w.h.Claim.Finalizers = nil
		}
	case 9:
		// Somebody who knows what the shadow was like makes one.
		if w.h.Record != nil && w.h.Claim == nil && w.h.Namespace != nil && w.h.Namespace.DeletionTimestamp == nil {
			w.uids++
			w.h.Claim = w.h.Record.Shadow(w.h.Volume)
			w.h.Claim.UID, w.h.Claim.Status.Phase = types.UID(fmt.Sprint("forged-", w.uids)), corev1.ClaimPending
			w.h.Claim.Annotations, w.h.Claim.Finalizers = nil, nil
		}
	case 10:
		w.notOurs()
	}
}

// notOurs deletes a namespace that was not made for home, with all that is in it.
func (w *world) notOurs() {
	if w.h.Namespace != nil && w.h.Namespace.Labels == nil {
		w.h.Namespace, w.h.Claim, w.inUse = nil, nil, false
	}
}

// TestHealNeverLosesAVolume walks at random: steps of the agent, after any of which it may pause,
// among what Kubernetes and people do. Then people stop.
func TestHealNeverLosesAVolume(t *testing.T) {
	cures := map[policy.Cure]int{}
	for seed := range uint64(6_000) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := &world{h: healing()}
		step := func() {
			cure := policy.Heal(w.h).Cure
			cures[cure]++
			w.take(cure)
		}
		for range 5 + r.IntN(40) {
			[]func(){step, step, w.react, w.react, func() { w.disturb(r) }}[r.IntN(5)]()
			require.Empty(t, w.lost, "seed %d: %+v", seed, w.h)
		}
		w.h.Refusal, w.inUse = nil, false
		w.notOurs()
		if w.h.Claim != nil && w.h.Claim.UID == "stranger" {
			w.h.Claim = nil
		}
		for range 40 {
			step()
			w.react()
			if w.h.Namespace == nil {
				w.h.Namespace = healing().Namespace
			}
			require.Empty(t, w.lost, "seed %d: %+v", seed, w.h)
		}
		require.Nil(t, w.h.Record, "seed %d: healed in the end", seed)
		require.Equal(t, corev1.PersistentVolumeReclaimDelete, w.h.Volume.Spec.PersistentVolumeReclaimPolicy, "seed %d", seed)
		require.NotNil(t, w.h.Claim, "seed %d", seed)
		require.Nil(t, w.h.Claim.DeletionTimestamp, "seed %d", seed)
		require.Equal(t, w.h.Claim.UID, w.h.Volume.Spec.ClaimRef.UID, "seed %d", seed)
		require.Equal(t, []string{keys.BackingFinalizer}, w.h.Claim.Finalizers, "seed %d", seed)
	}
	for _, cure := range []policy.Cure{policy.Rest, policy.Abide, policy.Begin, policy.LetGo, policy.Rebuild, policy.Give, policy.Protect,
		policy.Touch, policy.End, policy.Undo} {
		require.Greater(t, cures[cure], 20, "too few walks lead to %s to say anything", cure)
	}
}

package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

func TestWhichVolumeATwinWillBeBoundTo(t *testing.T) {
	claim := func(alter func(*corev1.PersistentVolumeClaim)) func(*steps.Backing) {
		return func(b *steps.Backing) { alter(b.Claim) }
	}
	phase := func(now corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Status.Phase = now }
	}
	mode := func(is corev1.PersistentVolumeMode) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &is }
	}
	for name, test := range map[string]struct {
		volume func(*corev1.PersistentVolume)
		twin   func(*steps.Backing)
		want   bool
	}{
		"the one that was made for it":         {want: true},
		"… and is Available for a moment":      {volume: phase(corev1.VolumeAvailable), want: true},
		"… and is Bound already":               {volume: phase(corev1.VolumeBound), want: true},
		"… and is larger":                      {volume: func(v *corev1.PersistentVolume) { v.Spec.Capacity = storage("2Gi") }, want: true},
		"… and says that it has a file system": {volume: mode(corev1.PersistentVolumeFilesystem), want: true},
		"… and which it names":                 {twin: func(b *steps.Backing) { b.Volume, b.Made = b.Made, nil }, want: true},
		"none is there":                        {twin: func(b *steps.Backing) { b.Made = nil }},
		"not one that names nothing":           {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }},
		"not one that names its name alone":    {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" }},
		"not one that names an earlier twin":   {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "earlier" }},
		"not one that names another name":      {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "other" }},
		"not one that names another namespace": {volume: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "other" }},
		"not one that somebody made by hand":   {volume: func(v *corev1.PersistentVolume) { v.Annotations = nil }},
		"not one of another provisioner": {volume: func(v *corev1.PersistentVolume) {
			v.Annotations["pv.kubernetes.io/provisioned-by"] = "other"
		}},
		"not one of another class":              {volume: func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "now" }},
		"not one that is smaller":               {volume: func(v *corev1.PersistentVolume) { v.Spec.Capacity = storage("1023Mi") }},
		"not one that says no size":             {volume: func(v *corev1.PersistentVolume) { v.Spec.Capacity = nil }},
		"not one without a mode that is needed": {volume: func(v *corev1.PersistentVolume) { v.Spec.AccessModes = v.Spec.AccessModes[1:] }},
		"not one without a file system":         {volume: mode(corev1.PersistentVolumeBlock)},
		"not one of other attributes": {volume: func(v *corev1.PersistentVolume) {
			v.Spec.VolumeAttributesClassName = ptr.To("gold")
		}},
		"not one without attributes": {twin: having("gold")},
		"not one that is being deleted": {volume: func(v *corev1.PersistentVolume) {
			v.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		}},
		"not one that is released":               {volume: phase(corev1.VolumeReleased)},
		"not one that has failed":                {volume: phase(corev1.VolumeFailed)},
		"not for a twin that is being deleted":   {twin: terminating},
		"not for a twin of another class":        {twin: of("now")},
		"not for a twin that is a copy":          {twin: fromSource},
		"not for a twin that was published once": {twin: published},
		"not for a twin that lost its volume":    {twin: claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })},
	} {
		t.Run(name, func(t *testing.T) {
			alter := []func(*steps.Backing){promised()}
			if test.volume != nil {
				alter = []func(*steps.Backing){promised(test.volume)}
			}
			if test.twin != nil {
				alter = append(alter, test.twin)
			}
			o := observe(have(keys.Home, alter...))
			assert.Equal(t, test.want, decide.Ready(o.Backings[0], routeTo(keys.Home, true)))
			assert.False(t, decide.Ready(o.Backings[0], routeTo(keys.Home, false)), "a class that binds at once may give it any free volume")
		})
	}
}

func TestNextForATwinThatIsNotBoundYet(t *testing.T) {
	made := []change{on("node-1"), driven(keys.Home, driver), have(keys.Home, promised())}
	given := func(more ...change) []change { return append(append([]change{}, made...), more...) }
	check(t, map[string]row{
		"it is published as soon as its volume is made":    {given: given(), verb: "Publish", cluster: keys.Home},
		"… but a kept volume is not":                       {given: given(retain), verb: "Idle", after: true},
		"… and neither is one of a class that binds early": {given: given(parameter(keys.LocalClass, "now")), verb: "Remove", cluster: keys.Home},
		"… nor while a claim of the same pod waits":        {given: given(sibling(false)), verb: "Idle", after: true},
		"… and with a claim of the same pod that does not": {given: given(sibling(true)), verb: "Publish", cluster: keys.Home},
		"… nor one for another node":                       {given: given(on("node-2")), verb: "Remove", cluster: keys.Home},
		"the selected node that it lost does not matter": {
			given: []change{on("node-1"), driven(keys.Home, driver), have(keys.Home, promised(), dropped)}, verb: "Publish", cluster: keys.Home},
		"a kept volume is marked once it is bound": {
			given: []change{on("node-1"), have(keys.Home, pvcBound, of("wait")), retain}, verb: "Mark", cluster: keys.Home},
	})
	step := decide.Next(observe(given()...))
	require.NotNil(t, backingOf(step).Volume)
	assert.Equal(t, "pvc-b-home", backingOf(step).Volume.Name, "the virtual volume is made of it")
}

// onTime is a virtual volume that was made before its twin was bound.
func onTime(v *corev1.PersistentVolume) { v.Annotations[keys.BackingVolume] = "pvc-b-home" }

// boundAs binds a twin to a volume.
func boundAs(name string) func(*steps.Backing) {
	return func(b *steps.Backing) {
		pvcBound(b)
		b.Claim.Spec.VolumeName, b.Volume.Name, b.Made = name, name, nil
	}
}

func TestNextForAVolumeWhoseTwinIsNotBoundYet(t *testing.T) {
	const idle = "Idle"
	bound, made := boundTo("pvc-u1"), volume(keys.Home, onTime)
	promise, other := have(keys.Home, promised()), have(keys.Home, boundAs("other"))
	locked := func(o *steps.Observation) {
		o.Claim.Labels = map[string]string{keys.Moving: keys.MovingNow}
		o.Claim.Annotations[keys.Move] = keys.NoMove
	}
	check(t, map[string]row{
		"it is not marked": {given: []change{bound, volume(keys.Home, onTime, madeBefore(0)), promise}, verb: idle, after: true},
		"… even if its claim is not bound yet": {given: []change{volume(keys.Home, onTime, madeBefore(0)), promise}, verb: idle,
			after: true},
		"… until it is bound": {given: []change{bound, made, have(keys.Home, promised(), boundAs("pvc-b-home"))}, verb: "Mark",
			cluster: keys.Home},
		"… whether its volume is seen or not": {
			given: []change{bound, made, have(keys.Home, boundAs("pvc-b-home"), volumeUnseen)}, verb: "Mark", cluster: keys.Home},
		"what it waits for is asked": {given: []change{bound, volume(keys.Home, onTime, madeBefore(time.Minute)), promise},
			verb: "Ask", cluster: keys.Home},
		"… and told if it takes long": {given: []change{bound, volume(keys.Home, onTime, madeBefore(time.Hour)), promise,
			said(keys.Home, "FailedBinding", "no")}, verb: idle, tell: "BackingPending", after: true},
		"new pods wait if it is bound to another volume": {given: []change{bound, made, other},
			verb: "Lock", cluster: keys.Home, tell: "BackingMisbound"},
		"… which is not seen": {given: []change{bound, made, have(keys.Home, boundAs("other"), volumeUnseen)},
			verb: "Lock", cluster: keys.Home, tell: "BackingMisbound"},
		"… and which kube-controller-manager is not done with": {given: []change{bound, made, have(keys.Home,
			boundAs("other"), func(b *steps.Backing) { b.Claim.Status.Phase = corev1.ClaimPending })}, verb: "Lock", cluster: keys.Home,
			tell: "BackingMisbound"},
		"… and is told of while they do": {given: []change{bound, made, other, locked},
			verb: idle, tell: "BackingMisbound", after: true},
		"a claim that is not bound has no pods": {given: []change{made, other},
			verb: idle, tell: "BackingMisbound", after: true},
		"one that is being deleted gets none": {given: []change{bound, deletedClaim, made, other},
			verb: idle, tell: "BackingMisbound", after: true},
		"what its claim is deleted with goes": {given: []change{noClaim, volume(keys.Home, onTime, released), promise},
			verb: "Release", cluster: keys.Home},
	})
	step := decide.Next(observe(bound, made, other))
	assert.Equal(t, `real claim shop/data in the home cluster was bound to volume "other", but this claim's volume is "pvc-b-home", which may be `+
		`deleted now: new pods wait; save what running pods have written, then delete this claim and create it anew`, step.Tell.Text)
	assert.Equal(t, step.Tell.Text, step.Shows)
}

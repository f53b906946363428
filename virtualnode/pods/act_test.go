package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
)

func TestAShadowPodIsSweptOnlyWhenItsHomePodIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		home    []runtime.Object
		deletes int
	}{
		"the home pod is gone":                   {deletes: 1},
		"another home pod has the name":          {home: []runtime.Object{homePodOn("west", "u2")}, deletes: 1},
		"the home pod is there":                  {home: []runtime.Object{homePodOn("west", "u1")}},
		"the home pod is on another node":        {home: []runtime.Object{homePodOn("east", "u1")}},
		"the home pod is not on any node so far": {home: []runtime.Object{homePodOn("", "u1")}},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := shadowOf("s1", "h1", "u1", true)
			remote := &there{shadow: shadow}
			r := newRunner(t, remote, test.home...)
			result := r.sweep(t.Context(), key{uid: "u1", namespace: "shop", name: "db-0"}, shadow)
			require.NoError(t, result.err)
			assert.EqualValues(t, test.deletes, remote.deletes.Load())
			assert.Equal(t, lookAgain, result.after, "it is looked at again")
		})
	}
}

func shadowOf(uid types.UID, home string, pod types.UID, start bool) *shadowPod {
	return &shadowPod{
		TypeMeta: metav1.TypeMeta{APIVersion: "remote.lodestone.dev/v1alpha1", Kind: "ShadowPod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: uid,
			Labels: map[string]string{keys.HomeID: home, keys.PodUID: string(pod)}},
		Spec: remotev1alpha1.ShadowPodSpec{Start: start, Home: remotev1alpha1.HomePod{Cluster: home, Namespace: "shop", Name: "db-0", UID: pod}},
	}
}

func homePodOn(node string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: uid,
			Annotations: map[string]string{keys.RemoteCopy: decide.Copy{ClusterUID: "west-uid", ShadowUID: "s1"}.String()}},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

func TestACopyIsGoneOnlyWhenNothingOfThisPodIsThere(t *testing.T) {
	pod := func(home string) []corev1.Pod {
		return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0",
			Labels: map[string]string{keys.HomeID: home, keys.PodUID: "u1"}}}}
	}
	for name, test := range map[string]struct {
		shadow *shadowPod
		pods   []corev1.Pod
		want   bool
	}{
		"nothing is there":       {want: true},
		"its ShadowPod is there": {shadow: shadowOf("s1", "h1", "u1", true)},
		"its ShadowPod is there, from when home had another ID": {shadow: shadowOf("s1", "h0", "u1", true)},
		"its pod is there": {pods: pod("h1")},
		"its pod is there, from when home had another ID": {pods: pod("h0")},
		"another ShadowPod of it runs":                    {shadow: shadowOf("s2", "h1", "u1", true)},
		"another ShadowPod of it never ran":               {shadow: shadowOf("s2", "h1", "u1", false), want: true},
		"the ShadowPod of another pod has the name":       {shadow: shadowOf("s2", "h1", "u2", true), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t, &there{shadow: test.shadow, pods: test.pods})
			gone, err := r.gone(t.Context(), key{uid: "u1", namespace: "shop", name: "db-0"}, homePodOn("west", "u1"))
			require.NoError(t, err)
			assert.Equal(t, test.want, gone)
		})
	}
}

func TestAbsentMeansJustThisObject(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                      {},
		"the object does not exist":     {err: apierrors.NewNotFound(pods, "web"), want: true},
		"the same in other words":       {err: fmt.Errorf("get: %w", apierrors.NewNotFound(pods, "web")), want: true},
		"another object does not exist": {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")},
		"the kind of object does not exist": {err: apierrors.NewGenericServerResponse(404, "GET", pods, "",
			"the server could not find the requested resource", 0, false)},
		"something else answers for the API": {err: apierrors.NewGenericServerResponse(404, "GET", pods, "web", "404 page not found", 0, true)},
		"no rights":                          {err: apierrors.NewForbidden(pods, "web", errors.New("no"))},
		"no answer":                          {err: errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, absent(test.err, "web")) })
	}
}

func claimWith(volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c1"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

// markedClaim is one that whoever manages its storage has marked as usable in west.
func markedClaim(volume string) *corev1.PersistentVolumeClaim {
	claim := claimWith(volume)
	claim.Annotations = map[string]string{keys.UsableIn: "west"}
	return claim
}

// claimThere is claim shop/data of the remote cluster, made for a claim of home; for none if owner is
// empty.
func claimThere(uid, owner types.UID) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid}}
	if owner != "" {
		claim.Labels = map[string]string{keys.ClaimUID: string(owner)}
	}
	return claim
}

func volumeOf(claim types.UID, ref string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-c1"},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: claim}}}
	if ref != "" {
		volume.Annotations = map[string]string{keys.Backing: ref}
	}
	return volume
}

func TestAPodGetsTheRealClaimThatItsVolumeNames(t *testing.T) {
	for name, test := range map[string]struct {
		home  []runtime.Object
		claim *corev1.PersistentVolumeClaim
		want  string
		says  string
	}{
		"made for this claim": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/data/b1")},
			claim: claimThere("b1", "c1"), want: "data"},
		"made for this claim, and made anew since": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/data/b1")},
			claim: claimThere("b2", "c1"), want: "data"},
		"made for an earlier claim, and named by the volume, which was restored": {
			home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/data/b1")}, claim: claimThere("b1", "c0"), want: "data"},
		"made by hand in the remote cluster": {home: []runtime.Object{markedClaim("pvc-c1"), volumeOf("c1", "")},
			claim: claimThere("b1", ""), want: "data"},
		"not made for an earlier claim of the name": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/data/b1")},
			claim: claimThere("b2", "c0"), says: "was made for another claim than shop/data"},
		"not made for another claim, by a claim of another class": {home: []runtime.Object{markedClaim("pvc-c1"), volumeOf("c1", "")},
			claim: claimThere("b1", "c0"), says: "was made for another claim than shop/data"},
		"not made for another claim, by one without a volume": {home: []runtime.Object{markedClaim("")},
			claim: claimThere("b1", "c0"), says: "was made for another claim than shop/data"},
		"not made for another claim, by none at all": {claim: claimThere("b1", "c0"), says: "was made for another claim than shop/data"},
		"of the same name": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/data/b1")},
			want: "data"},
		"of another name": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "west/shop/pvc-c1-1/b1")},
			want: "pvc-c1-1"},
		"without a claim at home":             {want: "data"},
		"of a claim without a volume":         {home: []runtime.Object{markedClaim("")}, want: "data"},
		"of a volume that is not Lodestone's": {home: []runtime.Object{markedClaim("pvc-c1"), volumeOf("c1", "")}, want: "data"},
		"not while the volume is gone":        {home: []runtime.Object{claimWith("pvc-c1")}, says: "has lost its volume"},
		"not of the volume of another claim": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c2", "west/shop/data/b1")},
			says: "is not, or no longer, that of claim"},
		"not where the data is at home": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "home/lodestone-storage/pvc-c1/b1")},
			says: "is not in namespace shop of cluster west"},
		"not where the data is in another one": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "east/shop/data/b1")},
			says: "but in shop of east"},
		"not of a reference that says nothing": {home: []runtime.Object{claimWith("pvc-c1"), volumeOf("c1", "?")},
			says: "cluster/namespace/name/uid"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := homePodOn("west", "u1")
			o := decide.Observation{Pod: pod, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}}
			got, err := newRunner(t, &there{claim: test.claim}, test.home...).withClaims(t.Context(),
				key{uid: "u1", namespace: "shop", name: "db-0"}, o)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
			assert.Equal(t, "data", o.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, "what was observed is not changed")
		})
	}
}

func TestAPodUsesAClaimThatIsNotLodestonesOnlyIfThatIsMarked(t *testing.T) {
	of := func(claim *corev1.PersistentVolumeClaim, class string) *corev1.PersistentVolumeClaim {
		claim.Spec.StorageClassName = &class
		return claim
	}
	class := func(name, provisioner, mark string) *storagev1.StorageClass {
		made := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
		if mark != "" {
			made.Annotations = map[string]string{keys.UsableIn: mark}
		}
		return made
	}
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		made := volumeOf("c1", "")
		change(made)
		return made
	}
	plain := func(*corev1.PersistentVolume) {}
	for name, test := range map[string]struct {
		home []runtime.Object
		says string
	}{
		"its class says nothing": {home: []runtime.Object{of(claimWith(""), "local"), class("local", "disk", "")},
			says: `claim "data" is of storage class "local", which is not Lodestone's`},
		"its class does not exist": {home: []runtime.Object{of(claimWith("pvc-c1"), "local"), volume(plain)},
			says: `claim "data" is of storage class "local", which is not Lodestone's`},
		"it has no class": {home: []runtime.Object{of(claimWith("pvc-c1"), ""), volume(plain)}, says: `claim "data" has no storage class`},
		"its mark names another cluster": {home: []runtime.Object{of(claimWith("pvc-c1"), "local"), class("local", "disk", "east"),
			volume(plain)}, says: "annotate this one with lodestone.dev/usable-in=west"},
		"its class is marked":  {home: []runtime.Object{of(claimWith(""), "local"), class("local", "disk", "*")}},
		"its class is virtual": {home: []runtime.Object{of(claimWith(""), "lodestone"), class("lodestone", keys.Driver, "")}},
		"its volume is marked": {home: []runtime.Object{of(claimWith("pvc-c1"), "local"), class("local", "disk", ""),
			volume(func(v *corev1.PersistentVolume) { v.Annotations = map[string]string{keys.UsableIn: "east, west"} })}},
		"its volume is labelled": {home: []runtime.Object{of(claimWith("pvc-c1"), "local"), class("local", "disk", ""),
			volume(func(v *corev1.PersistentVolume) { v.Labels = map[string]string{keys.Cluster: "west"} })}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRunner(t, &there{}, test.home...).realClaim(t.Context(), "shop", "data")
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			var stays *staysHomeError
			require.ErrorAs(t, err, &stays)
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func TestStatusPatchHoldsOnlyWhatDiffers(t *testing.T) {
	was := corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, Message: "old", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []corev1.PodCondition{{Type: "A", Status: "True"}, {Type: "B", Status: "True"}},
	}
	is := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{{Type: "A", Status: "True"}, {Type: "B", Status: "False"}},
	}
	patch, err := statusPatch(was, is)
	require.NoError(t, err)
	assert.Equal(t, []string{"status"}, keysOf(patch))
	assert.NotContains(t, patch["status"], "qosClass")

	before, err := json.Marshal(corev1.Pod{Status: was})
	require.NoError(t, err)
	data, err := json.Marshal(patch)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, data, corev1.Pod{})
	require.NoError(t, err)
	var got corev1.Pod
	require.NoError(t, json.Unmarshal(after, &got))
	assert.Equal(t, corev1.PodRunning, got.Status.Phase)
	assert.Empty(t, got.Status.Message)
	assert.Empty(t, got.Status.PodIPs)
	assert.Equal(t, is.Conditions, got.Status.Conditions)
}

func keysOf(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

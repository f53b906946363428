package agent

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func volumeOf(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	return must.Get(t, bed.West.Client().CoreV1().PersistentVolumes(), name)
}

// data makes a shadow as home does, waits until it is bound, and returns it and
// its real volume.
func (x tenant) data(namespace, name string, changes ...func(*corev1.PersistentVolumeClaim)) (*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolume) {
	x.t.Helper()
	claim := x.newClaim(namespace, name)
	claim.Labels[keys.ClaimUID] = string(uuid.NewUUID())
	claim.Annotations = map[string]string{keys.Claim: namespace + "/" + name, "example.com/note": "kept"}
	claim.Finalizers = []string{keys.BackingFinalizer}
	for _, change := range changes {
		change(claim)
	}
	claims := x.client.CoreV1().PersistentVolumeClaims(namespace)
	eventually(x.t, "home may make claims", func() error { return second(claims.Create(x.t.Context(), claim, create)) })
	eventually(x.t, name+" is bound", func() (err error) {
		if claim, err = claims.Get(x.t.Context(), name, get); err == nil && claim.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("phase %s", claim.Status.Phase)
		}
		return err
	})
	return claim, volumeOf(x.t, claim.Spec.VolumeName)
}

// take deletes a claim as the owner of the cluster does.
func take(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	must.Delete(t, bed.West.Client().CoreV1().PersistentVolumeClaims(claim.Namespace), claim.Name)
}

// unhealed says what is missing until another claim is bound to the volume of old,
// and all is as if it had always been so; nil for nothing.
func unhealed(t *testing.T, old *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	t.Helper()
	require.True(t, bed.WestStorage.Exists(volume.Spec.CSI.VolumeHandle), "the data is gone")
	claim, err := bed.West.Client().CoreV1().PersistentVolumeClaims(old.Namespace).Get(t.Context(), old.Name, get)
	if err != nil {
		return err
	}
	now := volumeOf(t, volume.Name)
	if claim.UID == old.UID || claim.Status.Phase != corev1.ClaimBound || now.Labels[keys.Healing] != "" {
		return fmt.Errorf("claim %+v, volume %+v", claim, now)
	}
	return nil
}

// healed waits until a claim was made anew, and returns that.
func healed(t *testing.T, old *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	t.Helper()
	eventually(t, old.Name+" is made anew", func() error { return unhealed(t, old, volume) })
	claim := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(old.Namespace), old.Name)
	assert.Equal(t, volume.Name, claim.Spec.VolumeName)
	assert.Equal(t, old.Labels, claim.Labels)
	assert.Equal(t, notes(old), notes(claim))
	assert.Contains(t, claim.Finalizers, keys.BackingFinalizer)
	assert.Equal(t, old.Spec.Resources.Requests.Storage().String(), claim.Spec.Resources.Requests.Storage().String())
	now := volumeOf(t, volume.Name)
	assert.Equal(t, claim.UID, now.Spec.ClaimRef.UID)
	assert.Equal(t, volume.Spec.PersistentVolumeReclaimPolicy, now.Spec.PersistentVolumeReclaimPolicy)
	assert.NotContains(t, now.Annotations, keys.HealingRecord)
	return claim
}

// notes are the annotations of a claim that Kubernetes does not write.
func notes(claim *corev1.PersistentVolumeClaim) map[string]string {
	left := maps.Clone(claim.Annotations)
	maps.DeleteFunc(left, func(key, _ string) bool { return strings.Contains(key, "kubernetes.io/") })
	return left
}

// release deletes a shadow as home does.
func (x tenant) release(claim *corev1.PersistentVolumeClaim) {
	x.t.Helper()
	claims := x.client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	if claim.DeletionTimestamp == nil {
		defer func() { must.Delete(x.t, claims, claim.Name) }()
	}
	must.Patch(x.t, claims, claim.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, claim.UID, keys.BackingFinalizer))
}

func TestAShadowThatSomebodyDeletesIsMadeAnew(t *testing.T) {
	x := newTenant(t, func(home *remotev1alpha1.HomeCluster) {
		// The new one must find the room that the old one leaves.
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("1")}
	})
	claim, volume := x.data(x.namespace(), "data")
	take(t, claim)
	claim = healed(t, claim, volume)
	assert.Contains(t, await.Event(t, bed.West.Client(), claim.Namespace, "data", "Healed"), volume.Name)
	take(t, claim)
	claim = healed(t, claim, volume)

	// What home deletes is not healed.
	x.release(claim)
	eventually(t, "the data is gone", func() error {
		if bed.WestStorage.Exists(volume.Spec.CSI.VolumeHandle) {
			return fmt.Errorf("volume %s is there", volume.Name)
		}
		return nil
	})
	await.Never(t, "no claim comes back", func() bool {
		return second(bed.West.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), "data", get)) == nil
	})
}

func TestShadowsComeBackWithTheirNamespace(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	one, first := x.data(namespace, "one")
	two, second := x.data(namespace, "two")
	uid := namespaceOf(t, namespace).UID
	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	healed(t, one, first)
	healed(t, two, second)
	assert.NotEqual(t, uid, namespaceOf(t, namespace).UID)
	x.given(namespace)
	later, _ := x.data(namespace, "later")
	assert.Equal(t, corev1.ClaimBound, later.Status.Phase, "home has its rights again")
}

func TestAShadowThatAPodUsesIsMadeAnewAfterIt(t *testing.T) {
	x := newTenant(t, nil)
	namespace := x.namespace()
	claim, volume := x.data(namespace, "data")
	uses := func(s *remotev1alpha1.ShadowPod) {
		s.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	x.shadow(namespace, "db", uses)
	pod := x.runs(namespace, "db")
	take(t, claim)
	await.Event(t, bed.West.Client(), namespace, "data", "Healing")
	await.Always(t, "the pod goes on", func() bool {
		now := podOf(t, namespace, "db")
		return now != nil && now.UID == pod.UID && now.Status.Phase == corev1.PodRunning
	})
	// Its successor waits until the claim is there again.
	x.shadow(namespace, "next", uses)
	must.Delete(t, x.remote.ShadowPods(namespace), "db")
	x.goes(namespace, "db")
	healed(t, claim, volume)
	x.runs(namespace, "next")
}

func TestWhatIsNotHealed(t *testing.T) {
	testbed.NotInShort(t)
	x := newTenant(t, nil)
	namespace := x.namespace()
	stays := func(claim *corev1.PersistentVolumeClaim) {
		t.Helper()
		await.Always(t, "claim "+claim.Name+" and its data stay as they are", func() bool {
			now := must.Get(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), claim.Name)
			volume := volumeOf(t, claim.Spec.VolumeName)
			return now.UID == claim.UID && volume.Labels[keys.Healing] == "" &&
				volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
		})
	}
	unpublished, _ := x.data(namespace, "unpublished", func(c *corev1.PersistentVolumeClaim) { c.Annotations[keys.Unpublished] = "true" })
	take(t, unpublished)
	stays(unpublished)

	// A namespace that holds what cannot come back is not let go.
	claim, volume := x.data(namespace, "data")
	x.giveUp(namespace)
	take(t, claim)
	assert.Contains(t, await.Event(t, bed.West.Client(), namespace, "data", "NotHealed"), "asks for the namespace no longer")
	stays(claim)
	x.request(namespace)
	x.given(namespace)
	claim = healed(t, claim, volume)

	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	told := await.Event(t, bed.West.Client(), metav1.NamespaceDefault, volume.Name, "NotHealed")
	assert.Contains(t, told, "claim unpublished", "the owner is told what keeps the namespace")
	stays(claim)
	unpublished.DeletionTimestamp = ptr.To(metav1.Now())
	x.release(unpublished)
	healed(t, claim, volume)
}

func TestHealingSurvivesAnAgentThatDiesWithEachWrite(t *testing.T) {
	testbed.NotInShort(t)
	x := newTenant(t, nil)
	namespace := x.namespace()
	claim, volume := x.data(namespace, "data")
	withoutAgent(t)
	take(t, claim)
	lives(t, []string{x.id, namespace}, "the claim is made anew", func() error { return unhealed(t, claim, volume) })
	claim = healed(t, claim, volume)
	must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	lives(t, []string{x.id, namespace}, "the namespace and its claim are made anew", func() error { return unhealed(t, claim, volume) })
	healed(t, claim, volume)
}

// What the owner laid down lets home copy its claims and change what claims carry.
func TestAHomeClusterCopiesItsClaimsAndBringsThemInStep(t *testing.T) {
	x := newTenant(t, nil)
	own := x.namespace()
	claims := x.client.CoreV1().PersistentVolumeClaims(own)
	eventually(t, "home has its rights", func() error { return second(claims.List(t.Context(), list)) })
	handleOf := func(name string) (handle string) {
		eventually(t, name+" is bound", func() error {
			claim, err := claims.Get(t.Context(), name, get)
			if err != nil || claim.Status.Phase != corev1.ClaimBound {
				return assert.AnError
			}
			volume, err := x.client.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, get)
			if err == nil {
				handle = volume.Spec.CSI.VolumeHandle
			}
			return err
		})
		return handle
	}
	must.Create(t, claims, x.newClaim(own, "data"))
	source := handleOf("data")
	copied := x.newClaim(own, "copy")
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	must.Create(t, claims, copied)
	handle := handleOf("copy")
	for _, volume := range bed.WestStorage.VolumesOf(own) {
		if volume.Handle == handle {
			assert.Equal(t, source, volume.Source)
		}
	}

	patch := func(change string, subresources ...string) error {
		return second(claims.Patch(t.Context(), "copy", types.MergePatchType, []byte(change), metav1.PatchOptions{}, subresources...))
	}
	assert.NoError(t, patch(`{"metadata":{"labels":{"team":"a"},"annotations":{"note":"b"}}}`))
	assert.NoError(t, patch(`{"spec":{"volumeAttributesClassName":"gold"}}`))
	classes := x.client.StorageV1().VolumeAttributesClasses()
	assert.True(t, apierrors.IsNotFound(second(classes.Get(t.Context(), "absent", get))), "home may ask whether a class exists")
	forbidden(t, map[string]error{
		"list attributes classes":     second(classes.List(t.Context(), list)),
		"write the status of a claim": patch(`{"status":{"phase":"Lost"}}`, "status"),
		"delete an attributes class":  classes.Delete(t.Context(), "absent", remove),
		"change the volume of a claim": second(x.client.CoreV1().PersistentVolumes().Patch(t.Context(), "any", types.MergePatchType, []byte(`{}`),
			metav1.PatchOptions{})),
	})
}

// snapshots is all that an API server needs to take VolumeSnapshots.
const snapshots = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumesnapshots.snapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: snapshot.storage.k8s.io
  names: {kind: VolumeSnapshot, plural: volumesnapshots, singular: volumesnapshot, listKind: VolumeSnapshotList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: volumegroupsnapshots.groupsnapshot.storage.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: groupsnapshot.storage.k8s.io
  names: {kind: VolumeGroupSnapshot, plural: volumegroupsnapshots, singular: volumegroupsnapshot, listKind: VolumeGroupSnapshotList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestAHomeClusterTakesSnapshotsOfItsOwnClaimsOnly(t *testing.T) {
	testbed.Require(t)
	must.Kubectl(t, bed.West, snapshots, "apply", "-f", "-")
	must.Kubectl(t, bed.West, "", "wait", "--for=condition=Established", "crd/volumesnapshots.snapshot.storage.k8s.io",
		"crd/volumegroupsnapshots.groupsnapshot.storage.k8s.io", "--timeout=30s")
	x, other := newTenant(t, nil), newTenant(t, nil)
	own, foreign := x.namespace(), other.namespace()
	post := func(api, kind, resource, namespace, name, home, source string) error {
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{%q:%q}},"spec":{"source":%s}}`,
			api, kind, name, keys.HomeID, home, source)
		return x.client.CoreV1().RESTClient().Post().AbsPath("/apis/"+api+"/namespaces/"+namespace+"/"+resource).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	}
	take := func(namespace, name, home, source string) error {
		return post("snapshot.storage.k8s.io/v1", "VolumeSnapshot", "volumesnapshots", namespace, name, home, source)
	}
	together := func(namespace, name, home, source string) error {
		return post("groupsnapshot.storage.k8s.io/v1", "VolumeGroupSnapshot", "volumegroupsnapshots", namespace, name, home, source)
	}
	const claim, content = `{"persistentVolumeClaimName":"data"}`, `{"volumeSnapshotContentName":"anybody's"}`
	const labels = `{"selector":{"matchLabels":{"a":"b"}}`
	eventually(t, "home may take snapshots", func() error { return take(own, "good", x.id, claim) })
	require.NoError(t, together(own, "good", x.id, labels+"}"))
	for name, err := range map[string]error{
		"one of a content":             take(own, "stolen", x.id, content),
		"one of a claim and a content": take(own, "both", x.id, `{"persistentVolumeClaimName":"data","volumeSnapshotContentName":"anybody's"}`),
		"one of nothing":               take(own, "nothing", x.id, `{}`),
		"one of another home":          take(own, "theirs", other.id, claim),
		"one in another's namespace":   take(foreign, "there", x.id, claim),

		"a group of a content":            together(own, "stolen", x.id, `{"volumeGroupSnapshotContentName":"anybody's"}`),
		"a group of labels and a content": together(own, "both", x.id, labels+`,"volumeGroupSnapshotContentName":"anybody's"}`),
		"a group of all claims":           together(own, "all", x.id, `{"selector":{}}`),
		"a group of expressions alone":    together(own, "expressions", x.id, `{"selector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}`),
		"a group of another home":         together(own, "theirs", other.id, labels+"}"),
		"a group in another's namespace":  together(foreign, "there", x.id, labels+"}"),
	} {
		assert.ErrorContains(t, err, "forbidden", name)
	}
}

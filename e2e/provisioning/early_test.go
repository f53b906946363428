package provisioning

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// unboundTwin makes a claim whose twin is there and has no real volume yet, which the test makes.
func unboundTwin(t *testing.T, namespace, name string) (claim, twin *corev1.PersistentVolumeClaim) {
	t.Helper()
	bed.HomeStorage.SetClass(fabric.HomeWait, never)
	claim = bed.CreateClaim(t, selecting(fabric.NewClaim(namespace, name, fabric.Class), "home-1"))
	eventually(t, func() bool {
		twin = claimOf(t, bed.Home, fabric.Storage, twinOf(claim))
		return twin != nil && claimOf(t, bed.Home, namespace, name).Annotations[keys.StorageProvisioner] != ""
	}, func() string {
		return fmt.Sprintf("claim %s has no twin: %v", name, await.Events(t, bed.Home.Client(), namespace))
	})
	return claim, twin
}

// madeFor is the volume that the real provisioner would make for a twin.
func madeFor(twin *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := "pvc-" + string(twin.UID)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "disk.home.test"}},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: twin.Namespace, Name: twin.Name,
				UID: twin.UID},
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, StorageClassName: fabric.HomeWait,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "disk.home.test", VolumeHandle: "disk.home.test-" + name}},
		},
	}
}

// makeVolume makes a volume, which goes after the test.
func makeVolume(t *testing.T, volume *corev1.PersistentVolume) {
	t.Helper()
	volumes := bed.Home.Client().CoreV1().PersistentVolumes()
	must.Create(t, volumes, volume)
	t.Cleanup(func() {
		_ = volumes.Delete(context.Background(), volume.Name, metav1.DeleteOptions{})
		_, _ = volumes.Patch(context.Background(), volume.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
	})
}

// withoutBinding stops kube-controller-manager of home, who binds claims, until the test, or the function that it returns, ends that.
func withoutBinding(t *testing.T) (again func()) {
	t.Helper()
	require.NoError(t, bed.Home.StopControllerManager(t.Context()))
	stopped := true
	again = func() {
		if stopped {
			stopped = false
			require.NoError(t, bed.Home.StartControllerManager(context.Background()))
		}
	}
	t.Cleanup(again)
	return again
}

// A volume is made of the one that the real provisioner made for the twin, before the twin is bound to it, but of no other.
func TestAVolumeIsMadeBeforeItsTwinIsBound(t *testing.T) {
	namespace := newNamespace(t)
	t.Cleanup(func() { bed.HomeStorage.ResetClass(fabric.HomeWait) })
	cases := map[string]func(*corev1.PersistentVolume){
		"fits":      func(*corev1.PersistentVolume) {},
		"other-uid": func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "of-another-twin" },
		"no-uid":    func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" },
		"small": func(v *corev1.PersistentVolume) {
			v.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("1023Mi")
		},
		"access-mode":  func(v *corev1.PersistentVolume) { v.Spec.AccessModes[0] = corev1.ReadOnlyMany },
		"volume-mode":  func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) },
		"other-class":  func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = fabric.HomeNow },
		"attributes":   func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = ptr.To("gold") },
		"made-by-hand": func(v *corev1.PersistentVolume) { v.Annotations = nil },
		"twin-leaves":  func(*corev1.PersistentVolume) {},
	}
	claims, twins := map[string]*corev1.PersistentVolumeClaim{}, map[string]*corev1.PersistentVolumeClaim{}
	for name := range cases {
		claims[name], twins[name] = unboundTwin(t, namespace, name)
	}
	deleteClaim(t, bed.Home, fabric.Storage, twins["twin-leaves"].Name)
	again := withoutBinding(t)
	for name, alter := range cases {
		volume := madeFor(twins[name])
		alter(volume)
		makeVolume(t, volume)
	}
	virtual := func(name string) *corev1.PersistentVolume {
		return volumeOf(t, bed.Home, "pvc-"+string(claims[name].UID))
	}
	eventually(t, func() bool { return virtual("fits") != nil }, func() string {
		return "there is no virtual volume while the twin is not bound"
	})
	assert.Equal(t, madeFor(twins["fits"]).Spec.CSI.VolumeHandle, virtual("fits").Spec.CSI.VolumeHandle)
	eventually(t, func() bool { return virtual("fits").Status.Phase == corev1.VolumeBound }, func() string {
		return "it is left to kube-controller-manager, who has the twin in hand, to write the phase of the volume"
	})
	twin := claimOf(t, bed.Home, fabric.Storage, twins["fits"].Name)
	assert.Equal(t, corev1.ClaimPending, twin.Status.Phase)
	assert.True(t, backing.Unpublished(twin), "that says that the twin is not bound yet")
	consistently(t, func() bool {
		for name := range claims {
			if name != "fits" && virtual(name) != nil {
				t.Log(name)
				return false
			}
		}
		return true
	}, "a volume was made of one that the twin may not be bound to")

	again()
	awaitBound(t, bed.Home, namespace, "fits")
	eventually(t, func() bool {
		twin = claimOf(t, bed.Home, fabric.Storage, twins["fits"].Name)
		return twin.Status.Phase == corev1.ClaimBound && !backing.Unpublished(twin)
	}, func() string { return fmt.Sprintf("the twin is not bound, or still marked: %+v", twin) })
	assert.Equal(t, madeFor(twins["fits"]).Name, twin.Spec.VolumeName)
	assert.Empty(t, claimOf(t, bed.Home, namespace, "fits").Labels[keys.Moving])
}

// An administrator reserves another volume for the twin, and kube-controller-manager takes that one.
func TestPodsWaitIfTheTwinIsBoundToAnotherVolumeThanTheirs(t *testing.T) {
	namespace := newNamespace(t)
	t.Cleanup(func() { bed.HomeStorage.ResetClass(fabric.HomeWait) })
	claim, twin := unboundTwin(t, namespace, "data")
	again := withoutBinding(t)
	made := madeFor(twin)
	// Among volumes that name a claim kube-controller-manager takes one with the fewest access modes.
	made.Spec.AccessModes = append(made.Spec.AccessModes, corev1.ReadOnlyMany)
	makeVolume(t, made)
	eventually(t, func() bool { return volumeOf(t, bed.Home, "pvc-"+string(claim.UID)) != nil }, func() string {
		return "there is no virtual volume while the twin is not bound"
	})
	reserved := madeFor(twin)
	reserved.Name, reserved.Annotations, reserved.Spec.ClaimRef.UID = "reserved-"+namespace, nil, ""
	reserved.Spec.CSI.VolumeHandle = reserved.Name
	makeVolume(t, reserved)
	again()

	told := await.Event(t, bed.Home.Client(), namespace, "data", "BackingMisbound")
	assert.Contains(t, told, fmt.Sprintf("was bound to volume %q, but this claim's volume is %q", reserved.Name, made.Name))
	eventually(t, func() bool {
		condition := trouble(t, namespace, "data")
		return condition != nil && condition.Reason == "BackingMisbound" && condition.Message == told
	}, func() string { return fmt.Sprintf("the condition of the claim is %+v", trouble(t, namespace, "data")) })
	eventually(t, func() bool { return claimOf(t, bed.Home, namespace, "data").Labels[keys.Moving] == keys.MovingNow }, func() string {
		return "the claim is not locked"
	})
	bed.CreatePod(t, fabric.AtHome(fabric.NewPod(namespace, "db", "data")))
	consistently(t, func() bool {
		pod := podOf(t, namespace, "db")
		return pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) > 0
	}, "a pod of the claim does not wait")

	remove(t, namespace)
	awaitAbsent(t, "claim", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, namespace, "data") })
	awaitAbsent(t, "twin", func() *corev1.PersistentVolumeClaim { return claimOf(t, bed.Home, fabric.Storage, twin.Name) })
}

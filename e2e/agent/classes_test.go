package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// class makes a storage class of west for the length of a test, and returns its name.
func class(t *testing.T, provisioner string) string {
	t.Helper()
	made := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class-" + rand.String(6)}, Provisioner: provisioner}
	classes := bed.West.Client().StorageV1().StorageClasses()
	must.Create(t, classes, made)
	t.Cleanup(func() { assert.NoError(t, classes.Delete(context.Background(), made.Name, remove)) })
	return made.Name
}

// ownersVolume makes a volume of a class in west that no claim has.
func ownersVolume(t *testing.T, class string) string {
	t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "owners-" + rand.String(6)}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ti")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.test", Path: "/"}},
	}}
	must.Create(t, bed.West.Client().CoreV1().PersistentVolumes(), volume)
	t.Cleanup(func() {
		assert.NoError(t, bed.West.Client().CoreV1().PersistentVolumes().Delete(context.Background(), volume.Name, remove))
	})
	return volume.Name
}

// mayClaim returns why a home cluster may make no claim of a class; it makes none.
func (x tenant) mayClaim(namespace, class string) error {
	claim := x.claim(namespace, func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = &class })
	_, err := x.client.CoreV1().PersistentVolumeClaims(namespace).Create(x.t.Context(), claim,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (x tenant) admitted(namespace, class string) {
	x.t.Helper()
	eventually(x.t, "claims of class "+class+" are admitted", func() error { return x.mayClaim(namespace, class) })
}

// refuses waits until claims of a class are refused.
func (x tenant) refuses(namespace, class string) {
	x.t.Helper()
	eventually(x.t, "claims of class "+class+" are refused", func() error {
		err := x.mayClaim(namespace, class)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("answer %w", err)
		}
		assert.ErrorContains(x.t, err, "spec.storageClasses of HomeCluster "+x.id)
		return nil
	})
}

func TestAClaimOfAHomeClusterGetsNoVolumeOfTheOwner(t *testing.T) {
	x := newTenant(t, nil)
	own := x.namespace()
	pool, static := class(t, "disk.west.test"), class(t, "kubernetes.io/no-provisioner")
	x.admitted(own, pool)
	x.refuses(own, static)
	x.admitted(own, fabric.WestNow)

	ownersVolume(t, pool)
	x.refuses(own, pool)
	x.admitted(own, fabric.WestNow)
	eventually(t, "the status shows the classes that are left", func() error {
		home, err := bed.Agents.HomeClusters().Get(t.Context(), x.id, get)
		if err != nil || slices.Contains(home.Status.StorageClasses, pool) || slices.Contains(home.Status.StorageClasses, static) ||
			!slices.Contains(home.Status.StorageClasses, fabric.WestNow) {
			return fmt.Errorf("status %+v, %w", home.Status.StorageClasses, err)
		}
		return nil
	})

	// The owner says otherwise.
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.StorageClasses = []string{pool, static} })
	x.admitted(own, pool)
	x.admitted(own, static)
	x.refuses(own, fabric.WestNow)
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.StorageClasses = []string{"*"} })
	x.admitted(own, fabric.WestNow)
	x.change(func(home *remotev1alpha1.HomeCluster) { home.Spec.StorageClasses = nil })
	x.refuses(own, static)
	must.Kubectl(t, bed.West, "", "label", "namespace", own, keys.ExistingVolumes+"="+keys.ExistingVolumesAllowed)
	x.admitted(own, static)

	// In whatever other way it is asked for.
	shadow := x.newShadow(own, "thief")
	shadow.Spec.Pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: x.claim(own, func(*corev1.PersistentVolumeClaimSpec) {}).Spec}}}}}
	_, err := x.remote.ShadowPods(own).Create(t.Context(), shadow, create)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.ErrorContains(t, err, "generic ephemeral volumes")
	// Nor does the agent make the pod, whoever made the ShadowPod.
	must.Create(t, bed.Agents.ShadowPods(own), shadow)
	x.pending(own, "thief", "NotAllowed", "generic ephemeral volume")
	assert.Nil(t, podOf(t, own, "thief"))
}

// TestAnUpgradeHoldsClaimsUpOnlyUntilTheAgentRuns has the rules of this version, and a namespace as the
// agent of the version before left it.
func TestAnUpgradeHoldsClaimsUpOnlyUntilTheAgentRuns(t *testing.T) {
	x := newTenant(t, nil)
	own := x.namespace()
	claims := x.client.CoreV1().PersistentVolumeClaims(own)
	must.Create(t, claims, x.newClaim(own, "older"))
	t.Run("before the agent of this version runs", func(t *testing.T) {
		withoutAgent(t)
		must.Kubectl(t, bed.West, "", "annotate", "namespace", own, keys.StorageClasses+"-")
		x.refuses(own, fabric.WestNow)
		_, err := claims.Patch(t.Context(), "older", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`),
			metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) || !assert.NotContains(t, err.Error(), "storageClasses") {
			assert.NoError(t, err, "what is there can be changed")
		}
	})
	x.admitted(own, fabric.WestNow)
	assert.NoError(t, claims.Delete(t.Context(), "older", remove))
}

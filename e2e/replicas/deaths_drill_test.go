package replicas

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestADrillHasAllOfItsVersionWhereverTheProvisionerDies has claims made of versions, used and deleted, while their replica goes on, with
// points that look at the copy before they write, and the provisioner dies at each kind of write.
func TestADrillHasAllOfItsVersionWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) {
		r.Spec.Versions.Keep, r.Spec.ScrubEvery = 1, &metav1.Duration{Duration: time.Hour}
	})
	core := bed.Home.Client().CoreV1()
	g.rounds(t, func(n int) {
		sealed(t, made, time.Time{})
		pause(t, made)
		says(t, made, "Paused", "spec.paused is set")
		now := pause(t, made)
		version := versionsOf(now)[0]
		has := counted(t, contentOf(t, bed.West, westDriver, namespace, version))
		require.Positive(t, has)
		name := fmt.Sprintf("drill-%d", n)
		madeOf(t, namespace, name, made.Name, version)

		// The version stays, though only one is wanted and newer ones are sealed.
		_, err := objects(t).Replicas(namespace).Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":false}}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
		now = sealed(t, made, now.Status.Standbys[0].Sealed.Time)
		require.Contains(t, versionsOf(now), version)
		drill(t, namespace, name)
		had, at := drilled(t, namespace, name)
		require.Equal(t, has, had, "it has what the version has")
		require.True(t, strings.HasPrefix(at, filepath.Join(bed.Disks.Root, westDriver)), at)
		until(t, "the version goes once the drill has its volume", made, func(now *v1alpha1.VolumeReplica) bool {
			return len(versionsOf(now)) > 0 && !slices.Contains(versionsOf(now), version)
		})
		again, _ := drilled(t, namespace, name)
		require.Equal(t, has, again)

		require.NoError(t, core.Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		require.NoError(t, core.PersistentVolumeClaims(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		await.Until(t, "nothing is left of the drill", func() bool {
			claims, err := bed.West.Kubectl(t.Context(), "", "get", "pvc", "-n", namespace, "-o", "name")
			require.NoError(t, err)
			return await.Claim(t, bed.Home.Client(), namespace, name) == nil && len(strings.Fields(claims)) == 1
		}, func() any { return left(t, made) }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
		beyond(t, namespace, has)
		until(t, "a scrub found nothing", made, func(now *v1alpha1.VolumeReplica) bool {
			suspect := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaSuspect)
			require.False(t, suspect != nil && suspect.Status == metav1.ConditionTrue, "nobody altered the copy: %v", suspect)
			return suspect != nil && suspect.Status == metav1.ConditionFalse
		})
	})
	removes(t, made)
}

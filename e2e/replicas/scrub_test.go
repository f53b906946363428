package replicas

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// rot flips a bit of a file, as storage does that says nothing.
func rot(t *testing.T, path string) {
	t.Helper()
	before, err := os.Stat(path)
	require.NoError(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(path, content, before.Mode()))
	require.NoError(t, os.Chtimes(path, time.Time{}, before.ModTime()))
}

// TestAScrubFindsWhatStorageHasAltered stops the provisioner: what it knows of the copy is in its record.
func TestAScrubFindsWhatStorageHasAltered(t *testing.T) {
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	from := folder(t, namespace)
	fill(t, from)
	much := filepath.Join(from, "much")
	require.NoError(t, os.Chtimes(much, time.Time{}, time.Now().Add(-24*time.Hour)))
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.ScrubEvery = &metav1.Duration{Duration: time.Hour} })
	spec := func(patch string) {
		t.Helper()
		_, err := objects(t).Replicas(namespace).Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"spec":`+patch+`}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
	}
	suspect := func(status metav1.ConditionStatus, text string) *v1alpha1.VolumeReplica {
		t.Helper()
		return until(t, "Suspect is "+string(status)+": "+text, made, func(now *v1alpha1.VolumeReplica) bool {
			is := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaSuspect)
			return is != nil && is.Status == status && strings.Contains(is.Message, text)
		})
	}
	between := func(do func()) {
		t.Helper()
		spec(`{"paused":true}`)
		says(t, made, "Paused", "spec.paused is set")
		until(t, "the last point is over", made, func(now *v1alpha1.VolumeReplica) bool { return now.Status.Standbys[0].Point == "" })
		do()
		spec(`{"paused":false}`)
	}
	now := suspect(metav1.ConditionFalse, "nothing has changed unseen since the last scrub")
	scrubbed := now.Status.Standbys[0].Scrubbed
	require.NotNil(t, scrubbed)

	between(func() {
		volume, err := bed.West.Kubectl(t.Context(), "", "get", "pvc", "-n", namespace, record.HeadName(made.UID, 0), "-o",
			"jsonpath={.spec.volumeName}")
		require.NoError(t, err)
		handle, err := bed.West.Kubectl(t.Context(), "", "get", "pv", volume, "-o", "jsonpath={.spec.csi.volumeHandle}")
		require.NoError(t, err)
		rot(t, filepath.Join(bed.Disks.Root, westDriver, handle, "much"))
		require.NoError(t, provisioner.Stop())
		provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
	})
	suspect(metav1.ConditionTrue, `the copy of claim "data" in cluster west was not what was sealed there: 1 files (`)
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "Suspect"), "the first is much")
	now = sealed(t, made, time.Now())
	assert.Equal(t, scrubbed, now.Status.Standbys[0].Scrubbed, "there was none since")
	has, err := os.ReadFile(filepath.Join(contentOf(t, bed.West, westDriver, namespace, now.Status.Standbys[0].Versions[0].Name), "much"))
	require.NoError(t, err)
	is, err := os.ReadFile(much)
	require.NoError(t, err)
	assert.Equal(t, sha256.Sum256(is), sha256.Sum256(has), "it was mended")

	between(func() { rot(t, much) })
	suspect(metav1.ConditionTrue, `of claim "data" 1 files (`)
	spec(`{"scrubEvery":null}`)
	until(t, "nobody asks for it any more", made, func(now *v1alpha1.VolumeReplica) bool {
		return meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ReplicaSuspect) == nil && now.Status.Standbys[0].Scrubbed == nil
	})
	removes(t, made)
}

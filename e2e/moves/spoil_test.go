package moves

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// targetOf waits for the folder of a move's target in west.
func targetOf(t *testing.T, namespace string, made *v1alpha1.VolumeMove) (path string) {
	t.Helper()
	of := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}
	await.Until(t, "the target has a volume", func() bool {
		claims, err := bed.West.Client().CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), of)
		require.NoError(t, err)
		if len(claims.Items) == 0 || claims.Items[0].Spec.VolumeName == "" {
			return false
		}
		real := await.Volume(t, bed.West.Client(), claims.Items[0].Spec.VolumeName)
		if real == nil {
			return false
		}
		path, err = bed.Disks.Of(real)
		return err == nil
	})
	return path
}

// noise is content that nothing else has.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// spoil turns bits of a file, here and there, until it is stopped.
func spoil(path string, size int64) (stop func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ending:
				return
			default:
			}
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				continue
			}
			one, at := make([]byte, 1), rand.Int64N(size)
			if _, err := file.ReadAt(one, at); err == nil {
				_, _ = file.WriteAt([]byte{one[0] ^ 1<<rand.IntN(8)}, at)
			}
			_ = file.Close()
		}
	}()
	return func() { close(ending); <-ended }
}

func TestACopyThatIsSpoiltIsNotUsed(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	from := folder(t, namespace, "data")
	rows := noise(1 << 20)
	require.NoError(t, os.MkdirAll(filepath.Join(from, "table"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "table", "rows"), rows, 0o644))

	made := move(t, namespace, "data", "west")
	to := targetOf(t, namespace, made)
	require.NotEqual(t, from, to)
	reaches(t, made, v1alpha1.MoveQuiesce, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
	stop := spoil(filepath.Join(to, "table", "rows"), int64(len(rows)))
	defer stop()
	over := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveFailed, over.Status.Phase, over.Status.Message)
	assert.Contains(t, over.Status.Message, "table/rows")
	t.Log(over.Status.Message)

	assert.Equal(t, from, folder(t, namespace, "data"))
	counts(t, from, counted(t, from)+10)
	now, err := os.ReadFile(filepath.Join(from, "table", "rows"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(rows, now), "the source is as it was")
	nothingLeft(t, namespace, made)
}

func TestASourceThatIsAnotherMountIsRefusedByAMoverThatKnowsNothing(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	begins(t, namespace, application(namespace, "data", "data"), "data")
	from := folder(t, namespace, "data")
	rows := noise(12 << 20)
	require.NoError(t, os.WriteFile(filepath.Join(from, "rows"), rows, 0o644))

	made := move(t, namespace, "data", "west", func(m *v1alpha1.VolumeMove) {
		limit := resource.MustParse("1Mi")
		m.Spec.BandwidthLimit = &limit
	})
	reaches(t, made, v1alpha1.MoveFinalSync)
	// What is mounted now is empty, and the mover that saw the volume is gone.
	require.NoError(t, os.Rename(from, from+".away"))
	require.NoError(t, os.Mkdir(from, 0o755))
	pods := bed.Home.Client().CoreV1().Pods(fabric.Storage)
	require.NoError(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}))
	over := reaches(t, made, v1alpha1.MoveFailed, v1alpha1.MoveDone, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveFailed, over.Status.Phase, over.Status.Message)
	assert.Contains(t, over.Status.Message, "not what the first pass saw")
	t.Log(over.Status.Message)

	require.NoError(t, os.Remove(from))
	require.NoError(t, os.Rename(from+".away", from))
	assert.Equal(t, from, folder(t, namespace, "data"))
	now, err := os.ReadFile(filepath.Join(from, "rows"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(rows, now))
	nothingLeft(t, namespace, made)
}

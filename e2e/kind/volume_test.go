package kind

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// volume is where the files of a claim are.
type volume struct {
	in        *cluster
	directory string // in the node; of a disk, its image
	virtual   string // name of the virtual volume at home
	real      string // name of the real volume, in the cluster that it is in
	backing   string // namespace/name of the backing claim
}

// find returns the volume of a bound claim whose real volume is bound too.
func find(ctx context.Context, namespace, claim string) (*volume, error) {
	pvc, err := home.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if pvc.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("claim %s is %s", claim, pvc.Status.Phase)
	}
	virtual, err := home.client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	// cluster/namespace/name/uid
	parts := strings.Split(virtual.Annotations[keys.Backing], "/")
	if len(parts) != 4 {
		return nil, fmt.Errorf("volume %s has the backing claim %q", virtual.Name, virtual.Annotations[keys.Backing])
	}
	found := &volume{in: home, virtual: virtual.Name, backing: parts[1] + "/" + parts[2]}
	if parts[0] != keys.Home {
		found.in = west
	}
	backing, err := found.in.client.CoreV1().PersistentVolumeClaims(parts[1]).Get(ctx, parts[2], metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if backing.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("backing claim %s is %s", found.backing, backing.Status.Phase)
	}
	found.real = backing.Spec.VolumeName
	real, err := found.in.client.CoreV1().PersistentVolumes().Get(ctx, found.real, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	switch {
	case real.Spec.HostPath != nil:
		found.directory = real.Spec.HostPath.Path
	case real.Spec.Local != nil:
		found.directory = real.Spec.Local.Path
	case real.Spec.CSI != nil && real.Spec.CSI.Driver == diskDriver:
		found.directory = path.Join(disks, "volumes", real.Spec.CSI.VolumeHandle+".img")
	default:
		return nil, fmt.Errorf("real volume %s is neither a directory nor a disk of a node", real.Name)
	}
	return found, nil
}

// volumeOf waits until a claim has its real volume.
func volumeOf(t *testing.T, namespace, claim string) *volume {
	t.Helper()
	var found *volume
	eventually(t, "claim "+claim+" has a real volume", func(c *assert.CollectT) {
		var err error
		found, err = find(t.Context(), namespace, claim)
		require.NoError(c, err)
	})
	return found
}

// sum returns the SHA-256 sum of a file of the volume, read in the node.
func (v *volume) sum(t *testing.T, file string) string {
	t.Helper()
	output, err := v.in.inNode(t.Context(), "sha256sum", path.Join(v.directory, file))
	require.NoError(t, err)
	sum, _, _ := strings.Cut(output, " ")
	require.Len(t, sum, 64)
	return sum
}

// read returns a file of the volume, read in the node.
func (v *volume) read(t *testing.T, file string) string {
	t.Helper()
	output, err := v.in.inNode(t.Context(), "cat", path.Join(v.directory, file))
	require.NoError(t, err)
	return output
}

// starts returns which starts of keepers wrote rows, in their order. No two may have
// written at a time, and no row may be missing.
func (v *volume) starts(t *testing.T) []string {
	t.Helper()
	return startsOf(t, v.read(t, "rows"))
}

// startsOf is starts for rows that were read otherwise.
func startsOf(t *testing.T, rows string) []string {
	t.Helper()
	var starts []string
	next := 1
	for line := range strings.Lines(rows) {
		var start string
		var row int
		_, err := fmt.Sscan(line, &start, &row)
		require.NoError(t, err, "row %q", line)
		if len(starts) == 0 || starts[len(starts)-1] != start {
			require.NotContains(t, starts, start, "two keepers wrote at a time")
			starts, next = append(starts, start), 1
		}
		require.Equal(t, next, row, "a row of start %s is missing", start)
		next++
	}
	return starts
}

// there tells whether the volume's directory is in the node.
func (v *volume) there(ctx context.Context) (bool, error) { return v.in.hasFile(ctx, v.directory) }

// requireGone waits until neither files nor objects of the volume are left.
func (v *volume) requireGone(t *testing.T) {
	t.Helper()
	eventually(t, "the directory of "+v.virtual+" in "+v.in.name+" is gone, and its objects", func(c *assert.CollectT) {
		there, err := v.there(t.Context())
		require.NoError(c, err)
		assert.False(c, there, "directory %s", v.directory)
		assert.NoError(c, gone(home.client.CoreV1().PersistentVolumes().Get(t.Context(), v.virtual, metav1.GetOptions{})))
		assert.NoError(c, gone(v.in.client.CoreV1().PersistentVolumes().Get(t.Context(), v.real, metav1.GetOptions{})))
		namespace, name, _ := strings.Cut(v.backing, "/")
		assert.NoError(c, gone(v.in.client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), name, metav1.GetOptions{})))
	})
}

package sidecars

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOrderedFailuresAreFilesThatTheDriverReads(t *testing.T) {
	d := &Driver{Name: "disk.test", directory: t.TempDir()}
	require.NoError(t, os.Mkdir(d.faults(), 0o700))
	ordered := func() (names []string) {
		entries, err := os.ReadDir(d.faults())
		require.NoError(t, err)
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	require.NoError(t, d.Fail("DeleteVolume", Fault{Code: "INTERNAL", Done: true}))
	require.NoError(t, d.Fail("CreateVolume", Fault{Code: "UNKNOWN"}))
	require.NoError(t, d.FailNext("CreateVolume", Fault{Code: "ABORTED"}, Fault{Delay: "1s"}))
	assert.Equal(t, []string{"CreateVolume.000", "CreateVolume.001", "DeleteVolume"}, ordered())
	content, err := os.ReadFile(filepath.Join(d.faults(), "DeleteVolume"))
	require.NoError(t, err)
	assert.JSONEq(t, `{"code":"INTERNAL","done":true}`, string(content))
	left, err := d.Ordered("CreateVolume")
	require.NoError(t, err)
	assert.True(t, left)
	left, err = d.Ordered("DeleteVolume")
	require.NoError(t, err)
	assert.False(t, left, "a lasting failure is never used up")

	require.NoError(t, d.Heal("CreateVolume"))
	require.NoError(t, d.Heal("DeleteVolume"))
	assert.Empty(t, ordered())
}

func TestCallsThatHaveEndedAreCounted(t *testing.T) {
	d := &Driver{Name: "disk.test", directory: t.TempDir()}
	ended, err := d.Ended("CreateVolume")
	require.NoError(t, err)
	assert.Zero(t, ended)
	calls := "CreateVolume OK\nGetCapacity OK\nCreateVolume Internal\n"
	require.NoError(t, os.WriteFile(filepath.Join(d.directory, "calls"), []byte(calls), 0o600))
	for method, want := range map[string]int{"CreateVolume": 2, "GetCapacity": 1, "Volume": 0} {
		ended, err := d.Ended(method)
		require.NoError(t, err)
		assert.Equal(t, want, ended, method)
	}
}

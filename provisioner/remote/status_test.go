package remote

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

func TestAStatusTellsWhichSpecItIsOf(t *testing.T) {
	c := &Cluster{id: "west", clusters: &Clusters{contents: &contents{}}, verdict: verdict{checked: true, unsynced: true}}
	seen := remote("west", "w", 0)
	for generation := range int64(3) {
		seen.Generation = generation + 1
		status := c.status(seen, 2)
		assert.Equal(t, seen.Generation, status.ObservedGeneration)
		assert.Equal(t, 2, status.Volumes)
		seen.Status = *status
		assert.Equal(t, *status, *c.status(seen, 2), "nothing is to be written again")
	}
}

// contents are the same for every cluster.
type contents struct {
	Contents
	volumes, snapshots int
	known              bool
}

func (c *contents) Volumes(string) int { return c.volumes }

func (*contents) Health(string) *v1alpha1.VolumeHealth { return nil }

func (*contents) ClusterUIDs(string) []string { return nil }

func (c *contents) Snapshots(string) (int, bool) { return c.snapshots, c.known }

func TestSnapshotsKeepTheirCluster(t *testing.T) {
	has := &contents{volumes: 2, known: true}
	r := &Clusters{contents: has}
	assert.Empty(t, r.snapshotsInUse("west"))
	assert.Equal(t, 2, r.holdings("west").count)
	has.snapshots = 3
	assert.Contains(t, r.snapshotsInUse("west"), "3 VolumeSnapshots")
	assert.Equal(t, 5, r.holdings("west").count)
	has.snapshots, has.known = 0, false
	assert.Contains(t, r.snapshotsInUse("west"), "not known yet")
	has.known = true
	assert.Empty(t, r.snapshotsInUse("west"))
	assert.Equal(t, 2, r.holdings("west").count)
}

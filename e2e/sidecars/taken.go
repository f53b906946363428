package sidecars

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Snapshot is what the driver knows of a snapshot.
type Snapshot struct {
	ID string `json:"id"`
	// Source is the ID of the volume that it is of.
	Source string `json:"volumeID"`
}

// Snapshots returns the snapshots that the driver has, by ID.
func (d *Driver) Snapshots() (map[string]Snapshot, error) {
	paths, err := filepath.Glob(filepath.Join(d.directory, "snapshots", "*.json"))
	if err != nil {
		return nil, err
	}
	snapshots := map[string]Snapshot{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // deleted meanwhile
		}
		var s Snapshot
		if err == nil {
			err = json.Unmarshal(content, &s)
		}
		if err != nil {
			return nil, fmt.Errorf("read the snapshots of driver %s: %w", d.Name, err)
		}
		snapshots[s.ID] = s
	}
	return snapshots, nil
}

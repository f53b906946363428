package decide

import (
	"fmt"
	"time"

	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// This file has the versions that stay though no claim can be made of them now.

// unready returns the newest version that stays though no claim can be made of it now, nil if there is none.
func unready(r *record.Record) *record.Version {
	for i := len(r.Sealed) - 1; i >= 0; i-- {
		if v := &r.Sealed[i]; !v.Going && v.Unready != "" {
			return v
		}
	}
	return nil
}

func sayUnready(r *record.Record, version *record.Version) string {
	return fmt.Sprintf("the version of %s at the standby cannot be used now, and does not count until it can: VolumeSnapshot %s/%s",
		version.Cut.UTC().Format(time.RFC3339), r.Head.Namespace, version.Unready)
}

// faultOf says why no claim can be made of a version now, as the name of its snapshot and what is wrong with that; empty: one can. It is
// known once all snapshots of it were looked at, or one has a fault.
func faultOf(o Observation, version *record.Version) (why string, known bool) {
	known = true
	for i := range o.Record.Len() {
		name := version.At(i).Name
		fault, looked := o.Faults[name]
		if fault.Why != "" {
			return sentence.Short(name+": "+fault.Why, mostUnready), true
		}
		known = known && looked
	}
	return "", known
}

package policy

import (
	"time"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// VersionsKept returns the annotations of a namespace by which the API server keeps sealed versions of second copies there even
// against their home cluster, and after what time they change by the clock alone, 0 for never. Admission policies have no clock:
// the agent moves on the moment since which versions stay. While no agent works it stands still, and nothing may go that it keeps.
func VersionsKept(home *remotev1alpha1.HomeCluster, now time.Time) (annotations map[string]string, again time.Duration) {
	age := time.Duration(0)
	if replicas := home.Spec.Replicas; replicas != nil && replicas.MinimumAge != nil {
		age = replicas.MinimumAge.Duration
	}
	if age <= 0 {
		return map[string]string{keys.VersionsKeptFor: "", keys.VersionsKeptSince: ""}, 0
	}
	// Each step writes the namespace, so there are few: a version stays up to one step longer.
	step := min(max(age/48, time.Minute), time.Hour)
	since := now.Add(-age).Truncate(step)
	return map[string]string{keys.VersionsKeptFor: age.String(), keys.VersionsKeptSince: since.UTC().Format(time.RFC3339)},
		since.Add(step + age).Sub(now)
}

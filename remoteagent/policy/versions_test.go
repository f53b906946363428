package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestVersionsAreKeptForAsLongAsTheOwnerSays(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 34, 56, 7, time.UTC)
	for name, row := range map[string]struct {
		replicas   *remotev1alpha1.ReplicaPolicy
		age, since string
		again      time.Duration
	}{
		"nothing is said": {},
		"no age is said":  {replicas: &remotev1alpha1.ReplicaPolicy{}},
		"none":            {replicas: &remotev1alpha1.ReplicaPolicy{MinimumAge: &metav1.Duration{}}},
		"some days, in steps of an hour": {replicas: &remotev1alpha1.ReplicaPolicy{MinimumAge: &metav1.Duration{Duration: 72 * time.Hour}},
			age: "72h0m0s", since: "2026-03-01T12:00:00Z", again: 25*time.Minute + 4*time.Second - 7},
		"some minutes, in steps of one": {replicas: &remotev1alpha1.ReplicaPolicy{MinimumAge: &metav1.Duration{Duration: 5 * time.Minute}},
			age: "5m0s", since: "2026-03-04T12:29:00Z", again: 4*time.Second - 7},
	} {
		t.Run(name, func(t *testing.T) {
			home := &remotev1alpha1.HomeCluster{Spec: remotev1alpha1.HomeClusterSpec{Replicas: row.replicas}}
			annotations, again := VersionsKept(home, now)
			assert.Equal(t, map[string]string{keys.VersionsKeptFor: row.age, keys.VersionsKeptSince: row.since}, annotations)
			assert.Equal(t, row.again, again)
			if again > 0 {
				later, _ := VersionsKept(home, now.Add(again))
				assert.NotEqual(t, annotations, later, "they change then")
			}
		})
	}
}

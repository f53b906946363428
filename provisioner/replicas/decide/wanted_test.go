package decide_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
)

func TestAClassOrAClaimSaysWhereTheSecondCopyIs(t *testing.T) {
	for name, row := range map[string]struct {
		class, claim map[string]string
		at           string
		change       func(*corev1.PersistentVolumeClaim)
		made         string
		why          string
	}{
		"nobody asks":    {at: "home"},
		"the class asks": {class: map[string]string{keys.ReplicateTo: "west"}, at: "home", made: "data-west 0s"},
		"the first that has it not": {class: map[string]string{keys.ReplicateTo: "west, east", keys.ReplicateRPO: "1h"}, at: "west",
			made: "data-east 1h0m0s"},
		"the claim goes before": {class: map[string]string{keys.ReplicateTo: "west"}, claim: map[string]string{keys.ReplicateTo: "east",
			keys.ReplicateRPO: "20s"}, at: "home", made: "data-east 20s"},
		"the claim wants none": {class: map[string]string{keys.ReplicateTo: "west"}, claim: map[string]string{keys.ReplicateTo: ""},
			at: "home"},
		"it was made before": {claim: map[string]string{keys.ReplicateTo: "west", keys.Replicated: "data-west"}, at: "home"},
		"no other cluster":   {claim: map[string]string{keys.ReplicateTo: "west"}, at: "west", why: "names no other: add one"},
		"a time that is none": {claim: map[string]string{keys.ReplicateTo: "west", keys.ReplicateRPO: "soon"}, at: "home",
			why: `value "soon"`},
		"a time that is too short": {claim: map[string]string{keys.ReplicateTo: "west", keys.ReplicateRPO: "1s"}, at: "home",
			why: "at least 10s"},
		"it is not bound": {claim: map[string]string{keys.ReplicateTo: "west"}, at: "home",
			change: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
		"it is being deleted": {claim: map[string]string{keys.ReplicateTo: "west"}, at: "home",
			change: func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"its name is too long": {claim: map[string]string{keys.ReplicateTo: "west"}, at: "home", why: "cannot be the name of a VolumeReplica",
			change: func(c *corev1.PersistentVolumeClaim) { c.Name = strings.Repeat("d", 250) }},
	} {
		t.Run(name, func(t *testing.T) {
			class, err := virtualclass.Parse(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver,
				VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: row.class})
			require.NoError(t, err)
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", Annotations: row.claim},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
			if row.change != nil {
				row.change(claim)
			}
			wanted, why := decide.Wanted(claim, class, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{keys.Cluster: row.at}, Annotations: map[string]string{keys.Backing: "b"}}})
			made := ""
			if wanted != nil {
				made = wanted.Name + " " + ptr.Deref(wanted.Spec.RPO, metav1.Duration{}).Duration.String()
				assert.Equal(t, []string{"data"}, wanted.Spec.Claims)
			}
			assert.Equal(t, row.made, made)
			if row.why == "" {
				assert.Empty(t, why)
			} else {
				assert.Contains(t, why, row.why)
			}
		})
	}
}

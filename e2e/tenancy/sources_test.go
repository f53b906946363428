package tenancy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAnotherTenantsDataCannotBeCopied asks, in all ways that a claim has, for
// a copy of what belongs to another tenant, or for a volume by its properties.
func TestAnotherTenantsDataCannotBeCopied(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	victim.claim("data", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	claim, volume := victim.bound("data")
	shadow := strings.Split(volume.Annotations[keys.Backing], "/")
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"in-its-namespace": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data", Namespace: &victim.namespace}
		},
		"by-path": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "twin-" + string(claim.UID)}
			c.Annotations = map[string]string{keys.Claim: victim.namespace + "/data", keys.Backing: strings.Join(shadow, "/")}
		},
		"a-snapshot": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "data"}
		},
		"by-selector": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{keys.Cluster: "west"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			attacker := attacker
			attacker.t = t
			attacker.claim(name, change)
			attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, name, name)))
			attacker.stays(name)
			if made := claimOf(t, bed.West, attacker.namespace, name); made != nil {
				assert.NotEqual(t, corev1.ClaimBound, made.Status.Phase)
			}
			attacker.delete(name, name)
		})
	}
	_, after := victim.bound("data")
	assert.Equal(t, volume.UID, after.UID)
	assert.Equal(t, volume.Spec, after.Spec)
}

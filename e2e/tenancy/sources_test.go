package tenancy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/instant"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// places are where the volumes of these tests are, and the nodes that lead there.
var places = []struct {
	name, node string
	pod        func(*corev1.Pod) *corev1.Pod
}{
	{name: "home", node: "home-1", pod: fabric.AtHome},
	{name: "west", node: fabric.WestNode, pod: fabric.InWest},
}

// TestAnotherTenantsDataCannotBeCopied asks, in all ways that a claim has, for
// a copy of what belongs to another tenant, or for a volume by its properties. The
// API server is one that keeps data sources of other namespaces.
func TestAnotherTenantsDataCannotBeCopied(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	var asked []string
	for _, place := range places {
		victim.claim(place.name, nil)
		victim.pod(place.pod(fabric.NewPod(victim.namespace, place.name, place.name)))
		claim, volume := victim.bound(place.name)
		twin := "pvc-" + string(claim.UID)
		for name, attack := range map[string]struct {
			change       func(*corev1.PersistentVolumeClaim)
			reason, says string
		}{
			"claim-elsewhere": {change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: place.name, Namespace: &victim.namespace}
			}, reason: "InvalidClaim", says: victim.namespace},
			"twin-elsewhere": {change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: twin, Namespace: ptr.To(fabric.Storage)}
			}, reason: "InvalidClaim", says: fabric.Storage},
			"snapshot-elsewhere": {change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: place.name, Namespace: &victim.namespace}
			}, reason: "InvalidClaim", says: victim.namespace},
			"same-name": {change: from(place.name), reason: "SourceNotBound", says: "waiting for claim"},
			"path":      {change: from("../" + victim.namespace + "/" + place.name), reason: "SourceNotBound", says: "waiting for claim"},
			"twin":      {change: from(twin), reason: "SourceNotBound", says: "waiting for claim"},
			"selector": {change: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Selector = &metav1.LabelSelector{MatchLabels: volume.Labels}
			}, reason: "InvalidClaim", says: "selector"},
		} {
			name = place.name + "-" + name
			asked = append(asked, name)
			made := attacker.claim(name, func(c *corev1.PersistentVolumeClaim) {
				attack.change(c)
				c.Annotations = pretends(t, claim, volume, place.node)
			})
			if made.Spec.Selector == nil {
				require.NotNil(t, made.Spec.DataSourceRef, "%s: the API server must not drop what is tested", name)
			}
			assert.Contains(t, await.Event(t, attacker.home, attacker.namespace, name, attack.reason), attack.says, name)
		}
	}
	await.Never(t, "nothing may be made for these claims", func() bool {
		for _, name := range asked {
			claim := claimOf(t, bed.Home, attacker.namespace, name)
			if claim.Spec.VolumeName != "" || claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claim.UID)) != nil || claimOf(t, bed.West, attacker.namespace, name) != nil {
				return true
			}
		}
		return false
	})
}

// TestACopyIsOneOfTheOwnDataWhateverItsNames: an own claim that has the name of
// another tenant's claim, or of its twin, and all of its annotations, is copied as what it is.
func TestACopyIsOneOfTheOwnDataWhateverItsNames(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	for _, place := range places {
		victim.claim(place.name, nil)
		victim.pod(place.pod(fabric.NewPod(victim.namespace, place.name, place.name)))
		claim, volume := victim.bound(place.name)
		for _, own := range []string{place.name, "pvc-" + string(claim.UID)} {
			forge := func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = pretends(t, claim, volume, "")
				c.Labels = forged(t, claim)
			}
			attacker.claim(own, forge)
			attacker.claim("copy-"+own, func(c *corev1.PersistentVolumeClaim) {
				forge(c)
				from(own)(c)
			})
			attacker.pod(place.pod(fabric.NewPod(attacker.namespace, own, own)))
			attacker.pod(place.pod(fabric.NewPod(attacker.namespace, "copy-"+own, "copy-"+own)))
			_, source := attacker.bound(own)
			_, made := attacker.bound("copy-" + own)
			assert.NotEqual(t, realVolume(t, volume).Handle, realVolume(t, source).Handle)
			assert.Equal(t, realVolume(t, source).Handle, realVolume(t, made).Source)
		}
	}
}

// TestADataSourceIsNeverAVolumeAndNeverTwoThings: these the API server itself
// refuses, which is why nothing of Lodestone looks at them.
func TestADataSourceIsNeverAVolumeAndNeverTwoThings(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"a volume": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolume", Name: "pvc-1"}
		},
		"an own claim and another's": func(c *corev1.PersistentVolumeClaim) {
			from("data")(c)
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data", Namespace: &victim.namespace}
		},
		"two claims": func(c *corev1.PersistentVolumeClaim) {
			from("data")(c)
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		},
	} {
		claim := fabric.NewClaim(attacker.namespace, "refused", fabric.Class)
		change(claim)
		_, err := attacker.home.CoreV1().PersistentVolumeClaims(attacker.namespace).Create(t.Context(), claim, metav1.CreateOptions{})
		assert.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
	}
}

// from makes a claim a copy of one of its namespace.
func from(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

// pretends are the annotations of a claim, of its backing claim and of its volume,
// with a selected node, if any.
func pretends(t *testing.T, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, node string) map[string]string {
	t.Helper()
	annotations := map[string]string{
		keys.Claim:         claim.Namespace + "/" + claim.Name,
		keys.Backing:       volume.Annotations[keys.Backing],
		keys.BackingVolume: realVolume(t, volume).Name,
	}
	if node != "" {
		annotations[keys.SelectedNode] = node
	}
	return annotations
}

// realVolume is what the played storage holds for a virtual volume.
func realVolume(t *testing.T, virtual *corev1.PersistentVolume) instant.Volume {
	t.Helper()
	ref := strings.Split(virtual.Annotations[keys.Backing], "/")
	require.Len(t, ref, 4)
	cluster, storage := bed.Home, bed.HomeStorage
	if ref[0] == "west" {
		cluster, storage = bed.West, bed.WestStorage
	}
	var made *corev1.PersistentVolumeClaim
	await.Until(t, "the backing claim has its volume", func() bool {
		made = claimOf(t, cluster, ref[1], ref[2])
		return made != nil && made.Status.Phase == corev1.ClaimBound
	}, func() any { return ref })
	volumes := storage.Volumes()
	i := slices.IndexFunc(volumes, func(v instant.Volume) bool { return v.Name == made.Spec.VolumeName })
	require.GreaterOrEqual(t, i, 0, "the volume of %s", made.Name)
	return volumes[i]
}

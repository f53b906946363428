package tenancy

import (
	"os"
	"path/filepath"
	"regexp"
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
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestATenantSeesNothingOfTheFabric(t *testing.T) {
	attacker := newTenant(t)
	core := attacker.home.CoreV1()
	for what, err := range map[string]error{
		"list twins": second(core.PersistentVolumeClaims(fabric.Storage).List(t.Context(), metav1.ListOptions{})),
		"make a twin": second(core.PersistentVolumeClaims(fabric.Storage).Create(t.Context(),
			fabric.NewClaim(fabric.Storage, "mine", fabric.HomeNow), metav1.CreateOptions{})),
		"list volumes":     second(core.PersistentVolumes().List(t.Context(), metav1.ListOptions{})),
		"read kubeconfigs": second(core.Secrets(fabric.System).Get(t.Context(), "west", metav1.GetOptions{})),
		"list namespaces":  second(core.Namespaces().List(t.Context(), metav1.ListOptions{})),
		"list clusters": attacker.home.Discovery().RESTClient().Get().
			AbsPath("/apis/lodestone.dev/v1alpha1/remoteclusters").Do(t.Context()).Error(),
		"offload a namespace": second(core.Namespaces().Patch(t.Context(), attacker.namespace, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"lodestone.dev/offload":null}}}`), metav1.PatchOptions{})),
	} {
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestForgedClaimsReachNoOther puts all that can be forged on claims of a tenant's
// own, and looks whether another tenant's volumes change hands or state.
func TestForgedClaimsReachNoOther(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	victim.claim("home", nil)
	victim.pod(fabric.AtHome(fabric.NewPod(victim.namespace, "home", "home")))
	victim.claim("west", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "west", "west")))

	taken := map[string]bool{}
	for _, name := range []string{"home", "west"} {
		claim, volume := victim.bound(name)
		taken[volume.Spec.CSI.VolumeHandle] = true
		forge := func(forged *corev1.PersistentVolumeClaim) {
			forged.Labels = map[string]string{keys.ClaimUID: string(claim.UID), keys.HomeID: homeID(t), keys.Cluster: "west"}
			forged.Annotations = map[string]string{
				keys.Claim:                           victim.namespace + "/" + name,
				keys.Backing:                         volume.Annotations[keys.Backing],
				keys.BackingVolume:                   volume.Annotations[keys.BackingVolume],
				keys.Routed:                          "../" + victim.namespace,
				keys.ClusterChanged:                  "forged",
				"volume.kubernetes.io/selected-node": "",
			}
			forged.Finalizers = []string{keys.BackingFinalizer}
		}
		// Under the victim's names too: shadows are named as their claims.
		for _, own := range []string{name, name + "-of-" + string(claim.UID)} {
			attacker.claim(own, forge)
			t.Cleanup(func() { unhold(t, attacker.namespace, own) })
		}
	}
	attacker.pod(fabric.AtHome(fabric.NewPod(attacker.namespace, "home", "home")))
	attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, "west", "west")))
	for _, name := range []string{"home", "west"} {
		claim, volume := attacker.bound(name)
		assert.False(t, taken[volume.Spec.CSI.VolumeHandle], "a volume of its own")
		assert.Equal(t, "pvc-"+string(claim.UID), volume.Name)
		assert.NotContains(t, volume.Annotations[keys.Backing], victim.namespace)
	}
	for _, name := range []string{"home", "west"} {
		claim, volume := victim.bound(name)
		assert.Equal(t, claim.UID, volume.Spec.ClaimRef.UID)
		assert.Nil(t, volume.DeletionTimestamp)
	}
	shadow := claimOf(t, bed.West, victim.namespace, "west")
	require.NotNil(t, shadow)
	assert.Nil(t, shadow.DeletionTimestamp)
	assertWritesStayInMappedNamespaces(t)
}

// unhold takes the finalizers off a claim that a test forged.
func unhold(t *testing.T, namespace, name string) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", "patch", "pvc", "-n", namespace, name, "--type=merge", "-p",
		`{"metadata":{"finalizers":null}}`)
}

// assertWritesStayInMappedNamespaces looks through every claim of both clusters:
// what Lodestone made is only where it belongs.
func assertWritesStayInMappedNamespaces(t *testing.T) {
	t.Helper()
	twins := must.List(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(""))
	uids := map[string]string{}
	for _, claim := range twins.Items {
		uids[string(claim.UID)] = claim.Namespace
		if claim.Annotations[keys.Claim] != "" && len(claim.OwnerReferences) == 0 && strings.HasPrefix(claim.Name, "pvc-") {
			assert.Equal(t, fabric.Storage, claim.Namespace, claim.Name)
		}
	}
	shadows := must.List(t, bed.West.Client().CoreV1().PersistentVolumeClaims(""))
	for _, shadow := range shadows.Items {
		if home, ok := uids[shadow.Labels[keys.ClaimUID]]; ok {
			assert.Equal(t, home, shadow.Namespace, "shadow %s", shadow.Name)
		}
	}
}

func TestAnotherTenantsVolumeCannotBeAskedForByName(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	victim.claim("data", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	_, volume := victim.bound("data")
	attacker.claim("steal", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume.Name })
	attacker.pod(fabric.NewPod(attacker.namespace, "thief", "steal"))
	attacker.stays("steal")
	_, after := victim.bound("data")
	assert.Equal(t, volume.Spec.ClaimRef.UID, after.Spec.ClaimRef.UID)
	assert.Nil(t, claimOf(t, bed.West, attacker.namespace, "steal"), "nothing is made for a claim that names its volume")
	for _, twin := range claimsIn(t, fabric.Storage) {
		assert.NotEqual(t, attacker.namespace+"/steal", twin.Annotations[keys.Claim])
	}

	// Neither when its owner has let it go, and before it is deleted.
	bed.WestStorage.SetClaim(victim.namespace, "data", neverDeleted)
	t.Cleanup(func() { bed.WestStorage.ResetClaim(victim.namespace, "data") })
	victim.delete("db", "data")
	await.Until(t, "the volume is released", func() bool {
		now := must.Get(t, bed.Home.Client().CoreV1().PersistentVolumes(), volume.Name)
		return now.Status.Phase == corev1.VolumeReleased
	}, func() any { return victim.events() })
	attacker.stays("steal")
}

func claimsIn(t *testing.T, namespace string) []corev1.PersistentVolumeClaim {
	t.Helper()
	list := must.List(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace))
	return list.Items
}

func TestARealClassThatIsNotListedIsNotGiven(t *testing.T) {
	attacker := newTenant(t)
	for name, class := range map[string]string{"real": fabric.HomeNow, "virtual": fabric.Class, "path": "../" + fabric.HomeNow} {
		attacker.claim(name, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{keys.Class: class, keys.SelectedNode: "home-1"}
		})
		attacker.told(name, "InvalidClaim")
		assert.Nil(t, claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claimOf(t, bed.Home, attacker.namespace, name).UID)))
		attacker.delete("", name)
	}
}

func TestANodeChosenByHandReachesNoClusterThatTheNamespaceMayNotUse(t *testing.T) {
	attacker := newTenant(t)
	must.Kubectl(t, bed.Home, "", "label", "namespace", attacker.namespace, keys.Offload+"-")
	attacker.claim("data", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{keys.SelectedNode: fabric.WestNode, keys.Routed: "west"}
	})
	attacker.told("data", "NotOffloaded")
	assert.Nil(t, claimOf(t, bed.West, attacker.namespace, "data"))
}

func TestARefusedAnnotationHarmsOnlyItsOwnClaim(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	forever := `{"cluster":"west","reason":"x","message":"` + strings.Repeat("m", 2000) + `","until":"2999-01-01T00:00:00Z"}`
	huge := "[" + strings.Repeat(forever+",", 50) + forever + "]"
	require.Greater(t, len(huge), 100_000)
	for name, text := range map[string]string{
		"garbage": "][{", "huge-garbage": strings.Repeat("x", 100_000), "wrong-types": `[{"cluster":1,"until":[]}]`,
		"deep": strings.Repeat("[", 20_000),
		// More than is ever written counts as nothing: to read it would take long.
		"huge": huge,
	} {
		attacker.claim(name, func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{keys.Refused: text} })
		attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, name, name)))
		attacker.bound(name)
	}
	attacker.claim("forever", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{keys.Refused: "[" + forever + "]"}
	})
	attacker.pod(fabric.InWest(fabric.NewPod(attacker.namespace, "forever", "forever")))
	attacker.stays("forever")

	victim.claim("data", nil)
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	victim.bound("data")
}

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
				c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot",
					Name: place.name, Namespace: &victim.namespace}
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
			if claim.Spec.VolumeName != "" || claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(claim.UID)) != nil ||
				claimOf(t, bed.West, attacker.namespace, name) != nil {
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
func realVolume(t *testing.T, virtual *corev1.PersistentVolume) fakeprovisioner.Volume {
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
	i := slices.IndexFunc(volumes, func(v fakeprovisioner.Volume) bool { return v.Name == made.Spec.VolumeName })
	require.GreaterOrEqual(t, i, 0, "the volume of %s", made.Name)
	return volumes[i]
}

var neverDeleted = fakeprovisioner.Behavior{DeleteNever: true}

// untouched checks that a claim is what it was: neither written nor deleted.
func untouched(t *testing.T, cluster *testbed.Cluster, was *corev1.PersistentVolumeClaim) {
	t.Helper()
	now := claimOf(t, cluster, was.Namespace, was.Name)
	require.NotNil(t, now)
	assert.Equal(t, was.UID, now.UID)
	assert.Nil(t, now.DeletionTimestamp)
	assert.Equal(t, was.Labels, now.Labels)
	for key, value := range was.Annotations {
		assert.Equal(t, value, now.Annotations[key], key)
	}
	assert.NotContains(t, now.Finalizers, keys.BackingFinalizer)
}

func TestAClaimThatHoldsTheNameOfAShadowIsNotTouched(t *testing.T) {
	owner, other := newTenant(t), newTenant(t)
	stranger := other.claim("stranger", nil)
	for name, labels := range map[string]map[string]string{
		"plain":           nil,
		"of-another":      forged(t, stranger),
		"of-nobody":       {keys.ClaimUID: "00000000-0000-0000-0000-000000000000", keys.HomeID: homeID(t)},
		"of-another-home": {keys.ClaimUID: string(stranger.UID), keys.HomeID: "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			there := owner.claimInWest(name, labels, map[string]string{keys.Claim: owner.namespace + "/" + name})
			owner.claim(name, nil)
			owner.pod(fabric.InWest(fabric.NewPod(owner.namespace, name, name)))
			owner.told(name, "ForeignClaim")
			untouched(t, bed.West, there)
			assert.NotEqual(t, corev1.ClaimBound, claimOf(t, bed.Home, owner.namespace, name).Status.Phase)
		})
	}
}

// TestAForgedShadowDoesNotHideAnotherTenants has a tenant's claim in west say that
// it is the backing claim of another tenant's claim, which is then deleted: what
// was made for that one must still be found and removed.
func TestAForgedShadowDoesNotHideAnotherTenants(t *testing.T) {
	victim, attacker := newTenant(t), newTenant(t)
	bed.WestStorage.SetClaim(victim.namespace, "data", fakeprovisioner.Behavior{Never: true})
	t.Cleanup(func() { bed.WestStorage.ResetClaim(victim.namespace, "data") })
	class := virtualClass(t, victim.namespace, map[string]string{keys.RemoteClass: fabric.WestNow})
	data := victim.claim("data", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class })
	victim.pod(fabric.InWest(fabric.NewPod(victim.namespace, "db", "data")))
	await.Until(t, "the shadow is there", func() bool { return claimOf(t, bed.West, victim.namespace, "data") != nil },
		func() any { return victim.events() })

	// The real volume of this shadow never comes, so no virtual volume tells
	// where it is.
	var fakes []*corev1.PersistentVolumeClaim
	for name, says := range map[string]string{"a": attacker.namespace + "/data", "b": victim.namespace + "/other", "c": "nonsense"} {
		fakes = append(fakes, attacker.claimInWest(name, forged(t, data), map[string]string{keys.Claim: says, keys.Unpublished: "true"}))
	}
	victim.delete("db", "data")
	await.Until(t, "the shadow is removed", func() bool { return claimOf(t, bed.West, victim.namespace, "data") == nil },
		func() any { return victim.events() })
	for _, fake := range fakes {
		untouched(t, bed.West, fake)
	}
}

func virtualClass(t *testing.T, name string, parameters map[string]string) string {
	t.Helper()
	classes := bed.Home.Client().StorageV1().StorageClasses()
	class := must.Get(t, classes, fabric.Class)
	class.ObjectMeta = metav1.ObjectMeta{Name: name}
	class.Parameters = parameters
	must.Create(t, classes, class)
	t.Cleanup(func() { must.Delete(t, classes, name) })
	return name
}

func TestAClaimMadeByHandInTheStorageNamespaceIsNoTwin(t *testing.T) {
	user := newTenant(t)
	claim := user.claim("data", nil)
	storage := bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage)
	byHand := func(name string, labels map[string]string) *corev1.PersistentVolumeClaim {
		stray := fabric.NewClaim(fabric.Storage, name, fabric.HomeNow)
		stray.Labels = labels
		stray.Annotations = map[string]string{keys.Claim: user.namespace + "/data", keys.Unpublished: "true"}
		created := must.Create(t, storage, stray)
		t.Cleanup(func() { must.Delete(t, storage, name) })
		return created
	}
	// With our labels under another name, and under the twin's name without them.
	misnamed := byHand("stray-"+user.namespace, forged(t, claim))
	unlabelled := byHand("pvc-"+string(claim.UID), nil)
	user.pod(fabric.AtHome(fabric.NewPod(user.namespace, "db", "data")))
	user.told("data", "ForeignClaim")
	untouched(t, bed.Home, misnamed)
	untouched(t, bed.Home, unlabelled)
	assert.NotEqual(t, corev1.ClaimBound, claimOf(t, bed.Home, user.namespace, "data").Status.Phase)

	user.delete("db", "data")
	await.Never(t, "claims that are not ours are not cleaned up", func() bool {
		return claimOf(t, bed.Home, fabric.Storage, misnamed.Name) == nil || claimOf(t, bed.Home, fabric.Storage, unlabelled.Name) == nil
	})
	untouched(t, bed.Home, misnamed)
	untouched(t, bed.Home, unlabelled)
}

func TestAVirtualClaimInTheStorageNamespaceIsNotServed(t *testing.T) {
	testbed.Require(t)
	claims := bed.Home.Client().CoreV1().PersistentVolumeClaims(fabric.Storage)
	claim := fabric.NewClaim(fabric.Storage, "virtual", fabric.Class)
	claim.Annotations = map[string]string{keys.SelectedNode: "home-1"}
	made := must.Create(t, claims, claim)
	t.Cleanup(func() { must.Delete(t, claims, made.Name) })
	await.Never(t, "a twin has no twin", func() bool { return claimOf(t, bed.Home, fabric.Storage, "pvc-"+string(made.UID)) != nil })
}

// named finds tests in the table of attacks: a folder, a colon, a test.
var named = regexp.MustCompile("`([a-z0-9/-]+): (Test[A-Za-z0-9]+)`")

// TestTheTestsThatSecurityNamesExist: the table of attacks promises only what is
// tested.
func TestTheTestsThatSecurityNamesExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(fabric.Root(), "docs", "security.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n## Attacks and their tests\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attack ") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		assert.NotEmpty(t, tests, "a promise without a test: %s", line)
		for _, test := range tests {
			assert.True(t, defined(t, test[1], test[2]), "no test %s in %s", test[2], test[1])
		}
	}
	assert.Greater(t, rows, 15)
}

func defined(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(fabric.Root(), filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

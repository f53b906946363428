package upgrade

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func homeCluster(names ...string) *remotev1alpha1.HomeCluster {
	return &remotev1alpha1.HomeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
		Spec:       remotev1alpha1.HomeClusterSpec{Namespaces: remotev1alpha1.NamespacePolicy{Names: names}},
	}
}

func namespacesOf(home string, names ...string) (all []*corev1.Namespace) {
	for _, name := range names {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{keys.HomeID: home}}})
	}
	return all
}

func lines(findings []Finding) (all []string) {
	for _, finding := range findings {
		all = append(all, finding.String())
	}
	return all
}

func TestAHomeClusterThatListsNoNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		installation Installation
		want         []string
	}{
		"there is none": {},
		"it lists some": {installation: Installation{Homes: []*remotev1alpha1.HomeCluster{homeCluster("shop-*")}}},
		"all that it has end in its ID": {installation: Installation{
			Homes: []*remotev1alpha1.HomeCluster{homeCluster()}, Namespaces: namespacesOf("fleet", "shop-fleet", "web-fleet"),
		}},
		"it has none yet": {
			installation: Installation{Homes: []*remotev1alpha1.HomeCluster{homeCluster()}, Namespaces: namespacesOf("other", "shop")},
			want: []string{"HomeCluster fleet: it lists no namespaces and so may have those of any name; after the upgrade it keeps the 0 that " +
				"it has and gets new ones only if their names end in -fleet; list in its spec.namespaces.names the others that it may have, such " +
				"as shop-*, or '*' for any as until now"},
		},
		"it has some of home's names": {
			installation: Installation{
				Homes: []*remotev1alpha1.HomeCluster{homeCluster()}, Namespaces: namespacesOf("fleet", "web", "shop", "db-fleet"),
			},
			want: []string{"HomeCluster fleet: it lists no namespaces and so may have those of any name; after the upgrade it keeps the 3 that " +
				"it has and gets new ones only if their names end in -fleet; list in its spec.namespaces.names the others that it may have, such " +
				"as shop,web, or '*' for any as until now"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, lines(Findings(test.installation))) })
	}
}

func TestAHomeClusterWithClaimsOfAClassWithVolumesOfTheOwner(t *testing.T) {
	claim := func(namespace, class, home string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: class, Labels: map[string]string{keys.HomeID: home}},
			Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class)},
		}
	}
	given := func() Installation {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: "pool"}}
		existing := namespacesOf("fleet", "old")
		existing[0].Labels[keys.ExistingVolumes] = keys.ExistingVolumesAllowed
		return Installation{
			Homes:      []*remotev1alpha1.HomeCluster{homeCluster("*")},
			Namespaces: append(namespacesOf("fleet", "shop"), existing...),
			Classes: []*storagev1.StorageClass{
				{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk"}, {ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Provisioner: "disk"},
				{ObjectMeta: metav1.ObjectMeta{Name: "static"}, Provisioner: "kubernetes.io/no-provisioner"},
			},
			Volumes: []*corev1.PersistentVolume{volume},
			Claims: []*corev1.PersistentVolumeClaim{claim("shop", "fast", "fleet"), claim("shop", "pool", "fleet"), claim("shop", "pool", "fleet"),
				claim("shop", "static", ""), claim("old", "static", "fleet"), claim("elsewhere", "static", "other")},
		}
	}
	assert.Equal(t, []string{"HomeCluster fleet: it has claims of storage class pool, which has volumes without a claim or no provisioner; " +
		"after the upgrade new claims of it are refused; give those volumes a claimRef, or list pool in its spec.storageClasses with the other " +
		"classes that it may use"}, lines(Findings(given())))

	listed := given()
	listed.Homes[0].Spec.StorageClasses = []string{"fast"}
	assert.Empty(t, Findings(listed), "the owner has decided")
	claimed := given()
	claimed.Volumes[0].Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "mine"}
	assert.Empty(t, Findings(claimed))
}

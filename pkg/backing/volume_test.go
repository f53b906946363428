package backing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

const (
	once     = corev1.ReadWriteOnce
	many     = corev1.ReadWriteMany
	readMany = corev1.ReadOnlyMany
)

func ofSize(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func class(t *testing.T, options ...string) virtualclass.Class {
	t.Helper()
	parsed, err := virtualclass.Parse(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone"}, Provisioner: keys.Driver, MountOptions: options,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain)})
	require.NoError(t, err)
	return parsed
}

// real is a real volume with everything that a volume can have.
func real() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "real-1", Labels: map[string]string{"zone": "a"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "disk.csi.dev"}, Finalizers: []string{"disk.csi.dev/hold"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    ofSize("2Gi"),
			AccessModes: []corev1.PersistentVolumeAccessMode{once, many},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "disk.csi.dev", VolumeHandle: "handle-1", VolumeAttributes: map[string]string{"pool": "p"},
				NodePublishSecretRef: &corev1.SecretReference{Namespace: "kube-system", Name: "secret"},
			}},
			MountOptions:                  []string{"noatime", "ro"},
			StorageClassName:              "fast",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Namespace: "lodestone-storage", Name: "pvc-u1", UID: "b1"},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
					Values: []string{"node-1"}}},
			}}}},
		},
	}
}

func input(t *testing.T, cluster string, realVolume *corev1.PersistentVolume, options ...string) backing.VolumeInput {
	t.Helper()
	return backing.VolumeInput{
		Name: "pvc-u1", Cluster: cluster, Class: class(t, options...), Real: realVolume,
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{once}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
				Resources: corev1.VolumeResourceRequirements{Requests: ofSize("1Gi")},
			},
		},
		Backing: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "b1"}},
	}
}

// Kubernetes binds a claim to no volume of another attributes class.
func TestNewVolumeHasTheAttributesClassOfItsClaim(t *testing.T) {
	for _, cluster := range []string{keys.Home, "west"} {
		for asked, want := range map[*string]*string{nil: nil, ptr.To(""): nil, ptr.To("gold"): ptr.To("gold")} {
			in := input(t, cluster, real())
			in.Claim.Spec.VolumeAttributesClassName = asked
			in.Real.Spec.VolumeAttributesClassName = ptr.To("silver")
			pv, err := backing.NewVolume(in)
			require.NoError(t, err)
			assert.Equal(t, want, pv.Spec.VolumeAttributesClassName)
		}
	}
}

func TestNewVolumeAtHomeIsTheRealVolumeUnderAnotherName(t *testing.T) {
	original := real()
	pv, err := backing.NewVolume(input(t, keys.Home, original, "noatime", "discard"))
	require.NoError(t, err)
	assert.Equal(t, metav1.ObjectMeta{
		Name: "pvc-u1", Labels: map[string]string{keys.Cluster: keys.Home},
		Annotations: map[string]string{keys.Backing: "home/shop/data/b1", keys.BackingVolume: "real-1"},
	}, pv.ObjectMeta)
	assert.Equal(t, real().Spec.PersistentVolumeSource, pv.Spec.PersistentVolumeSource)
	assert.Equal(t, locality.Affinity(keys.Home, real().Spec.NodeAffinity), pv.Spec.NodeAffinity)
	assert.Equal(t, []string{"noatime", "discard", "ro"}, pv.Spec.MountOptions, "the class's, then the real volume's, none twice")
	assert.Equal(t, ofSize("2Gi"), pv.Spec.Capacity)
	assert.Equal(t, "lodestone", pv.Spec.StorageClassName)
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy, "the virtual class's")
	assert.Equal(t, corev1.PersistentVolumeFilesystem, *pv.Spec.VolumeMode)
	assert.Nil(t, pv.Spec.ClaimRef)

	pv.Spec.CSI.VolumeAttributes["pool"] = "changed"
	assert.Equal(t, real(), original, "the real volume is not changed")
}

func TestNewVolumeInARemoteClusterTakesOnlySizeAndModes(t *testing.T) {
	pv, err := backing.NewVolume(input(t, "west", real(), "noatime"))
	require.NoError(t, err)
	assert.Equal(t, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-u1", Labels: map[string]string{keys.Cluster: "west"},
			Annotations: map[string]string{keys.Backing: "west/shop/data/b1", keys.BackingVolume: "real-1"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: ofSize("2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{once, many},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: keys.Driver, VolumeHandle: "west/shop/data/b1"}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "lodestone",
			MountOptions: []string{"noatime"}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			NodeAffinity: locality.Affinity("west", nil),
		},
	}, pv, "no source, secret, node, mount option, label or annotation of the remote volume")
}

func TestNewVolumeCarriesTheClusterThatItsDataIsIn(t *testing.T) {
	for cluster, uid := range map[string]string{"west": "uid-west", "east": "", keys.Home: "uid-home"} {
		in := input(t, cluster, real())
		in.ClusterUID = uid
		pv, err := backing.NewVolume(in)
		require.NoError(t, err)
		if cluster == "west" {
			assert.Equal(t, uid, pv.Annotations[keys.ClusterUID], "no other cluster may say that the data is gone")
		} else {
			assert.NotContains(t, pv.Annotations, keys.ClusterUID, cluster)
		}
	}
}

func TestNewVolumeBeforeTheRemoteVolumeExists(t *testing.T) {
	pv, err := backing.NewVolume(input(t, "west", nil))
	require.NoError(t, err)
	assert.Equal(t, ofSize("1Gi"), pv.Spec.Capacity, "what the claim asks for")
	assert.Equal(t, []corev1.PersistentVolumeAccessMode{once}, pv.Spec.AccessModes)
	assert.NotContains(t, pv.Annotations, keys.BackingVolume)
}

func TestNewVolumeRefuses(t *testing.T) {
	small := real()
	small.Spec.Capacity = ofSize("1000Mi")
	sizeless := real()
	sizeless.Spec.Capacity = nil
	for name, test := range map[string]struct {
		cluster string
		real    *corev1.PersistentVolume
		says    string
	}{
		"a volume at home that is not known":     {cluster: keys.Home, says: "is not known"},
		"a volume at home that is too small":     {cluster: keys.Home, real: small, says: "1000Mi"},
		"a volume elsewhere that is too small":   {cluster: "west", real: small, says: "1000Mi"},
		"a volume elsewhere that claims no size": {cluster: "west", real: sizeless, says: "less than the 1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := backing.NewVolume(input(t, test.cluster, test.real))
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func TestANewVolumeOfAClaimThatNamesItMayBeSmaller(t *testing.T) {
	small := real()
	small.Spec.Capacity = ofSize("1000Mi")
	in := input(t, "west", small)
	in.MayBeSmaller = true
	pv, err := backing.NewVolume(in)
	require.NoError(t, err)
	assert.Equal(t, ofSize("1000Mi"), pv.Spec.Capacity)
	small.Spec.Capacity = nil
	_, err = backing.NewVolume(in)
	assert.ErrorContains(t, err, "less than the 1Gi")
}

func TestAccessModesOfANewVolume(t *testing.T) {
	type modes = []corev1.PersistentVolumeAccessMode
	for name, test := range map[string]struct{ claim, real, want modes }{
		"the real volume's where it has all that is asked for": {claim: modes{once}, real: modes{once, many}, want: modes{once, many}},
		"the claim's where the real volume lacks one": {claim: modes{once, readMany}, real: modes{once, many},
			want: modes{once, readMany}},
		"the claim's where the real volume has none": {claim: modes{once}, want: modes{once}},
	} {
		t.Run(name, func(t *testing.T) {
			r := real()
			r.Spec.AccessModes = test.real
			in := input(t, "west", r)
			in.Claim.Spec.AccessModes = test.claim
			pv, err := backing.NewVolume(in)
			require.NoError(t, err)
			assert.Equal(t, test.want, pv.Spec.AccessModes)
		})
	}
}

func TestNewVolumeOfARealClaimOfAnotherNameIsForNodesThatKnowIt(t *testing.T) {
	in := input(t, "west", real())
	in.Backing.Name = "pvc-u1-1"
	pv, err := backing.NewVolume(in)
	require.NoError(t, err)
	assert.Equal(t, "west/shop/pvc-u1-1/b1", pv.Annotations[keys.Backing])
	assert.Equal(t, locality.OfVolumes(locality.Affinity("west", nil)), pv.Spec.NodeAffinity)

	in = input(t, keys.Home, real())
	in.Backing.Name = "pvc-u1-1"
	pv, err = backing.NewVolume(in)
	require.NoError(t, err)
	assert.Equal(t, locality.Affinity(keys.Home, real().Spec.NodeAffinity), pv.Spec.NodeAffinity, "no pod at home mounts a twin by its name")
}
